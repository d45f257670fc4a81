"""The values of what all members of a group have measured."""

from __future__ import annotations

from collections.abc import Mapping

from trainers.messages.group import Group
from trainers.task.metrics import Metric, values
from trainers.task.task import Sums


def gathered(group: Group, sums: Mapping[int, Sums], metrics: Mapping[str, Metric]) -> dict[str, float]:
    """Return the values over all members' batches, on every member, put together in the order of their indices.

    So metrics, too, do not depend on the number of trainers. metrics: those of which batches have states.
    """
    trees = group.gather_trees(dict(sums))
    if not group.is_master:
        return dict(group.bcast_tree())
    everything = {index: entry for member in trees for index, entry in member.items()}
    return dict(group.bcast_tree(values([entry for _, entry in sorted(everything.items())], metrics)))
