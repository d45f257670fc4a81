"""How soon a group hears that it is to leave."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fleet.coordination.protocol import StopGroup
from fleet.run.ranks import job_run
from fleet.run.ranks.feed import StepBatches
from fleet.run.ranks.job_run import JobRun, Saving

READY, STEPS = 30, 200
STEP_SECONDS, WAIT_SECONDS = 0.001, 0.4


@dataclass
class Slow:
    """A trainer and its feed in one, with a clock: samples of the first steps lie ready, others come slowly."""

    now: float = 0.0
    step_in_epoch: int = 0
    epoch = virtual_workers = batch_size = 0
    waited = waited_seconds = computed_seconds = 0.0

    def plan(self, samples: int) -> Any:
        return SimpleNamespace(steps_per_epoch=STEPS)

    def next(self) -> StepBatches:
        self.now += WAIT_SECONDS if self.step_in_epoch >= READY else 0.0
        return StepBatches(0, self.step_in_epoch, ())

    def step(self, batches: object) -> None:
        self.now += STEP_SECONDS
        self.step_in_epoch += 1

    def snapshot(self) -> None:
        return None


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    made = Slow()
    clock = SimpleNamespace(perf_counter=lambda: made.now, monotonic=lambda: made.now)
    monkeypatch.setattr(job_run, "time", clock)
    yield made


def test_a_wish_to_stop_is_heard_at_the_next_step_when_samples_come_slowly(slow: Slow, tmp_path: Path) -> None:
    wished: list[int] = []

    def asked() -> StopGroup | None:
        if slow.now < 20.0 or wished:
            return None
        wished.append(slow.step_in_epoch)
        return StopGroup("a", "signal")

    group = SimpleNamespace(is_master=True, agree=lambda verdict: verdict)
    start: Any = SimpleNamespace(job="a")
    parts: Any = (group, slow, slow)
    saving, stop = Saving(tmp_path, 1, 1), SimpleNamespace()
    nothing = lambda *message: None
    left = JobRun(start, *parts, stop, saving, nothing, asked, STEPS, True, nothing, 1).run()  # type: ignore[arg-type]
    assert (left.why, left.reason) == ("stopped", "signal")
    due = READY + int(20.0 / WAIT_SECONDS)
    assert due <= left.step <= due + 1, "not when the steps have passed that would be 0.1 s if nothing was waited for"
