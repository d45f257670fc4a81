"""One group's time with one job, from inside one member: epochs until the job is done or its devices are wanted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fleet.coordination.protocol import (
    CheckpointWritten,
    EpochEnded,
    Formed,
    Left,
    Message,
    Progress,
    StartGroup,
    StopGroup,
)
from fleet.run.ranks.feed import EpochEnd, Feed, HeldOutBatch, StepBatches
from trainers import Batch, Group, Stop, Trainer, checkpoint, converged

GO_ON, LEAVE, HOLD = range(3)  # HOLD: leave, and keep the job in memory
DECISION_SECONDS = 0.1  # about how often a group agrees on whether to go on
MOST_STEPS_BETWEEN_DECISIONS = 1000
WORDS_A_SECOND = 500  # of progress that rank 0 hears at most, all ranks together


@dataclass(frozen=True)
class Saving:
    """Where and how often a job is checkpointed."""

    folder: Path
    every: int  # epochs
    keep: int


class _Stopwatch:
    """What this member did since the last report: seconds waited for data, for peers, and computed."""

    def __init__(self, trainer: Trainer, feed: Feed) -> None:
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
        start: the order that formed the group.
        group, trainer, feed: this member's.
        stop: when the job is done.
        saving: where and how often to checkpoint.
        tell: sends a message to the coordinator.
        asked: the next message for this rank, or None; masters look for a StopGroup there.
        epoch_samples: training samples of an epoch.
        evaluate: measure the held-out samples; a rehearsal only reads past them.
        moves: called for each step: this member is not stuck.
        ranks: number of ranks of the run.
    """

    def __init__(
        self, start: StartGroup, group: Group, trainer: Trainer, feed: Feed, stop: Stop, saving: Saving,
        tell: Callable[[Message], None], asked: Callable[[], Message | None], epoch_samples: int,
        evaluate: bool, moves: Callable[[], None], ranks: int,
    ) -> None:  # fmt: skip
        self._job, self._group, self._trainer, self._feed = start.job, group, trainer, feed
        self._stop, self._saving, self._tell, self._asked = stop, saving, tell, asked
        self._plan = trainer.plan(epoch_samples)
        self._evaluates, self._moves = evaluate, moves
        self._between_words = max(1.0, ranks / WORDS_A_SECOND)  # seconds
        self._watch = _Stopwatch(trainer, feed)
        self._why = ""  # of a wish to leave
        self._holds = False
        self._decided = self._next_decision = 0  # in steps since the group was formed
        self._steps = 0
        self._training_seconds = 0.0
        self._training_steps = 0
        self._last_progress = time.monotonic()
        self._heard = time.perf_counter()  # when the group last agreed on whether to go on
        self._deaf = 0.0  # longest time between two agreements of this epoch, seconds

    def run(self) -> Left:
        """Epoch after epoch; returns this member's last word."""
        while True:
            begin = time.perf_counter()
            if self._train_epoch() != GO_ON:
                return self._leave_inside_epoch()
            metrics = self._evaluate()
            reason = converged(self._trainer.history, self._stop)
            self._report_epoch(metrics, time.perf_counter() - begin)
            leaving = self._agree() != GO_ON
            if reason or (leaving and not self._holds) or self._trainer.epoch % self._saving.every == 0:
                self._save()
            if reason or leaving:
                return self._last_word("done" if reason else "stopped", reason or self._why)

    def _train_epoch(self) -> int:
        """The epoch's steps, from where the job stands; not GO_ON if the devices are wanted before its end."""
        while self._trainer.step_in_epoch < self._plan.steps_per_epoch:
            if self._steps >= self._next_decision and (verdict := self._agree()) != GO_ON:
                return verdict
            self._moves()
            item = self._feed.next()
            assert isinstance(item, StepBatches) and item.step == self._trainer.step_in_epoch, item
            begin = time.perf_counter()
            self._trainer.step(item.batches)
            self._training_seconds += time.perf_counter() - begin
            self._training_steps += 1
            self._steps += 1
            self._tell_progress()
        return GO_ON

    def _evaluate(self) -> dict[str, float]:
        """The held-out part of the epoch; returns the epoch's metrics, the same on every member."""
        waited = self._feed.waited
        sums = self._trainer.evaluate(self._held_out())
        self._watch.waited_inside_compute(self._feed.waited - waited)
        return self._trainer.finish_epoch(self._trainer.reduce_sums(sums))

    def _held_out(self) -> Iterator[tuple[int, Batch]]:
        while not isinstance(item := self._feed.next(), EpochEnd):
            assert isinstance(item, HeldOutBatch), item
            self._moves()
            if self._evaluates:
                yield item.index, item.batch

    def _agree(self) -> int:
        """Whether the group goes on: the master's word, which also says at which step it will speak again."""
        verdict = GO_ON
        if self._group.is_master:
            while (message := self._asked()) is not None:
                if isinstance(message, StopGroup) and message.job == self._job:
                    verdict, self._why = HOLD if message.why == "policy" else LEAVE, message.why
            verdict += 3 * (self._steps + self._steps_until_decision())
        self._next_decision, verdict = divmod(self._group.agree(verdict), 3)
        self._holds = verdict == HOLD
        now = time.perf_counter()
        self._deaf, self._heard, self._decided = max(self._deaf, now - self._heard), now, self._steps
        return verdict

    def _steps_until_decision(self) -> int:
        """At the pace since the last decision, waits and all; at most twice as many as then.

        Samples that lay ready tell nothing of how long those to come will take.
        """
        done = self._steps - self._decided
        if done == 0:
            return 1
        pace = (time.perf_counter() - self._heard) / done
        return max(1, min(MOST_STEPS_BETWEEN_DECISIONS, 2 * done, int(DECISION_SECONDS / max(pace, 1e-9))))

    def _leave_inside_epoch(self) -> Left:
        if not self._holds:
            self._save()
        return self._last_word("stopped", self._why)

    def _save(self) -> None:
        written = save(self._job, self._trainer, self._saving)
        if written is not None:
            self._tell(written)

    def _report_epoch(self, metrics: dict[str, float], seconds: float) -> None:
        """The master tells what all members did."""
        spent = self._group.gather_trees(list(self._watch.read()))
        if not self._group.is_master:
            return
        data, peers, computed = zip(*spent)
        samples = self._training_steps * self._trainer.virtual_workers * self._trainer.batch_size
        rate = samples / self._training_seconds if self._training_seconds > 0 else 0.0
        self._training_seconds, self._training_steps = 0.0, 0
        deaf, self._deaf = max(self._deaf, time.perf_counter() - self._heard), 0.0
        learning_rate = float(self._trainer.optimizer.param_groups[0]["lr"])
        self._tell(
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
                deaf,
            )
        )

    def _tell_progress(self) -> None:
        now = time.monotonic()
        if self._group.is_master and now - self._last_progress >= self._between_words and self._training_seconds > 0:
            self._last_progress = now
            rate = (
                self._training_steps * self._trainer.virtual_workers * self._trainer.batch_size / self._training_seconds
            )
            place = (self._trainer.epoch, self._trainer.step_in_epoch, self._plan.steps_per_epoch)
            self._tell(Progress(self._job, *place, rate))

    def _last_word(self, why: str, reason: str) -> Left:
        data, peers, computed = self._watch.read()
        return Left(
            self._job, -1, why, reason, self._trainer.epoch, self._trainer.step_in_epoch,  # type: ignore[arg-type]
            waited_data=data, waited_peers=peers, computed=computed, held=why == "stopped" and self._holds,
        )  # fmt: skip


def save(job: str, trainer: Trainer, saving: Saving) -> CheckpointWritten | None:
    """Write a checkpoint; all members take part, the master writes and says so."""
    begin = time.perf_counter()
    snapshot = trainer.snapshot()
    if snapshot is None:
        return None
    saved = checkpoint.write(saving.folder / checkpoint.file_name(snapshot), snapshot)
    checkpoint.prune(saving.folder, saving.keep)
    seconds = time.perf_counter() - begin
    return CheckpointWritten(job, snapshot.epoch, snapshot.step, str(saved.path), saved.bytes, seconds, saved.digest)


def formed(job: str, seconds: float, rejected: list[checkpoint.CheckpointError]) -> Formed:
    """The master's first word; checkpoints that had to be passed over are named."""
    return Formed(job, seconds, tuple(f"{error}: going on from the one before" for error in rejected))
