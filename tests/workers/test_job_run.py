"""How soon a group hears that it is to leave."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from fleet.coordination.protocol import EpochEnded, Message, StepsTimed, StopGroup
from fleet.workers.feed import EpochEnd, StepBatches
from fleet.workers.job_run import JobRun, Line, Saving, TrainingTerms
from trainers import Stop

READY, STEPS = 30, 200
STEP_SECONDS, WAIT_SECONDS = 0.001, 0.4


@dataclass
class Slow:
    """A trainer and its feed in one, with a clock: samples of the first steps lie ready, others come slowly."""

    now: float = 0.0
    step_in_epoch: int = 0
    epoch = virtual_workers = batch_size = 0
    waited = waited_seconds = computed_seconds = 0.0
    is_connecting = False
    group = SimpleNamespace(is_master=True, agree=lambda word: word)

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


def test_a_wish_to_stop_is_heard_at_the_next_step_when_samples_come_slowly(tmp_path: Path) -> None:
    slow, wished = Slow(), list[int]()

    def asked() -> StopGroup | None:
        if slow.now < 20.0 or wished:
            return None
        wished.append(slow.step_in_epoch)
        return StopGroup("a", "signal")

    member: Any = slow
    course = TrainingTerms(SimpleNamespace(), Saving(tmp_path, 1, 1), STEPS)  # type: ignore[arg-type]
    line = Line(lambda message: None, asked)
    left = JobRun("a", member, member, course, line, clock=lambda: slow.now).run()
    assert left is not None
    assert (left.why, left.reason) == ("stopped", "signal")
    due = READY + int(20.0 / WAIT_SECONDS)
    assert due <= left.step <= due + 1, "not when the steps have passed that would be 0.1 s if nothing was waited for"


@pytest.mark.parametrize(("seconds", "timed"), [(0.001, 20), (0.05, 6), (2.0, 3)])
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_first_steps_tell_once_how_fast_they_are(seconds: float, timed: int, scale: float, tmp_path: Path) -> None:
    """Without the first three, which take longer; until 20 are timed, or 0.3 s and three steps at least."""
    told, wishes = list[Message](), [StopGroup("a", "signal")]

    class Warming(Slow):
        virtual_workers, batch_size = 2, 4

        def step(self, batches: object) -> None:
            self.now += 10.0 if self.step_in_epoch < 3 else seconds
            self.step_in_epoch += 1

    slow = Warming()
    member: Any = slow
    course = TrainingTerms(SimpleNamespace(), Saving(tmp_path, 1, 1), STEPS, time_scale=scale)  # type: ignore[arg-type]
    line = Line(told.append, lambda: wishes.pop() if wishes and slow.step_in_epoch > READY else None)
    JobRun("a", member, member, course, line, clock=lambda: slow.now).run()
    (word,) = [word for word in told if isinstance(word, StepsTimed)]
    assert (word.job, word.batches) == ("a", timed)
    assert word.rate == pytest.approx(8 / seconds * scale) and word.seconds == pytest.approx(timed * seconds)


@dataclass
class Epochs(Slow):
    """The same, whose epochs end."""

    epoch: int = 0
    rate_factor: float = 1.0

    def next(self) -> Any:
        return EpochEnd(self.epoch) if self.step_in_epoch == STEPS else StepBatches(0, self.step_in_epoch, ())

    def evaluate(self, batches: Any, of_several: bool = False) -> dict[int, Any]:
        assert list(batches) == []
        return {}

    def reduce_sums(self, sums: Any) -> dict[str, float]:
        return {}

    def finish_epoch(self, metrics: dict[str, float]) -> dict[str, float]:
        self.epoch, self.step_in_epoch = self.epoch + 1, 0
        return {"test_loss": 1.0}


def let_epochs_end(epochs: Any) -> None:
    """Give a trainer what the end of an epoch asks it for."""
    epochs.group = SimpleNamespace(is_master=True, agree=lambda word: word, gather_trees=lambda tree: [tree])
    epochs.history, epochs.steps = [{"test_loss": 1.0}], 0
    epochs.optimizer = SimpleNamespace(param_groups=[{"lr": 0.1}])


@pytest.mark.parametrize("over_hosts", [50, STEPS])
def test_steps_while_devices_meet_count_for_no_rate_if_there_are_others(over_hosts: int, tmp_path: Path) -> None:
    told, wishes = list[Message](), [StopGroup("a", "epoch")]

    class Meeting(Epochs):
        virtual_workers, batch_size = 2, 4

        @property
        def is_connecting(self) -> bool:  # type: ignore[override]
            return self.epoch == 0 and self.step_in_epoch < over_hosts

        def step(self, batches: object) -> None:
            self.now += 1.0 if self.is_connecting else 0.1
            self.step_in_epoch += 1

    epochs = Meeting()
    let_epochs_end(epochs)
    member: Any = epochs
    course = TrainingTerms(Stop(9), Saving(tmp_path, 100, 1), STEPS)
    line = Line(told.append, lambda: wishes.pop() if wishes and epochs.epoch == 1 else None)
    JobRun("a", member, member, course, line, clock=lambda: epochs.now).run()
    (epoch,) = [word.rate for word in told if isinstance(word, EpochEnded)]
    first = [word.rate for word in told if isinstance(word, StepsTimed)]
    assert epoch == pytest.approx(8 / (1.0 if over_hosts == STEPS else 0.1))
    assert first == pytest.approx([] if over_hosts == STEPS else [8 / 0.1])


@pytest.mark.parametrize("later", [None, "signal"])
def test_a_group_that_is_to_end_its_epoch_does_unless_it_is_to_stop_at_once(
    tmp_path: Path, later: Literal["signal"] | None
) -> None:
    epochs = Epochs()
    let_epochs_end(epochs)
    words: list[StopGroup] = [StopGroup("a", "epoch"), *([StopGroup("a", later)] if later else [])]
    member: Any = epochs
    course = TrainingTerms(Stop(9), Saving(tmp_path, 100, 1), STEPS)
    line = Line(lambda message: None, lambda: words.pop(0) if words else None)
    left = JobRun("a", member, member, course, line, clock=lambda: epochs.now).run()
    assert left is not None
    assert (left.why, left.reason, left.held) == ("stopped", later or "epoch", later is None)
    assert (left.epoch, left.step) == (0 if later else 1, 0)


@pytest.mark.parametrize(("seconds", "saved"), [(0.0, [1, 2, 3, 4, 5]), (0.5, [2, 4, 5]), (0.7, [3, 5]), (9.0, [5])])
def test_no_checkpoint_is_written_while_little_would_be_lost_without_it(
    seconds: float, saved: list[int], tmp_path: Path
) -> None:
    """Epochs take 0.2 s. What would be lost counts to the end of the epoch that follows; the last one is saved."""
    found = list[int]()

    class Saved(Epochs):
        history: list[dict[str, float]]

        def snapshot(self) -> None:
            found.append(self.epoch)

        def finish_epoch(self, metrics: dict[str, float]) -> dict[str, float]:
            self.history.append({"test_loss": 1.0})
            return super().finish_epoch(metrics)

    epochs: Any = Saved()
    let_epochs_end(epochs)
    epochs.history = []
    course = TrainingTerms(Stop(5), Saving(tmp_path, 1, 1, seconds=seconds), STEPS)
    JobRun("a", epochs, epochs, course, Line(lambda message: None, lambda: None), clock=lambda: epochs.now).run()
    assert found == saved
