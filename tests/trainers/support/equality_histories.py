"""Histories of a job: on which trainers it was when, how it came there, and when its processes were killed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies

from tests.trainers.support.equality_services import Elastic, ServiceEnded
from tests.trainers.support.equality_states import States
from tests.trainers.support.equality_tasks import steps_of

RANKS = 4
HISTORY_TASKS = (
    "mlp",
    "cnn",
    "densenet",
    "shufflenet",
    "gru",
    "neumf",
    "accumulate two buckets",
    "batches warmed up",
    "everything",
)


@dataclass(frozen=True)
class Kill:
    """In the middle of step `step` the group's member `member` (modulo its size) is killed with SIGKILL."""

    step: int
    member: int


@dataclass(frozen=True)
class Stay:
    """A job's time on `ranks`, up to step `until`, and how it came there: "file" or "resize"."""

    ranks: tuple[int, ...]
    until: int
    how: str = "file"

    def as_request(self) -> dict[str, Any]:
        return {"ranks": list(self.ranks), "until": self.until, "how": self.how}


@dataclass(frozen=True)
class History:
    """every: a checkpoint is written after so many steps; 0: only where the job moves by a file."""

    task: str
    virtual_workers: int
    stays: tuple[Stay, ...]
    every: int = 0
    kill: Kill | None = None

    def relive(self, elastic: Elastic, folder: Path) -> States:
        """Train it; return the states that it showed at last."""
        if self.kill is None:
            return self._ask(elastic, self.stays, None, folder)
        place = next(place for place, stay in enumerate(self.stays) if self.kill.step < stay.until)
        member = self.kill.member % len(self.stays[place].ranks)
        with pytest.raises(ServiceEnded, match=r"^(?![\s\S]*Traceback)"):
            self._ask(elastic, self.stays, (self.kill.step, member), folder)
        return self._ask(elastic, self.stays[place:], None, folder)

    def _ask(self, elastic: Elastic, stays: tuple[Stay, ...], kill: tuple[int, int] | None, folder: Path) -> States:
        segments = [stay.as_request() for stay in stays]
        return elastic.history(self.task, self.virtual_workers, segments, every=self.every, kill=kill, folder=folder)


@strategies.composite
def histories(
    draw: strategies.DrawFn,
    tasks: Sequence[str] = HISTORY_TASKS,
    numbers: Sequence[int] = (2, 3, 4, 8),
    kills: bool = False,
) -> History:
    """Draw a history of one of these tasks by one of these numbers of virtual workers, with a kill or without."""
    task = draw(strategies.sampled_from(tasks))
    workers = draw(strategies.sampled_from(numbers))
    steps = steps_of(task, workers)
    cuts = draw(strategies.sets(strategies.integers(1, steps - 1), min_size=1, max_size=4))
    ranks = strategies.permutations(range(RANKS)).flatmap(
        lambda order: strategies.integers(1, min(RANKS, workers)).map(lambda size: tuple(order[:size]))
    )
    how = strategies.sampled_from(("resize", "file"))
    stays = tuple(Stay(draw(ranks), until, draw(how)) for until in (*sorted(cuts), steps))
    kill = None
    if kills:
        kill = Kill(draw(strategies.integers(0, steps - 1)), draw(strategies.integers(0, RANKS - 1)))
    return History(task, workers, stays, draw(strategies.sampled_from((0, 1, 2, 3))), kill)
