"""The held-out samples that several networks share, made in one pass without ranks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fleet.models.errors import ModelsError
from fleet.spec import EnsembleSpec, Job
from fleet.spec.job import data_key
from fleet.spec.problem import nearest
from fleet.spec.subsets import part_of
from fleet.spec.trials import has_folds
from fleet.workers.datasets import dataset_specs
from preprocess import Dataset, DatasetSpec, SourceError, SourceSpec
from preprocess.conversion.packing import ConversionError
from preprocess.conversion.splits import find_splits
from preprocess.files.modules import at_home
from preprocess.files.reading import check_is_file
from preprocess.samples.layout import places_in
from preprocess.samples.order import HELD_OUT, Mask, mask_of
from preprocess.samples.part import Part
from preprocess.sources.arrays import open_array
from preprocess.sources.encoded_images import IMAGE_EXTENSIONS, SPLIT_FOLDERS, has_ending
from preprocess.sources.hdf5 import FORMAT, open_file, try_hdf5
from preprocess.sources.map_style import MapStyleSource
from preprocess.sources.source import HDF5, Source, built_in_sources, described, open_source, open_unlabelled

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
        ModelsError: they are evaluated on different samples or on none, or their own code makes batches.
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
        raise ModelsError(
            f"the batches of data set {data.name} are made by `collate`, so nothing predicts on them here"
        )
    if not data.held_out:
        raise ModelsError(f"data set {data.name} has no held-out samples; give it `held_out`, or choose another --data")
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
        raise ModelsError(f"--data {name}: the run's spec has no such data set; {known}")
    own = [job.name for job in jobs if job.data is None]
    if own:
        text = f"--data {name}: {', '.join(own[:_MOST_NAMES])} read the data sets of their task classes"
        raise ModelsError(f"{text}; leave --data away, or name other --members")
    changed = {"data": name, "subset": None, "fold": None, "folds": None, "bag": None}
    return [job if job.data == name else job.model_copy(update=changed) for job in jobs]


def check_shared(values: Mapping[str, object], what: str, mend: str) -> None:
    """Raise ModelsError unless all jobs have the same value."""
    by_value: dict[object, list[str]] = {}
    for job, value in values.items():
        by_value.setdefault(value, []).append(job)
    if len(by_value) > 1:
        told = "; ".join(
            f"{value}: {', '.join(jobs[:_MOST_NAMES])}{' ...' if len(jobs) > _MOST_NAMES else ''}"
            for value, jobs in list(by_value.items())[:_MOST_NAMES]
        )
        raise ModelsError(
            f"the networks do not share one {what} ({told}), so nothing can be told of them together; {mend}"
        )


_PLACES = ("path", "images", "labels")
"""Arguments of sources that say where the run's own samples lie."""


def samples_of(spec: EnsembleSpec, jobs: Sequence[Job], data: str | None) -> HeldOut:
    """Open the samples that networks predict: those of a data set of the spec, or of a file or folder.

    Args:
        data: a data set's name, which comes first; else a path; None: the data set that the jobs share.

    Raises:
        ModelsError: there are none, or they fit no network.
        SourceError, TransformError: they cannot be read.
    """
    if data is None or data in spec.data:
        return held_out_of(spec, jobs, data)
    if not Path(data).exists():
        meant = nearest(data, spec.data)
        known = f"did you mean {meant}?" if meant else f"the spec has {', '.join(spec.data) or 'none'}"
        text = f"--data {data}: the run's spec has no such data set, and {Path.cwd()} no such file or folder"
        raise ModelsError(f"{text}; {known}")
    if not Path(data).is_dir():
        try:
            check_is_file(data)
        except OSError as error:
            raise ModelsError(f"--data {data} {error.strerror}; give a file or folder of samples") from error
    mend = "the file's samples are prepared like those of one data set: name --members that share one"
    check_shared({job.name: data_key(job) for job in jobs}, "data set", mend)
    first = jobs[0]
    if first.data is None:
        text = (
            f"--data {data}: {first.name} reads the data sets of its task class, which alone know how to prepare them"
        )
        raise ModelsError(f"{text}; leave --data away")
    if spec.data[first.data].collate is not None:
        raise ModelsError(f"--data {data}: batches of data set {first.data} are made by `collate`, and not predicted")
    here = Path(data) if spec.folder.absolute() == Path.cwd() else Path(data).absolute()
    with at_home(spec.folder):
        own = dataset_specs(spec.with_jobs(tuple(jobs)))[data_key(first)]
        source, labelled = _source(str(here), own)
        prepared = replace(
            own, name=data, train=source, held_out=source, transforms=own.held_out_transforms, store=False, order=None
        )
        found = Dataset(prepared)
    if found.preparation(HELD_OUT).pipeline.split()[1].transforms:
        mend = "the held-out transforms draw by it: name --members that share it"
        check_shared({job.name: job.order_seed for job in jobs}, "seed of the order", mend)
    return HeldOut(found, first.order_seed, range(found.held_out), labelled)


def _source(path: str, own: DatasetSpec) -> tuple[SourceSpec, bool]:
    """What opens a file's samples, and whether it has labels."""
    like, learnt = own.held_out or own.train, _opened(own.train)
    built_in = isinstance(like.source, str) and ":" not in like.source
    given = {key: value for key, value in like.arguments.items() if key not in _PLACES} if built_in else {}
    given.setdefault("channels", _channels(learnt))
    if _is_unlabelled(path, str(given.get("targets", "targets"))):
        inputs = {"inputs": given["inputs"]} if like.source in ("numpy", "hdf5") and "inputs" in given else {}
        return SourceSpec(open_unlabelled(path, channels=given["channels"], **inputs)), False
    kind, arguments = _recognised(path, given)
    if kind != like.source:
        kind, arguments = _recognised(path, {"channels": given["channels"]})
    takes = inspect.signature(built_in_sources()[kind]).parameters
    classes = like.arguments.get("classes") or _classes(learnt)
    if learnt is None and not classes and kind == "image_folder":
        text = f"--data {path} names its classes, and the run's training samples, which number them, cannot be opened"
        raise ModelsError(f"{text}; put them back, or give labels as numbers, as an .npz file has them")
    if classes and "classes" in takes:
        arguments["classes"] = list(classes)
    return SourceSpec(kind, {key: value for key, value in arguments.items() if key in takes}), True


def _is_unlabelled(path: str, targets: str) -> bool:
    """Whether there are inputs alone."""
    place, name = Path(path), path.lower()
    if place.is_dir():
        entries = [entry for entry in place.iterdir() if not entry.name.startswith(".")]
        folders = any(entry.is_dir() for entry in entries)
        return not folders and any(has_ending(entry.name, IMAGE_EXTENSIONS) for entry in entries)
    if name.endswith(".npz"):
        names = getattr(open_array(path), "files", [])
        return targets not in names and "y_train" not in names
    if name.endswith(HDF5):
        try_hdf5(path)
        with open_file(path) as file:
            return file.attrs.get("format") != FORMAT and targets not in file
    return has_ending(name, IMAGE_EXTENSIONS) or name.endswith((".npy", "ubyte", "ubyte.gz", ".idx", ".idx.gz"))


def _recognised(path: str, given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The built-in source that reads a path, and its arguments; "" where it does not take those that are given."""
    if path.lower().endswith(HDF5):
        return "hdf5", {**given, "path": path, **_split(path)}
    others = {key: value for key, value in given.items() if key != "channels"}
    try:
        split = find_splits(path, None, others, given["channels"])[-1]
    except ConversionError as error:
        if others:
            return "", {}
        raise ModelsError(f"--data {path}: {error}") from error
    return split.source, dict(split.arguments)


def _split(path: str) -> dict[str, str]:
    """The split of a converted file: the held-out one where there is one."""
    with open_file(path) as file:
        if file.attrs.get("format") != FORMAT:
            return {}
        return {"split": HELD_OUT if HELD_OUT in file else next(name for name in SPLIT_FOLDERS if name in file)}


def _opened(train: SourceSpec) -> Source | None:
    """The samples that the networks learnt from; None where they are not there any more."""
    try:
        return open_source(train.source, train.arguments)
    except SourceError:
        return None


def _channels(learnt: Source | None) -> int:
    """The channels to which images are decoded: those of the images that the networks learnt from, else 3."""
    if learnt is None or getattr(learnt, "encoded", False):
        return int(getattr(learnt, "channels", 3))
    shape = learnt.layout.input_shape
    return 1 if len(shape) == 3 and shape[-1] == 1 else 3


def _classes(learnt: Source | None) -> list[str] | None:
    """The names of the classes by their numbers, as the networks learnt them; None where samples give numbers."""
    found = getattr(learnt.items if isinstance(learnt, MapStyleSource) else learnt, "classes", None)
    is_list = isinstance(found, (list, tuple)) and all(isinstance(name, str) for name in found)
    return list(found) if is_list and found else None
