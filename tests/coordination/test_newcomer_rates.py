"""Where jobs are measured that come without rates, and who does without what for it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.coordination.executor import Measured, StopReason
from fleet.coordination.first_rates import NewcomerRates
from fleet.coordination.job_record import UNRATED, JobRecord
from fleet.coordination.live_state import LiveState, Recorder
from fleet.journal import events
from fleet.journal.journal import Journal
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.data_path import Lending
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.rates import RateCurve

LASTS = 100.0  # seconds that a job trains


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    found = Journal(tmp_path / "journal.jsonl", lambda: 0.0)
    yield found
    found.close()


class Scene:
    """Jobs a and b on devices 0 and 2; the trainer of device 1 prepares samples for a, and `new` has no rates."""

    def __init__(self, journal: Journal, deadlines: dict[str, float], with_b: bool = False) -> None:
        states = [self._state(name, deadlines.get(name, math.inf)) for name in ("a", "b")[: 1 + with_b]]
        records = [JobRecord.of(state, f"{state.name}/0") for state in states]
        records.append(JobRecord.of(JobState("new", UNRATED, 1, deadline=900.0), "new/0"))
        size = 2 + with_b
        self.books = Recorder(LiveState(Cluster((size,)), records, seed=0, lending=Lending(1, 1)), journal)
        for name, deadline in deadlines.items():
            self.books.record(events.Admitted(job=name, deadline=deadline))
        self.start("a", 0, prepared_by=[1])
        if with_b:
            self.start("b", 2)
        self.left: list[tuple[str, StopReason]] = []
        self.measured: list[tuple[str, tuple[int, ...]]] = []
        self.rates = NewcomerRates(self, self.books)  # type: ignore[arg-type]

    @staticmethod
    def _state(name: str, deadline: float) -> JobState:
        return JobState(name, RateCurve({1: 1.0}, 1), 1, remaining=LASTS, epoch=LASTS, deadline=deadline)

    def start(self, job: str, device: int, **keys: Any) -> None:
        self.books.record(events.Started(round=0, job=job, devices=(device,), epoch=0, step=0, lane=3, **keys))

    def measure(self, job: str, devices: tuple[int, ...]) -> None:
        self.measured.append((job, devices))

    def save_held(self) -> bool:
        return False

    def advance(self) -> bool:
        return self.rates.advance(lambda job, why: self.left.append((job, why)))


@pytest.mark.parametrize("deadline", [{}, {"a": LASTS + 25.0}, {"a": LASTS + 100.0}])
def test_a_job_whose_samples_a_trainer_prepares_does_without_it_meanwhile(
    journal: Journal, deadline: dict[str, float]
) -> None:
    scene = Scene(journal, deadline)
    assert scene.advance() and scene.left == [("a", "policy")] and not scene.measured
    anew = scene.rates.unhelped
    assert (anew.devices, anew.lanes, anew.keys) == ({"a": (0,)}, {"a": 3}, {"lent": 0})
    scene.books.record(events.Stopped(round=0, job="a", devices=(0,), epoch=0, step=1, why="policy"))
    scene.books.record(events.Planned(round=1, allocation={"a": (0,)}, paces={}, lent=0))
    scene.start("a", 0)
    assert scene.advance() and scene.measured == [("new", (1,))] and not scene.rates.unhelped.devices
    scene.rates.on_measured(Measured("new", (1,), 5.0, 4, 0.5, 0.1))
    assert not scene.advance(), "its rates are known"


def test_a_promise_that_would_be_broken_without_help_is_kept(journal: Journal) -> None:
    scene = Scene(journal, {"a": LASTS + 15.0})
    assert not scene.advance() and not scene.left and not scene.measured


def test_another_job_makes_room_then_that_is_promised_nothing(journal: Journal) -> None:
    scene = Scene(journal, {"a": LASTS + 15.0}, with_b=True)
    assert scene.advance() and scene.left == [("b", "policy")] and not scene.rates.unhelped.devices
