"""Trials whose values another trial had before: equal values come to equal bits, so they are answered from its results.

They take their virtual slots and count among trials and epochs as all do, so that no decision depends on it. A trial
whose twin is not to train as far trains by itself after all.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from fleet.coordination.job_record import JobRecord
from fleet.search import Search
from fleet.spec import EnsembleSpec


class Twins:
    """Finds, for each trial, the first one with the same values.

    Args:
        search: whose trials.
        spec: of the run; with determinism D0 bits do not repeat, and members of a population change their values.
        job: the record of a trial's job; None: it has none.
    """

    def __init__(self, search: Search, spec: EnsembleSpec, job: Callable[[int], JobRecord | None]) -> None:
        assert spec.search is not None
        self._search, self._job = search, job
        self._are = spec.determinism.level != "D0" and spec.search.stopping.name != "population"
        self._first: dict[str, int] = {}
        self._of: list[int] = []  # by trial, the first with its values

    def of(self, trial: int) -> int | None:
        """The trial that answers for one; None: it trains by itself."""
        first = self._first_of(trial) if self._are else trial
        return None if first == trial or self._job(trial) is not None else first

    def _first_of(self, trial: int) -> int:
        for number in range(len(self._of), trial + 1):
            key = json.dumps(dict(self._search.values(number)), sort_keys=True)
            self._of.append(self._first.setdefault(key, number))
        return self._of[trial]

    def reaches(self, twin: int, epoch: int) -> bool:
        """Whether a trial has trained for so long, or ended before, or is about to."""
        job = self._job(twin)
        if job is not None and (job.epoch >= epoch or job.status in ("done", "failed")):
            return True
        return any(each.trial == twin and each.end >= epoch for each in self._search.needed())

    def told(self, trial: int, name: Callable[[int], str]) -> dict[str, Any]:
        """What run.json says of who answered for a trial."""
        twin = self.of(trial)
        return {} if twin is None else {"same_as": name(twin)}
