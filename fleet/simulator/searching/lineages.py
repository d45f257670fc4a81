"""Whose weights the members of a population have: a result is only known for the same ones."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable

from fleet.search import Decision


class Lineages:
    """Folded from the decisions of a search, in their order.

    A lineage is a digest of the last copy that a trial took: when, from whom, with which values, and the lineage of
    what it took. That of a trial that has only its own weights is empty, whatever its segments are.

    Args:
        decisions: the first ones.
    """

    def __init__(self, decisions: Iterable[Decision] = ()) -> None:
        self._copies: defaultdict[int, list[tuple[int, str]]] = defaultdict(list)  # trial -> epochs by then, lineage
        self._taken = 0
        self.follow(list(decisions))

    def follow(self, decisions: list[Decision]) -> None:
        """Take those of a growing list that were not there the last time."""
        for decision in decisions[self._taken :]:
            copy = decision.copy
            if copy is not None:
                told = [copy.donor, copy.epoch, self.of(copy.donor, copy.epoch), decision.start, copy.values]
                digest = hashlib.blake2b(json.dumps(told, sort_keys=True).encode(), digest_size=16).hexdigest()
                self._copies[decision.trial].append((decision.start, digest))
        self._taken = len(decisions)

    def of(self, trial: int, epoch: int) -> str:
        """The lineage of the weights that a trial has once it has trained so many epochs."""
        copies = self._copies.get(trial, [])
        return next((lineage for start, lineage in reversed(copies) if start < epoch), "")
