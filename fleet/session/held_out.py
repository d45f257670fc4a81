"""The held-out samples that several networks share, made in one pass without ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fleet.models.errors import HarvestError
from fleet.spec import EnsembleSpec, Job
from fleet.spec.job import data_key
from fleet.spec.problem import nearest
from fleet.spec.subsets import part_of
from fleet.spec.trials import has_folds
from fleet.workers.datasets import dataset_specs
from preprocess import Dataset
from preprocess.files.modules import at_home
from preprocess.samples.layout import places_in
from preprocess.samples.order import HELD_OUT, Mask, mask_of
from preprocess.samples.part import Part
from preprocess.sources.source import described

_MOST_NAMES = 4


@dataclass(frozen=True)
class HeldOut:
    """Held-out samples of a data set.

    Attributes:
        data: where they are from.
        seed: what its transforms draw from.
        samples: their numbers, ascending.
        labelled: whether their targets are known.
        own: which samples alone take the place of one that cannot be made; None: all.
    """

    data: Dataset
    seed: int
    samples: Sequence[int]
    labelled: bool = True
    own: Mask | None = None

    def batches(self, size: int, each: Callable[[], object] = lambda: None) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Make each sample once, and yield (inputs, targets or None) of so many samples, of fewer at the end.

        Args:
            each: is called before each sample; what it raises passes.

        Raises:
            SampleError, CorruptLimitError: a sample cannot be made.
        """
        for number in range(self.count_batches(size)):
            yield self.batch(number, size, each)

    @property
    def names(self) -> list[str]:
        """What the samples are called, such as the paths of their files; empty if their source has no words."""
        source = self.data.preparation(HELD_OUT).source
        return [described(source, sample) for sample in self.samples] if described(source, self.samples[0]) else []

    def count_batches(self, size: int) -> int:
        """How many batches of so many samples there are, with a smaller one at the end."""
        return -(-len(self.samples) // size)

    def batch(self, number: int, size: int, each: Callable[[], object] = lambda: None) -> tuple[Tensor, Tensor | None]:
        """Make one of the batches, from 0: it is the same whoever makes it; see `batches`."""
        numbers = self.samples[number * size : (number + 1) * size]
        inputs, targets = self.data.layout.empty(len(numbers))
        place = places_in(inputs)
        for row, sample in enumerate(numbers):
            each()
            self.data.make(HELD_OUT, self.seed, 0, sample, place(row), targets[row : row + 1], own=self.own)
        return torch.from_numpy(inputs), torch.from_numpy(targets) if self.labelled else None


def held_out_of(
    spec: EnsembleSpec, jobs: Sequence[Job], name: str | None = None, opened: Mapping[str, Dataset] | None = None
) -> HeldOut:
    """Open the held-out samples that all these jobs are evaluated on.

    Args:
        name: this data set of the spec is taken instead of the jobs' own.
        opened: data sets that are open already, by data key.

    Raises:
        HarvestError: they are evaluated on different samples or on none, or their own code makes batches.
        SourceError, TransformError: the data cannot be read.
    """
    if name is not None:
        jobs = _with_data(spec, jobs, name)
    check_shared({job.name: data_key(job) for job in jobs}, "data set", "--data NAME takes one of the spec for all")
    first = jobs[0]
    key = data_key(first)
    with at_home(spec.folder):
        if opened is not None and key in opened:
            data = opened[key]
        else:
            data = Dataset(dataset_specs(spec.with_jobs(tuple(jobs)))[key])
    if data.layout.is_ragged:
        raise HarvestError(
            f"the batches of data set {data.name} are made by `collate`, so nothing predicts on them here"
        )
    if not data.held_out:
        raise HarvestError(
            f"data set {data.name} has no held-out samples; give it `held_out`, or choose another --data"
        )
    if data.preparation(HELD_OUT).pipeline.split()[1].transforms:
        mend = "the held-out transforms draw by it: name --members that share it"
        check_shared({job.name: job.order_seed for job in jobs}, "seed of the order", mend)
    if not has_folds(spec.with_jobs(tuple(jobs)), key):
        return HeldOut(data, first.order_seed, range(data.held_out))
    own = {job.name: (part_of(job) or Part()).held_out(data.length).tolist() for job in jobs}
    mend = "name --members that hold out the same one"
    check_shared({job: f"fold of {len(rows)} samples {rows[:3]}" for job, rows in own.items()}, "fold", mend)
    fold = own[first.name]
    return HeldOut(data, first.order_seed, fold, own=mask_of(np.array(fold, np.int64), data.held_out))


def _with_data(spec: EnsembleSpec, jobs: Sequence[Job], name: str) -> list[Job]:
    """The jobs with another data set of the spec, where it is not theirs."""
    if name not in spec.data:
        meant = nearest(name, spec.data)
        known = f"did you mean {meant}?" if meant else f"it has {', '.join(spec.data) or 'none'}"
        raise HarvestError(f"--data {name}: the run's spec has no such data set; {known}")
    own = [job.name for job in jobs if job.data is None]
    if own:
        text = f"--data {name}: {', '.join(own[:_MOST_NAMES])} read the data sets of their task classes"
        raise HarvestError(f"{text}; leave --data away, or name other --members")
    changed = {"data": name, "subset": None, "fold": None, "folds": None, "bag": None}
    return [job if job.data == name else job.model_copy(update=changed) for job in jobs]


def check_shared(values: Mapping[str, object], what: str, mend: str) -> None:
    """Raise HarvestError unless all jobs have the same value."""
    by_value: dict[object, list[str]] = {}
    for job, value in values.items():
        by_value.setdefault(value, []).append(job)
    if len(by_value) > 1:
        told = "; ".join(
            f"{value}: {', '.join(jobs[:_MOST_NAMES])}{' ...' if len(jobs) > _MOST_NAMES else ''}"
            for value, jobs in list(by_value.items())[:_MOST_NAMES]
        )
        raise HarvestError(
            f"the networks do not share one {what} ({told}), so nothing can be told of them together; {mend}"
        )
