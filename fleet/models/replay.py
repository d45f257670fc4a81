"""The task of a run's job with the samples that the run's preprocessors made, for a job that trains alone."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset as MapStyle
from torch.utils.data import Subset

from fleet.journal import events
from fleet.journal.directory import RunDirectory
from fleet.journal.journal import read_journal
from fleet.models.errors import ModelsError
from fleet.models.provenance import changes_on_disk
from fleet.models.recorded_spec import recorded_job, recorded_spec
from fleet.spec import EnsembleSpec, Job, SpecTask, importable
from fleet.spec.job import data_key
from fleet.spec.subsets import part_of
from fleet.spec.trials import has_folds
from fleet.workers.agreement import BadInput
from fleet.workers.datasets import dataset_specs
from preprocess import Dataset, Part
from preprocess.files.modules import at_home, standing_in
from preprocess.samples.layout import Array, places_in
from preprocess.samples.order import HELD_OUT, TRAIN, EpochOrders, Mask, mask_of
from preprocess.samples.part import MemberOrder
from trainers import file_name, latest_good
from trainers.repeatable.random_state import RandomState
from trainers.state.tree import decode
from trainers.task.batch_plan import BatchChange, BatchSchedule

_CPU = torch.device("cpu")


class ReplayedTask(SpecTask):
    """A job of a run, as `fleet train` takes it: its data sets give the samples that the run trained it on.

    Its modules stay importable for as long as the process lives.

    Args:
        directory: where the run lies.
        job: its name.

    Raises:
        BadInput, SpecError: see `ReplayedJob.read`.
    """

    def __init__(self, directory: str, job: str) -> None:
        self._recorded = recorded = ReplayedJob.read(Path(directory), job)
        self._modules = ExitStack()
        self._modules.enter_context(importable(recorded.folders))
        data = recorded.spec.data[recorded.job.data] if recorded.job.data is not None else None
        self._opened: Dataset | None = None
        self._part = part_of(recorded.job)
        batches = None if recorded.job.batch is None else recorded.batches(self._samples())
        super().__init__(recorded.job, data, batches)
        self.samples = self._samples
        step = recorded.job.virtual_workers * self.batch_size
        self.evaluation_batch_size = self.evaluation_batch_size or step  # as the run's trainers take them

    def dataset(self, train: bool) -> ReplayedSamples | JobSamples | Subset[Any] | None:
        """The samples as preprocessors make them; held-out ones: None where the run has none."""
        opened, part = self._dataset(), self._part
        made = partial(ReplayedSamples, self._recorded.spec.folder, opened, self.order_seed, hasattr(self, "collate"))
        if train:
            blocks, seed = opened.orders.blocks, self.order_seed
            if opened.orders.weights is not None:
                return JobSamples(made(TRAIN), DrawnOrder(opened.orders, seed))
            if part is None and blocks is None:
                return made(TRAIN)
            order = MemberOrder((part or Part()).train(opened.length), opened.length, seed, blocks)
            return JobSamples(made(TRAIN, order.own), order)
        if has_folds(self._recorded.spec, data_key(self._recorded.job)):
            fold = (part or Part()).held_out(opened.length)
            looked_at = made(HELD_OUT, mask_of(fold, opened.length))
            return Subset(looked_at, fold.tolist()) if fold.size else None
        return made(HELD_OUT) if opened.held_out else None

    def _samples(self) -> int:
        """How many it trains on in an epoch."""
        length = self._dataset().length
        return length if self._part is None else self._part.train_count(length)

    def _dataset(self) -> Dataset:
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    def model(self) -> nn.Module:
        """The network; what its code opens by a relative path lies in the spec's folder."""
        with standing_in(self._recorded.spec.folder):
            return super().model()

    def _open(self) -> Dataset:
        key = data_key(self._recorded.job)
        with standing_in(self._recorded.spec.folder):
            opened = Dataset(dataset_specs(self._recorded.spec)[key])
        for kind, samples in self._recorded.skipped(key).items():
            opened.skip_always(kind, samples)
        return opened


class ReplayedSamples(MapStyle[Any]):
    """A map-style data set of a run's samples in one epoch after another.

    Args:
        folder: the spec's, in which relative paths begin.
        data: makes them.
        seed: the samples' order and augmentation are drawn from it.
        packed: whether each sample is packed in bytes, for a task that collates them itself.
        kind: samples to train on, or samples held out.
        own: which of them alone take the place of one that cannot be made; None: all.
    """

    def __init__(
        self, folder: Path, data: Dataset, seed: int, packed: bool, kind: str, own: Mask | None = None
    ) -> None:
        self._folder, self._data, self._kind = folder, data, kind
        self._seed, self._packed, self._own = seed, packed, own
        self._epoch = 0

    def __len__(self) -> int:
        return self._data.length if self._kind == TRAIN else self._data.held_out

    def at_epoch(self, epoch: int) -> None:
        """Give the samples of this epoch from now on."""
        self._epoch = epoch

    def __getitem__(self, index: int) -> Any:
        """One sample, (input, target); what it draws is its own, so the caller's generators stay as they are."""
        before = RandomState.now(_CPU)
        try:
            with standing_in(self._folder):
                inputs, target = self._made(index)
        finally:
            before.set(_CPU)
        return decode(inputs.tobytes()) if self._packed else (_tensor(inputs), _tensor(target)[0])

    def _made(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        layout = self._data.layout
        inputs, target = layout.empty(1)
        place = places_in(inputs)(0)
        self._data.make(self._kind, self._seed, self._epoch, index, place, target, own=self._own)
        return inputs[0], target


class DrawnOrder:
    """The order of a job whose samples are drawn by weights.

    Attributes:
        samples: how many an epoch has.
    """

    def __init__(self, orders: EpochOrders, seed: int) -> None:
        self.samples, self._orders, self._seed = orders.length, orders, seed

    def of_epoch(self, epoch: int) -> Array:
        """Return the samples of an epoch in their order, (samples,)."""
        return self._orders.of(self._seed, epoch)


class JobSamples:
    """The part of a run's samples that is one job's own, or all, in its order of each epoch, which is the run's.

    Args:
        samples: all of them.
        order: which are its own.
    """

    shuffles_itself = True  # the order is not to be shuffled again, see `trainers.job.single_job.shuffles_itself`

    def __init__(self, samples: ReplayedSamples, order: MemberOrder | DrawnOrder) -> None:
        self._samples, self._order = samples, order
        self.at_epoch(0)

    def __len__(self) -> int:
        return self._order.samples

    def at_epoch(self, epoch: int) -> None:
        """Give the samples of this epoch from now on, in its order."""
        self._samples.at_epoch(epoch)
        self._chosen: Subset[Any] = Subset(self._samples, self._order.of_epoch(epoch).tolist())

    def __getitem__(self, index: int) -> Any:
        """The sample at a place of the epoch's order, (input, target)."""
        return self._chosen[index]


def _tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(array)


@dataclass(frozen=True)
class ReplayedJob:
    """What a replay of a job needs to know.

    Attributes:
        directory: the run's.
        spec: the ensemble's, with the jobs that were added to it.
        name: the job's.
        batch_size: samples of a virtual worker in a step: the policy's choice at the start, or the job's own.
        changes: the batch had them, as the journal says.
    """

    directory: RunDirectory
    spec: EnsembleSpec
    name: str
    batch_size: int
    changes: tuple[BatchChange, ...] = ()

    @classmethod
    def read(cls, directory: Path, name: str) -> ReplayedJob:
        """Find the job.

        Raises:
            BadInput: the folder holds no run, or the run has no such job.
            SpecError: what is written there is no spec any more.
        """
        try:
            spec = recorded_spec(directory)
            job = recorded_job(spec, directory, name)
        except ModelsError as error:
            raise BadInput(str(error)) from error
        _check_alone(directory, name)
        return cls(RunDirectory(directory), spec, name, *_batches(directory, job))

    @property
    def job(self) -> Job:
        """The job, with the batch that it began with."""
        return self.spec.job(self.name).model_copy(update={"batch_size": self.batch_size, "batch_range": None})

    def batches(self, samples: int) -> BatchSchedule | None:
        """Which batch each of its epochs had, of so many samples; None: it is a job whose batch does not change."""
        asked = self.job.batch
        if asked is None:
            return None
        schedule = BatchSchedule(self.batch_size, asked.learning_rate, asked.warm_up, samples)
        for change in self.changes:
            schedule = schedule.changed(change)
        return schedule

    @property
    def folders(self) -> tuple[Path, ...]:
        """Where its modules lie."""
        return (self.spec.folder, Path.cwd())

    @property
    def unlike(self) -> list[str]:
        """What of its data and code changed while it trained, or since, a sentence each."""
        found = [
            f"{change.what}: accepted, so that it was trained on that from epoch {change.jobs[self.name] + 1} on"
            for event in read_journal(self.directory.journal)
            if isinstance(event, events.Fingerprints)
            for change in event.accepted
            if self.name in change.jobs
        ]
        with at_home(self.spec.folder):
            now = changes_on_disk(self.directory.journal.absolute(), self.spec)
        return found + [f"{change.what} since the run" for change in now if self.name in change.jobs]

    def skipped(self, data: str) -> dict[str, tuple[int, ...]]:
        """The samples of a data set that could not be read, by their kind; the run takes others in their place."""
        found: dict[str, set[int]] = {TRAIN: set(), HELD_OUT: set()}
        for event in read_journal(self.directory.journal):
            if isinstance(event, events.Skipped) and event.data == data and event.stage == "source":
                found[event.kind].add(event.sample)
        return {kind: tuple(sorted(samples)) for kind, samples in found.items()}


def _batches(directory: Path, job: Job) -> tuple[int, tuple[BatchChange, ...]]:
    """The batch of a virtual worker as a job began, and how it changed, by what the journal says was chosen.

    A job that began an epoch again, as its ranks were lost, has no changes after that.
    """
    size, changes = job.batch_size, list[BatchChange]()
    for event in read_journal(RunDirectory(directory).journal):
        if not isinstance(event, (events.Batch, events.Started)) or event.job != job.name:
            continue
        since = event.epoch or 0
        changes = [change for change in changes if change.epoch <= since]
        if isinstance(event, events.Batch):
            chosen = event.batch // job.virtual_workers
            if job.batch is None:
                size = chosen
            else:
                change = BatchChange(since, chosen, event.parts or 1)
                changes = [*(each for each in changes if each.epoch < change.epoch), change]
    return size, tuple(changes)


def newest_checkpoint(recorded: ReplayedJob) -> tuple[Path, int]:
    """The run's newest whole checkpoint of the job, and the steps that the job had done then.

    Raises:
        BadInput: there is none.
    """
    folder = recorded.directory.checkpoints(recorded.name)
    found, _ = latest_good(folder)
    if found is None:
        raise BadInput(f"{folder} holds no checkpoint that is whole: let the run train job {recorded.name} first")
    return folder / file_name(found), found.steps


def _check_alone(directory: Path, name: str) -> None:
    """BadInput if the job went on from another one's weights, so that it cannot be trained alone."""
    for event in read_journal(RunDirectory(directory).journal):
        if isinstance(event, events.Decided) and event.job == name and event.copy is not None:
            raise BadInput(
                f"{name} went on from trial {event.copy.donor} after {event.start} epochs, as its population wanted, "
                "so it cannot be trained alone; the journal's events `search` tell its lineage, and the same spec in "
                "another directory trains all of it again"
            )
