"""One job alone: trained by a group on the task's own data set, by a plain loop and without preprocessors.

Each virtual worker gets what torch's DataLoader with a shuffling DistributedSampler would give its process; samples are
drawn under the worker's own random state, as such a loader without worker processes does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from trainers.job.trainer import Trainer
from trainers.messages.group import Group
from trainers.repeatable.random_state import seed_everything, seeded
from trainers.task.batch_plan import BatchPlan
from trainers.task.loss import UnfitTask
from trainers.task.task import Batch, Task, batch_size_of, collate_of, evaluation_batch_of, name_of, order_seed_of

_SECONDS_BETWEEN_NEWS = 1.0


@dataclass(frozen=True)
class StepsDone:
    """Where a job stands, about once a second.

    steps: done since the job began. epoch: finished ones; step: steps done since, of `steps_per_epoch`.
    loss: virtual worker 0's at the last step. rate: samples a second of all workers.
    """

    steps: int
    epoch: int
    step: int
    steps_per_epoch: int
    loss: float
    rate: float


@dataclass(frozen=True)
class EpochDone:
    """An epoch is finished. epoch: how many are; steps: done since the job began; metrics: the epoch's."""

    epoch: int
    steps: int
    metrics: Mapping[str, float]


News = StepsDone | EpochDone


class SingleJob:
    """Trains a job up to a step.

    trainer: this member's. data: the task's. tell: takes the news, on the master alone. is_asked_to_stop: whether this
    process got a signal; any member's ends the training of all at the same step boundary.
    after_step: called on every member after every step.
    """

    def __init__(
        self,
        trainer: Trainer,
        data: TaskDatasets,
        tell: Callable[[News], None],
        is_asked_to_stop: Callable[[], bool],
        after_step: Callable[[], None] = lambda: None,
    ) -> None:
        self._trainer, self._data, self._group = trainer, data, trainer.group
        self._tell, self._is_asked_to_stop, self._after_step = tell, is_asked_to_stop, after_step
        self._order: tuple[int, torch.Tensor] | None = None
        self._pace = Pace()
        self._agreement = StopAgreement(trainer.group, trainer.steps)

    def run(self, until: int) -> bool:
        """Train until the job has done `until` steps; return False if a signal came before."""
        trainer = self._trainer
        while trainer.steps < until:
            if self._agreement.is_due(trainer.steps) and self._is_to_stop():
                return False
            self._step()
            if trainer.step_in_epoch == self._plan.steps_per_epoch:
                self._end_epoch()
        return True

    @property
    def _plan(self) -> BatchPlan:
        return self._trainer.plan(len(self._data.train))

    def _step(self) -> None:
        trainer, plan = self._trainer, self._plan
        begin = time.perf_counter()
        order = self._epoch_order()
        chosen = [order[plan.positions(w.rank, trainer.step_in_epoch)].tolist() for w in trainer.workers]
        losses = trainer.step([partial(self._data.batch, indices) for indices in chosen])
        self._after_step()
        self._pace.count(time.perf_counter() - begin)
        if self._group.is_master and self._pace.is_time_for_news():
            rate = trainer.virtual_workers * trainer.batch_size / self._pace.seconds_a_step
            place = (trainer.steps, trainer.epoch, trainer.step_in_epoch, plan.steps_per_epoch)
            self._tell(StepsDone(*place, losses.mean_of_first, rate))

    def _epoch_order(self) -> torch.Tensor:
        if self._order is None or self._order[0] != self._trainer.epoch:
            self._order = (self._trainer.epoch, self._data.order(self._trainer.epoch))
        return self._order[1]

    def _end_epoch(self) -> None:
        trainer = self._trainer
        metrics: dict[str, float] = {}
        if self._data.held_out is not None:
            batches = self._data.held_out_batches(self._group.index, self._group.size)
            sums = trainer.evaluate(batches, self._data.has_several_batches)
            metrics = trainer.reduce_sums(sums)
        metrics = trainer.finish_epoch(metrics)
        if self._group.is_master:
            self._tell(EpochDone(trainer.epoch, trainer.steps, metrics))

    def _is_to_stop(self) -> bool:
        """Whether any member was asked to stop."""
        wishes = self._group.gather_bytes(b"\1" if self._is_asked_to_stop() else b"\0")
        return bool(self._agreement.reach(self._trainer.steps, int(b"\1" in wishes)))


class Pace:
    """How long steps take, and when news are due."""

    def __init__(self) -> None:
        self._steps, self._seconds = 0, 0.0
        self._last_news = time.monotonic()

    def count(self, seconds: float) -> None:
        """Take note of a step."""
        self._steps += 1
        self._seconds += seconds

    @property
    def seconds_a_step(self) -> float:
        """The mean of the steps since the last news; of none, one second."""
        return max(self._seconds / self._steps, 1e-9) if self._steps else 1.0

    def is_time_for_news(self) -> bool:
        """Whether a second has gone by since it was so last."""
        now = time.monotonic()
        due = now - self._last_news >= _SECONDS_BETWEEN_NEWS
        if due:
            self._last_news = now
        return due


class TaskDatasets:
    """The data sets of a task.

    train: map-style data set; held_out: another, or None.
    """

    def __init__(self, task: Task) -> None:
        """Build each under the order's seed, so what they draw is the same in every process and for both.

        UnfitTask if they cannot be read by index, or if there is nothing to train on.
        """
        self._seed = order_seed_of(task)
        self.train, self.held_out = (self.constructed(task, train) for train in (True, False))
        if hasattr(task, "sample_weights") and len(self.train):
            with seeded(self._seed):
                weights = task.sample_weights(self.train)
            self.train = DrawnSamples(self.train, weights, self._seed, name_of(task))
        self._evaluated, self._collate = evaluation_batch_of(task, batch_size_of(task)), collate_of(task)
        if not len(self.train):
            raise UnfitTask(f"task {name_of(task)}: dataset(True) has no samples; give it at least one")

    @staticmethod
    def constructed(task: Task, train: bool) -> Any:
        """Build one part, as a script does after `torch.manual_seed`, and leave the generators as they were."""
        with seeded(order_seed_of(task)):
            return _by_index(task, train)

    def order(self, epoch: int) -> torch.Tensor:
        """Return the epoch's order of the training samples, int64, as DistributedSampler has it before it pads.

        These are the samples of that epoch from now on.
        """
        at_epoch(self.train, epoch)
        if shuffles_itself(self.train):
            return torch.arange(len(self.train))
        return torch.randperm(len(self.train), generator=torch.Generator().manual_seed(self._seed + epoch))

    def batch(self, indices: Sequence[int]) -> Batch:
        """Return these training samples as one batch."""
        return self._collate(_samples(self.train, indices))

    @property
    def has_several_batches(self) -> bool:
        """Whether the held-out samples are more than one batch."""
        return self.held_out is not None and len(self.held_out) > self._evaluated

    def held_out_batches(self, first: int = 0, every: int = 1) -> Iterator[tuple[int, Batch]]:
        """Yield (index, batch) of every `every`-th held-out batch from `first` on, each under the order's seed."""
        samples = 0 if self.held_out is None else len(self.held_out)
        starts = range(0, samples, self._evaluated)
        for index in range(first, len(starts), every):
            seed_everything(self._seed)
            chosen = range(starts[index], min(starts[index] + self._evaluated, samples))
            yield index, self._collate(_samples(self.held_out, chosen))


def at_epoch(dataset: Any, epoch: int) -> None:
    """Let a data set give the samples of an epoch from now on, if they are others in each."""
    if callable(getattr(dataset, "at_epoch", None)):
        dataset.at_epoch(epoch)


def shuffles_itself(dataset: Any) -> bool:
    """Whether a data set gives the samples of an epoch in the order in which they are to be taken."""
    return getattr(dataset, "shuffles_itself", False) is True


def _by_index(task: Task, train: bool) -> Any:
    """Return one of a task's data sets. UnfitTask if its samples cannot be read by index."""
    found = task.dataset(train)
    one_by_one = isinstance(found, IterableDataset) or not (hasattr(found, "__len__") and hasattr(found, "__getitem__"))
    if (found is None and not train) or not one_by_one:
        return found
    kind = "None" if found is None else f"a {type(found).__name__}"
    raise UnfitTask(
        f"task {name_of(task)}: dataset({train}) gives {kind}, and must give a map-style data set, with __len__ and "
        "__getitem__: a Dataset of torch, or a list of samples"
    )


def sample_of(dataset: Any, index: int) -> Any:
    """Return a sample as DataLoader gets it."""
    return _samples(dataset, [index])[0]


def _samples(dataset: Any, indices: Sequence[int]) -> list[Any]:
    """Return samples as DataLoader gets them."""
    if callable(getattr(dataset, "__getitems__", None)):
        return list(dataset.__getitems__(list(indices)))
    return [dataset[index] for index in indices]


class DrawnSamples:
    """A data set that gives, in each epoch, as many samples as another has, drawn from it with replacement.

    The draw of an epoch is that of `WeightedRandomSampler(weights, len(dataset))` with a generator that is seeded with
    seed + epoch; DistributedSampler then splits it over ranks as it splits any order.
    """

    shuffles_itself = True  # see `trainers.job.single_job.shuffles_itself`

    def __init__(self, dataset: Any, weights: Any, seed: int, job: str) -> None:
        """weights: one for each sample. UnfitTask if there are others."""
        self._dataset, self._seed = dataset, seed
        self._weights = _checked(weights, len(dataset), job)
        self.at_epoch(0)

    def __len__(self) -> int:
        return len(self._dataset)

    def at_epoch(self, epoch: int) -> None:
        """Give the samples of this epoch from now on."""
        if callable(getattr(self._dataset, "at_epoch", None)):
            self._dataset.at_epoch(epoch)
        generator = torch.Generator().manual_seed(self._seed + epoch)
        self._order: list[int] = torch.multinomial(self._weights, len(self), True, generator=generator).tolist()

    def __getitem__(self, place: int) -> Any:
        return self._dataset[self._order[place]]

    def __getitems__(self, places: Sequence[int]) -> list[Any]:
        indices = [self._order[place] for place in places]
        if callable(getattr(self._dataset, "__getitems__", None)):
            return list(self._dataset.__getitems__(indices))
        return [self._dataset[index] for index in indices]


def _checked(weights: Any, length: int, job: str) -> Tensor:
    try:
        found = torch.as_tensor(weights, dtype=torch.double).cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise UnfitTask(f"job {job}: sample_weights(dataset) gives a {type(weights).__name__}; {_MEND}") from error
    if found.shape != (length,):
        told = f"weights of shape {tuple(found.shape)} for {length} training samples"
        raise UnfitTask(f"job {job}: sample_weights(dataset) gives {told}; {_MEND}")
    if not bool(found.isfinite().all()) or bool((found < 0).any()) or not float(found.sum()) > 0:
        raise UnfitTask(f"job {job}: some of sample_weights(dataset) are negative or not finite, or all are 0; {_MEND}")
    return found


_MEND = "give a number of at least 0 for each training sample, as WeightedRandomSampler takes them"


_SECONDS_BETWEEN_WORDS = 0.1


_MOST_STEPS_BETWEEN_WORDS = 1000


class StopAgreement:
    """The master's word holds for all members; it also says at which step the master will speak again.

    That is about a tenth of a second later, at the pace since the last word, waits and all; and after at most twice as
    many steps as then, since samples that lay ready tell nothing of how long those to come will take.

    Args:
        group: this member's.
        steps: where it begins; the first word is due there.
        clock: seconds.
    """

    def __init__(self, group: Group, steps: int = 0, clock: Callable[[], float] = time.perf_counter) -> None:
        self._group, self._clock = group, clock
        self._spoken = self._due = steps
        self._heard = clock()
        self._longest = 0.0

    def is_due(self, steps: int) -> bool:
        """Whether the master speaks before the step that follows `steps` others."""
        return steps >= self._due

    def reach(self, steps: int, wish: int, wishes: int = 2) -> int:
        """Agree after so many steps; returns the master's wish. All members take part.

        Args:
            wish: this member's, below `wishes`; only the master's counts.
        """
        word = wish + wishes * (steps + self._steps_ahead(steps))
        self._due, verdict = divmod(self._group.agree(word), wishes)
        now = self._clock()
        self._longest, self._heard, self._spoken = max(self._longest, now - self._heard), now, steps
        return verdict

    def longest_silence(self) -> float:
        """The longest time without a word since this was last asked, seconds."""
        longest, self._longest = max(self._longest, self._clock() - self._heard), 0.0
        return longest

    def _steps_ahead(self, steps: int) -> int:
        done = steps - self._spoken
        if done == 0:
            return 1
        pace = max((self._clock() - self._heard) / done, 1e-9)
        return max(1, min(_MOST_STEPS_BETWEEN_WORDS, 2 * done, int(_SECONDS_BETWEEN_WORDS / pace)))
