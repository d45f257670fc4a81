"""One group's time with one job, from inside one member: epochs until the job is done or its devices are wanted."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from fleet.coordination.protocol import (
    AtStep,
    CheckpointWritten,
    EpochEnded,
    Formed,
    Left,
    Message,
    StepsTimed,
    StopGroup,
)
from fleet.workers.feed import BatchFeed, EpochEnd, HeldOutBatch, StepBatches
from trainers import Batch, Stop, Trainer, converged
from trainers.job.single_job import StopAgreement
from trainers.state import checkpoint
from trainers.state.history import History
from trainers.state.kept_checkpoints import ByMetric, best_of, keep_best

GO_ON, LEAVE, HOLD, SAVE = range(4)  # HOLD: leave, and keep the job in memory; SAVE: write a checkpoint, and go on
WORDS_A_SECOND = 500  # of progress that rank 0 hears at most, all ranks together


@dataclass(frozen=True)
class Saving:
    """Where and how often a job is checkpointed.

    Attributes:
        every: epochs between two checkpoints.
        keep: how many of the newest are kept.
        best: by what the best is found, which is kept, too; None: no other is.
        seconds: of training that a kill may cost at most, where epochs are shorter: no checkpoint is written before.
    """

    folder: Path
    every: int
    keep: int
    best: ByMetric | None = None
    seconds: float = 0.0

    def is_due(self, history: History | Sequence[Mapping[str, float]], until_next: float = math.inf) -> bool:
        """Whether a job is saved that has just finished the last of these epochs.

        Args:
            until_next: seconds from its last checkpoint to the end of the epoch that follows.
        """
        best = best_of(history, self.best)
        due = len(history) % self.every == 0 and until_next > self.seconds
        return due or (best is not None and best.epoch == len(history))


@dataclass(frozen=True)
class TrainingTerms:
    """What the training of a job goes by.

    Attributes:
        stop: when the job is done.
        saving: where and how often to checkpoint.
        epoch_samples: training samples of an epoch.
        evaluates: measure the held-out samples; a rehearsal only reads past them.
        timed: steps that tell how fast the group trains.
        time_scale: seconds that are trained here for one second of the rates that are told.
        until: epochs after which the job pauses, saved; None: it trains until it is done.
        several: the held-out set has more than one batch.
    """

    stop: Stop
    saving: Saving
    epoch_samples: int
    evaluates: bool = True
    timed: int = 20
    time_scale: float = 1.0
    until: int | None = None
    several: bool = False


@dataclass(frozen=True)
class Line:
    """A member's line to rank 0.

    Attributes:
        tell: sends a message there.
        asked: the next message for this rank, or None; masters look for a StopGroup there.
        moves: called for each step: this member is not stuck.
        ranks: how many the run has; the more there are, the less often each tells of its progress.
        later: writes a last checkpoint beside what follows, and sends the last word then; None: nobody does.
    """

    tell: Callable[[Message], None]
    asked: Callable[[], Message | None]
    moves: Callable[[], None] = lambda: None
    ranks: int = 1
    later: Callable[[Callable[[], CheckpointWritten], Left], None] | None = None

    @property
    def seconds_between_words(self) -> float:
        """At least so long a master waits between two words of progress."""
        return max(1.0, self.ranks / WORDS_A_SECOND)


class _Stopwatch:
    """What this member did since the last report: seconds waited for data, for peers, and computed."""

    def __init__(self, trainer: Trainer, feed: BatchFeed) -> None:
        self._trainer, self._feed = trainer, feed
        self._inside = 0.0
        self._last = self._now()

    def waited_inside_compute(self, seconds: float) -> None:
        """The trainer counted these as computed, but waited for data."""
        self._inside += seconds

    def _now(self) -> tuple[float, float, float]:
        return self._feed.waited, self._trainer.waited_seconds, self._trainer.computed_seconds - self._inside

    def read(self) -> tuple[float, float, float]:
        now = self._now()
        spent = tuple(a - b for a, b in zip(now, self._last))
        self._last = now
        return spent[0], spent[1], spent[2]


class JobRun:
    """Trains a job in a group until it is done, or until its master is told to leave.

    Args:
        job: its name.
        trainer, feed: this member's.
        course: what the training goes by.
        line: to rank 0.
        clock: seconds.
    """

    def __init__(
        self,
        job: str,
        trainer: Trainer,
        feed: BatchFeed,
        course: TrainingTerms,
        line: Line,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._job, self._trainer, self._feed, self._course, self._line = job, trainer, feed, course, line
        self._group, self._clock = trainer.group, clock
        self._plan = trainer.plan(course.epoch_samples)
        self._agreement = StopAgreement(self._group, clock=clock)
        self._watch = _Stopwatch(trainer, feed)
        self._why = ""  # of a wish to leave
        self._holds = False
        self._until_epoch_end = False  # as the batch is to change then
        self._steps = 0  # since the group was formed
        self._training_seconds = 0.0
        self._training_steps = 0
        self._first = FirstSteps(course.timed)
        self._was_meeting = False
        self._last_progress = self._saved = clock()

    def run(self) -> Left | None:
        """Epoch after epoch; returns this member's last word, None if that follows the last checkpoint."""
        while True:
            begin = self._clock()
            if self._train_epoch() != GO_ON:
                return self._leave_inside_epoch()
            metrics = self._evaluate()
            reason, seconds = converged(self._trainer.history, self._course.stop), self._clock() - begin
            self._report_epoch(metrics, seconds)
            verdict = self._agree(at_epoch_end=seconds)
            leaving = verdict in (LEAVE, HOLD)
            if self._trainer.epoch == self._course.until:
                leaving, self._holds, self._why = True, False, "pause"
            if reason and self._line.later is not None and self._group.size == 1:
                self._end_beside(self._line.later, reason)
                return None
            kept = leaving and self._holds and not self._course.saving.is_due(self._trainer.history)
            if reason or verdict == SAVE or (leaving and not kept):
                self._save()
            if reason or leaving:
                return self._last_word("done" if reason else "stopped", reason or self._why)

    def _train_epoch(self) -> int:
        """The epoch's steps, from where the job stands; not GO_ON if the devices are wanted before its end."""
        while self._trainer.step_in_epoch < self._plan.steps_per_epoch:
            if self._agreement.is_due(self._steps) and (verdict := self._agree()) != GO_ON:
                return verdict
            self._line.moves()
            item = self._feed.next()
            assert isinstance(item, StepBatches) and item.step == self._trainer.step_in_epoch, item
            self._leave_out_steps_over_hosts()
            begin = self._clock()
            self._trainer.step(item.batches)
            spent = self._clock() - begin
            self._training_seconds += spent
            self._training_steps += 1
            self._steps += 1
            self._tell_first(spent)
            self._tell_progress()
        return GO_ON

    def _evaluate(self) -> dict[str, float]:
        """The held-out part of the epoch; returns the epoch's metrics, the same on every member."""
        converged(self._trainer.history, self._course.stop)  # its rule sees all that an older checkpoint has
        waited = self._feed.waited
        sums = self._trainer.evaluate(self._held_out(), self._course.several)
        self._watch.waited_inside_compute(self._feed.waited - waited)
        return self._trainer.finish_epoch(self._trainer.reduce_sums(sums))

    def _held_out(self) -> Iterator[tuple[int, Batch]]:
        while not isinstance(item := self._feed.next(), EpochEnd):
            assert isinstance(item, HeldOutBatch), item
            self._line.moves()
            if self._course.evaluates:
                yield item.index, item.batch

    def _agree(self, at_epoch_end: float | None = None) -> int:
        """Whether the group goes on. at_epoch_end: seconds that the epoch took which is over; None: it goes on."""
        verdict = self._agreement.reach(self._steps, self._wish(at_epoch_end), wishes=4)
        self._holds = verdict == HOLD
        return verdict

    def _wish(self, at_epoch_end: float | None) -> int:
        """What the coordinator wants, as the master has heard, and whether a checkpoint is due by its clock."""
        wish = GO_ON
        while self._group.is_master and (message := self._line.asked()) is not None:
            if isinstance(message, StopGroup) and message.job == self._job:
                if message.why == "epoch":
                    self._until_epoch_end = True
                else:
                    wish, self._why = HOLD if message.why == "policy" else LEAVE, message.why
        if wish != GO_ON or at_epoch_end is None or not self._group.is_master:
            return wish
        if self._until_epoch_end:
            self._why = "epoch"
            return HOLD
        until_next = self._clock() - self._saved + at_epoch_end
        return SAVE if self._course.saving.is_due(self._trainer.history, until_next) else GO_ON

    def _leave_inside_epoch(self) -> Left:
        if not self._holds and self._why != "called off":
            self._save()
        return self._last_word("stopped", self._why)

    def _save(self) -> None:
        written = save(self._job, self._trainer, self._course.saving)
        self._saved = self._clock()
        if written is not None:
            self._line.tell(written)

    def _end_beside(self, later: Callable[[Callable[[], CheckpointWritten], Left], None], reason: str) -> None:
        """Let the job's last checkpoint be written while the next one trains: nothing changes its tensors any more."""
        begin, snapshot = time.perf_counter(), self._trainer.snapshot()
        assert snapshot is not None, "who is alone is the master"
        word = self._last_word("done", reason)
        later(partial(write, self._job, snapshot, self._course.saving, time.perf_counter() - begin), word)

    def _report_epoch(self, metrics: dict[str, float], seconds: float) -> None:
        """The master tells what all members did."""
        spent = self._group.gather_trees(list(self._watch.read()))
        if not self._group.is_master:
            return
        data, peers, computed = zip(*spent)
        rate = self._rate()
        self._training_seconds, self._training_steps = 0.0, 0
        learning_rate = float(self._trainer.optimizer.param_groups[0]["lr"]) * self._trainer.rate_factor
        self._line.tell(
            EpochEnded(
                self._job,
                self._trainer.epoch,
                self._trainer.steps,
                seconds,
                rate,
                metrics,
                learning_rate,
                data,
                peers,
                computed,
                self._agreement.longest_silence(),
            )
        )

    def _leave_out_steps_over_hosts(self) -> None:
        """Let no rate tell of steps while devices met, once they have."""
        meets = self._trainer.is_connecting
        if self._was_meeting and not meets:
            self._training_seconds, self._training_steps = 0.0, 0
        self._was_meeting = meets

    def _tell_first(self, spent: float) -> None:
        first = self._first
        if self._group.is_master and not self._trainer.is_connecting and first.took(spent):
            self._line.tell(
                StepsTimed(self._job, self._rate_of(first.steps, first.seconds), first.steps, first.seconds)
            )

    def _tell_progress(self) -> None:
        now = self._clock()
        if self._group.is_master and now - self._last_progress >= self._line.seconds_between_words:
            self._last_progress = now
            place = (self._trainer.epoch, self._trainer.step_in_epoch, self._plan.steps_per_epoch)
            self._line.tell(AtStep(self._job, *place, self._rate()))

    def _rate(self) -> float:
        """Samples/s of the epoch's steps so far; 0 before the first."""
        return self._rate_of(self._training_steps, self._training_seconds)

    def _rate_of(self, steps: int, seconds: float) -> float:
        samples = steps * self._trainer.virtual_workers * self._trainer.batch_size
        return samples / seconds * self._course.time_scale if seconds > 0 else 0.0

    def _last_word(self, why: Literal["done", "stopped"], reason: str) -> Left:
        data, peers, computed = self._watch.read()
        return Left(
            self._job,
            -1,
            why,
            reason,
            self._trainer.epoch,
            self._trainer.step_in_epoch,
            waited_data=data,
            waited_peers=peers,
            computed=computed,
            held=why == "stopped" and self._holds,
        )


def save(job: str, trainer: Trainer, saving: Saving) -> CheckpointWritten | None:
    """Write a checkpoint; all members take part, the master writes and tells of it."""
    begin = time.perf_counter()
    snapshot = trainer.snapshot()
    return None if snapshot is None else write(job, snapshot, saving, time.perf_counter() - begin)


def write(job: str, snapshot: checkpoint.Checkpoint, saving: Saving, taken: float) -> CheckpointWritten:
    """Write a job's state, which took so many seconds to gather."""
    begin = time.perf_counter() - taken
    saved = checkpoint.write(saving.folder / checkpoint.file_name(snapshot), snapshot)
    best = best_of(snapshot.history, saving.best)
    if best is not None and (best.epoch, 0) == (snapshot.epoch, snapshot.step):
        keep_best(saving.folder, best.epoch)
    checkpoint.prune(saving.folder, saving.keep)
    seconds, place = time.perf_counter() - begin, (snapshot.epoch, snapshot.step)
    return CheckpointWritten(job, *place, str(saved.path), saved.bytes, seconds, saved.digest, best)


def formed(job: str, seconds: float, rejected: list[checkpoint.CheckpointError]) -> Formed:
    """The master's first word; checkpoints that had to be passed over are named."""
    return Formed(job, seconds, tuple(f"{error}: going on from the one before" for error in rejected))


WARMING = 3
"""Steps that say nothing: devices load their libraries in them, and caches fill."""
LEAST_TIMED, TIMED_SECONDS = 3, 0.3


@dataclass
class FirstSteps:
    """Adds up the first steps of a group, until they tell how fast it trains: once it has done enough of them, or for
    long enough and at least three.

    Args:
        most: steps that are enough (20 in FLEET, MLSys'20, Appendix B.3).
    """

    most: int
    steps: int = 0
    seconds: float = 0.0
    _begun: int = 0

    def took(self, seconds: float) -> bool:
        """A step took so long; whether the first steps are over with it."""
        if self._is_over:
            return False
        self._begun += 1
        if self._begun > WARMING:
            self.steps, self.seconds = self.steps + 1, self.seconds + seconds
        return self._is_over

    @property
    def _is_over(self) -> bool:
        return self.steps >= self.most or (self.steps >= LEAST_TIMED and self.seconds >= TIMED_SECONDS)
