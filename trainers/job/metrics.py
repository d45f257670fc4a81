"""Means over what all members of a group have measured."""

from __future__ import annotations

from collections.abc import Mapping

from trainers.messages.group import Group
from trainers.task.task import Sums


def means(group: Group, sums: Mapping[int, Sums]) -> dict[str, float]:
    """Return the means over all members' sums, on every member, added in the order of their indices.

    So metrics, too, do not depend on the number of trainers.
    """
    gathered = group.gather_trees(dict(sums))
    if not group.is_master:
        return dict(group.bcast_tree())
    everything = {index: entry for member in gathered for index, entry in member.items()}
    totals: Sums = {}
    for _, entry in sorted(everything.items()):
        for name, (total, count) in entry.items():
            before = totals.get(name, (0.0, 0.0))
            totals[name] = (before[0] + total, before[1] + count)
    return dict(group.bcast_tree({name: total / count for name, (total, count) in totals.items() if count}))
