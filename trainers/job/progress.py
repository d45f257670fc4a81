"""How far a job has come, and what a step is there: its batch, its options, its learning rate."""

from __future__ import annotations

from collections.abc import Sequence

from trainers.convergence.history import History
from trainers.job.plan import BatchPlan
from trainers.state.checkpoint import Checkpoint
from trainers.step.update import Update
from trainers.task import task as tasks
from trainers.task.batch_schedule import BatchSchedule, as_lists, from_lists
from trainers.task.step_options import StepOptions
from trainers.task.task import Task


class Progress:
    """The place of a job between two steps.

    epoch: finished epochs; step_in_epoch: steps done since; steps: steps done since the job began.
    history: the metrics of the finished epochs, as far as they are kept.
    batches: which batch each epoch has, where that changes; else None.
    """

    def __init__(self, task: Task, virtual_workers: int) -> None:
        self.task, self.name, self.virtual_workers = task, tasks.name_of(task), virtual_workers
        self.seed, self.batches = tasks.seed_of(task), tasks.batch_schedule_of(task)
        self._options, self._by_epoch = StepOptions.of(task), tasks.steps_schedule_by_epoch(task)
        self.epoch = self.step_in_epoch = self.steps = 0
        self.history = History()

    @property
    def options(self) -> StepOptions:
        """What the task asks of a step of this epoch."""
        return self._options if self.batches is None else self._options.cut(self.batches.at(self.epoch).parts)

    @property
    def batch_size(self) -> int:
        """Samples of one virtual worker in a step of this epoch."""
        return tasks.batch_size_of(self.task) if self.batches is None else self.batches.at(self.epoch).size

    @property
    def rate_factor(self) -> float:
        """By what the learning rate of the next step is multiplied."""
        return 1.0 if self.batches is None else self.batches.factor(*self._here)

    @property
    def place(self) -> str:
        """The next step, for errors."""
        return f"step {self.step_in_epoch} of epoch {self.epoch}"

    @property
    def _here(self) -> tuple[int, int, int]:
        return self.epoch, self.step_in_epoch, self.virtual_workers

    def plan(self, samples: int) -> BatchPlan:
        """Return which positions of an epoch like this one, of `samples` samples, each virtual worker takes a step."""
        return BatchPlan(samples, self.virtual_workers, self.batch_size, tasks.drops_last(self.task))

    def follow(self, batches: BatchSchedule | None) -> None:
        """Go on with these batches from the next epoch on. ValueError if they differ in what was trained already."""
        if batches is not None:
            past = () if self.batches is None else self.batches.changes
            self.batches = batches.going_on(past, self.epoch, self.step_in_epoch)

    def let(self, update: Update) -> None:
        """Let an optimizer update the parameters with the gradients of the next step."""
        turns = 1 if self.batches is None else self.batches.turns(*self._here)
        update.step(self.rate_factor, 0 if self._by_epoch else turns)

    def count_step(self) -> None:
        """A step is done."""
        self.step_in_epoch += 1
        self.steps += 1

    def begin_epoch(self, updates: Sequence[Update]) -> None:
        """Go on to the next epoch; schedules that count epochs are stepped."""
        for update in updates if self._by_epoch else ():
            update.step_schedule()
        self.epoch += 1
        self.step_in_epoch = 0

    def batch_changes(self) -> list[list[int]] | None:
        """Return the changes of the batch as a checkpoint has them."""
        return as_lists(self.batches.changes) if self.batches and self.batches.changes else None

    def come_to(self, saved: Checkpoint) -> None:
        """Stand where a checkpoint says. ValueError if its batches were others than are known."""
        self.epoch, self.step_in_epoch, self.steps = saved.epoch, saved.step, saved.steps
        self.history = saved.history
        if self.batches is not None:
            self.batches = self.batches.going_on(from_lists(saved.batches or ()), self.epoch, self.step_in_epoch)
