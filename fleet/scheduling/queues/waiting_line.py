"""The waiting jobs, in order: kept from plan to plan, so that a plan's cost depends on the changes alone."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import Any

from fleet.scheduling.model.job_state import JobState
from fleet.scheduling.model.state import State

Key = Callable[[JobState], Any]


def by_arrival(job: JobState) -> tuple[float, str]:
    """The order of first come, first served."""
    return job.arrival, job.name


class WaitingLine:
    """The waiting jobs by a key that does not change while they wait; a policy's memo.

    Args:
        key: the smaller goes first; it must differ between any two jobs.
    """

    def __init__(self, key: Key) -> None:
        self._key = key
        self._heap: list[tuple[Any, str]] = []

    @classmethod
    def of(cls, state: State, key: Key = by_arrival) -> WaitingLine:
        """The line of the last plan with the changes since, or a new one."""
        line = state.memo if isinstance(state.memo, cls) else None
        if line is None:
            line = cls(key)
            names: Any = state.by_name
        else:
            names = state.changed
        for name in names:
            if name in state.by_name and name not in state.running:
                heapq.heappush(line._heap, (key(state.by_name[name]), name))
        return line

    def take(self, state: State) -> Iterator[JobState]:
        """The jobs in order; each leaves the line as it is given. A policy that passes one over puts it back."""
        while self._heap:
            _, name = heapq.heappop(self._heap)
            if name in state.by_name and name not in state.running:
                yield state.by_name[name]

    def back(self, job: JobState) -> None:
        """A job waits on."""
        heapq.heappush(self._heap, (self._key(job), job.name))
