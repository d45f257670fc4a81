"""The data sets of a run's jobs: what to open, opened, and the facts about them that every rank learns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from pydantic import TypeAdapter

from fleet.coordination.failures import CannotGoOnError
from fleet.spec import EnsembleSpec, Job, Source
from fleet.spec.job import data_key
from fleet.spec.trials import corner_jobs, has_folds
from fleet.workers.feed import SamplePacker, packing_of
from fleet.workers.runtime import DataFacts, Runtime
from preprocess import Dataset, DatasetSpec, SourceError, SourceSpec
from preprocess.files.modules import import_named
from preprocess.making.costs import is_worth_keeping
from preprocess.samples.errors import DataSpecError, NotArrays, TransformError, UnusableDataError
from preprocess.samples.fingerprint import MEND, Fingerprint
from preprocess.samples.order import HELD_OUT, TRAIN, OrderSpec, global_generators_seeded
from preprocess.sources.map_style import check_map_style, open_items
from preprocess.sources.source import block_bytes, open_source
from trainers.state.tree import encode, outline


def dataset_specs(spec: EnsembleSpec) -> dict[str, DatasetSpec]:
    """The data sets that the spec's jobs use, by data key, as the preprocessors open them."""
    specs: dict[str, DatasetSpec] = {}
    for job in (*(spec.jobs[place] for place in spec.found.readers.values()), *corner_jobs(spec)):
        key = data_key(job)
        if key not in specs:
            found = _of_section(spec, key) if job.data is not None else _of_task(spec, job, key)
            specs[key] = _with_folds(found) if has_folds(spec, key) else found
    return specs


def _with_folds(found: DatasetSpec) -> DatasetSpec:
    """The data set whose training samples are the held-out ones, too."""
    if found.held_out is not None:
        rule = "jobs hold out folds of its training samples, and it has held-out samples, too"
        raise SourceError(found.name, rule, "let dataset(False) give None, or take `folds` away from the jobs")
    return replace(found, held_out=found.train)


def open_datasets(spec: EnsembleSpec) -> dict[str, Dataset]:
    """Open them.

    Raises:
        preprocess.SourceError, preprocess.TransformError: one cannot be used, or several, all of which are told.
    """
    opened: dict[str, Dataset] = {}
    problems: dict[str, DataSpecError] = {}
    for key, specs in dataset_specs(spec).items():
        try:
            opened[key] = _opened(specs, key in spec.data)
        except (SourceError, TransformError) as error:
            problems[key] = error
    if len(problems) == 1:
        raise next(iter(problems.values()))
    if problems:
        raise UnusableDataError(problems)
    return opened


def _opened(specs: DatasetSpec, is_section: bool) -> Dataset:
    try:
        return Dataset(specs)
    except NotArrays as error:
        if not is_section:
            raise
        mend = f"{error.mend}; or add collate: pad to the section, which takes trees of arrays"
        raise SourceError(error.value, error.rule, mend) from error


def facts_of(datasets: Mapping[str, Dataset]) -> dict[str, DataFacts]:
    """The facts of opened data sets."""
    return {key: _facts(data) for key, data in datasets.items()}


def _facts(data: Dataset) -> DataFacts:
    blocks, largest = data.orders.blocks, str(getattr(data.items, "largest", ""))
    sizes = (0, 0) if blocks is None else block_bytes(data.train_source, blocks.blocks)
    kept = is_worth_keeping(data)
    return DataFacts(data.length, data.held_out, data.layout, largest, kept, blocks, *sizes, data.fingerprints)


def _of_section(spec: EnsembleSpec, key: str) -> DatasetSpec:
    data = spec.data[key]
    train, held_out = _source(data.train), _source(data.held_out) if data.held_out else None
    if data.collate is not None:
        train, held_out = (
            _packed(train, held_out, data.sample_bytes, spec.seed),
            held_out and _packed(held_out, train, data.sample_bytes, spec.seed),
        )
    return DatasetSpec(
        key,
        train,
        held_out,
        tuple(transform.step for transform in data.transforms),
        tuple(transform.step for transform in data.held_out_transforms),
        data.on_corrupt,
        data.corrupt_limit,
        data.store if data.order.weights is None else False,
        OrderSpec.from_json(data.order.model_dump()),
        spec.seed,
    )


def _source(section: Source) -> SourceSpec:
    return SourceSpec(section.source, dict(section.arguments), section.subset)


def _packed(part: SourceSpec, other: SourceSpec | None, sample_bytes: int | None, seed: int) -> SourceSpec:
    """The part with its samples packed, for a data section that collates them."""
    named = [source and {"source": source.source, "arguments": dict(source.arguments)} for source in (part, other)]
    arguments = {"part": named[0], "other": named[1], "sample_bytes": sample_bytes, "seed": seed}
    return SourceSpec(f"{PackedData.__module__}:{PackedData.__qualname__}", arguments, part.subset)


def _of_task(spec: EnsembleSpec, job: Job, key: str) -> DatasetSpec:
    assert job.task is not None
    task, arguments = job.task.name, dict(job.task.arguments)
    source = f"{training_data.__module__}:{training_data.__qualname__}"
    train = SourceSpec(source, {"task": task, "arguments": arguments})
    held_out = held_out_data(task, arguments, spec.seed)
    return DatasetSpec(key, train, None if held_out is None else SourceSpec(held_out), seed=spec.seed)


Prints = Mapping[str, Mapping[str, Fingerprint]]
"""By data set and kind of sample."""
PRINTS: TypeAdapter[Prints] = TypeAdapter(Prints)

_KINDS = {TRAIN: "training", HELD_OUT: "held-out", "weights": "order's weighed"}


def prints_of(datasets: Mapping[str, Dataset]) -> dict[str, dict[str, Fingerprint]]:
    """The fingerprints of opened data sets."""
    return {key: data.fingerprints for key, data in datasets.items()}


def unlike_again(spec: EnsembleSpec, datasets: Mapping[str, Dataset]) -> str:
    """What to say of a held-out part that is another one when it is constructed again in this process; "" of none."""
    for key, specs in dataset_specs(spec).items():
        unlike = _unlike_again(specs, datasets[key])
        if unlike:
            return (
                f"data {key}: constructed a second time, the held-out part {unlike}. Training and held-out samples are "
                f"constructed one after the other, so a network would train on held-out ones. {MEND}"
            )
    return ""


def _unlike_again(specs: DatasetSpec, data: Dataset) -> str:
    if specs.held_out is None or specs.held_out == specs.train or not data.preparation(HELD_OUT).has_own_source:
        return ""
    items = data.items
    if isinstance(items, PackedData):  # which has constructed the other part, too, to know its largest sample
        return items.unlike_part(data.items_of(HELD_OUT), specs.seed)
    source: Any = open_source(specs.held_out.source, specs.held_out.arguments, specs.held_out.subset, seed=specs.seed)
    return data.fingerprints[HELD_OUT].unlike(Fingerprint.of(len(source), source.read, specs.seed))


def unlike_prints(prints: Prints, others: Prints, where: str) -> Iterator[str]:
    """What to say of data sets that are others elsewhere, one sentence each.

    Args:
        prints: as rank 0 has them.
        others: as they are elsewhere.
        where: says where, such as "on rank 1".
    """
    more = f"{MEND}, and give every node the same files"
    for key, kinds in prints.items():
        for kind, mine in kinds.items():
            theirs = others.get(key, {}).get(kind)
            told = "" if theirs is None else mine.unlike(theirs, "on rank 0", where)
            if told:
                yield f"data {key}: its {_KINDS[kind]} part {told}. {more}"


def hold_alike(runtime: Runtime, datasets: Mapping[str, Dataset], rank: int) -> None:
    """Raise CannotGoOnError if this rank, which opens data sets later than others, has other samples than rank 0."""
    known = {key: facts.prints for key, facts in runtime.facts.items() if key in datasets}
    for told in unlike_prints(known, prints_of(datasets), f"on rank {rank}"):
        raise CannotGoOnError(told)


def first_unlike(gathered: Sequence[Prints], places: Sequence[str]) -> str:
    """What to say of the first rank whose data are not rank 0's; "" of none."""
    for place, prints in zip(places, gathered):
        for told in unlike_prints(gathered[0], prints, place):
            return told
    return ""


_PACKED_TRIED = 64  # samples that stand for all where the bytes of the largest are declared

Part = Mapping[str, Any]
"""A source of the spec: {"source": module:Name, "arguments": {...}}."""


class PackedData:
    """A map-style data set whose samples are bytes, with target 0.

    The largest one is of `sample_bytes`, or as found by reading all samples of both parts once.

    Args:
        part: what is read.
        other: the other part of the data set, whose samples lie in the same lane; None: there is none.
        sample_bytes: the most bytes that the arrays and texts of a sample take; None: measure.
        seed: see `open_items`.

    Attributes:
        largest: the outline of the largest sample that was looked at.
        ragged: bytes of the largest sample, and of those that were looked at in the mean.

    Raises:
        SourceError: a part is no map-style data set, none of its samples can be packed, or the first of them take more
            than `sample_bytes`.
    """

    def __init__(self, part: Part, other: Part | None = None, sample_bytes: int | None = None, seed: int = 0) -> None:
        self._items = open_items(part["source"], part["arguments"], seed)
        self._other = None if other is None else open_items(other["source"], other["arguments"], seed)
        parts = [(part, self._items)] + ([(other, self._other)] if other is not None else [])
        most = None if sample_bytes is None else _PACKED_TRIED
        looks = [_look(where["source"], items, most) for where, items in parts]
        largest = max((look.largest for look in looks), key=len)
        if sample_bytes is not None and len(largest) > sample_bytes:
            rule = f"sample_bytes is too few: one of the first {_PACKED_TRIED} samples takes {len(largest)}"
            raise SourceError(sample_bytes, rule, "write the bytes of the largest, or leave sample_bytes out")
        self.largest = outline(largest)
        what = "the data's sample_bytes" if sample_bytes else "the largest sample that was found as the data was opened"
        self._packing = SamplePacker(max(len(largest), sample_bytes or 0), what, "raise the data's sample_bytes")
        mean = sum(look.nbytes for look in looks) / sum(look.samples for look in looks)
        self.ragged = self._packing.ragged(mean)

    @property
    def block_starts(self) -> Any:
        """The first sample of each block, as the data set says; None if it says nothing."""
        return getattr(self._items, "block_starts", None)

    def unlike_part(self, again: PackedData, seed: int) -> str:
        """In what the other part differs where that was constructed again as `again`; see `Fingerprint.unlike`."""
        if self._other is None:
            return ""
        parts = (self._other, again._items)
        first, then = (Fingerprint.of(len(items), items.__getitem__, seed) for items in parts)
        return first.unlike(then)

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self._packing.pack(self._items[index], index), 0


@dataclass(frozen=True)
class _Look:
    """How many samples were looked at, their bytes, and the largest one's message."""

    samples: int
    nbytes: int
    largest: bytes


def _look(name: str, items: Any, most: int | None) -> _Look:
    """Look at a part's first `most` samples; those that cannot be read say so when they are made."""
    largest, error, samples, nbytes = b"", None, 0, 0
    for index in range(len(items) if most is None else min(most, len(items))):
        try:
            message = encode(items[index])
        except Exception as cause:  # the user's code may raise anything
            error = error or cause
            continue
        largest = max(largest, message, key=len)
        samples, nbytes = samples + 1, nbytes + len(message)
    if not largest:
        why = "it has none" if error is None else f"the first raised {type(error).__name__}: {error}"
        raise SourceError(name, f"none of its samples can be packed: {why}", "give tensors, arrays, numbers and texts")
    return _Look(samples, nbytes, largest)


_TRIED = 16  # samples that tell how long they are in the mean


class TaskData:
    """The map-style data set of `task.dataset(train)`; packed, with target 0, where the task collates samples itself.

    Args:
        what: how errors name it.
        task: the task.
        data: what its `dataset` gave.

    Attributes:
        ragged: where they are packed, bytes of the largest sample, and of some in the mean.
        drawn_by: the weights by which the task says that training samples are drawn; None: each comes once.
    """

    drawn_by: Any = None

    def __init__(self, what: str, task: Any, data: Any) -> None:
        check_map_style(data, what)
        self._data, self._packing = data, packing_of(task)
        self.ragged = None if self._packing is None else self._packing.ragged(_mean_bytes(self, self._packing))

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        sample = self._data[index]
        return sample if self._packing is None else (self._packing.pack(sample, index), 0)


def training_data(task: str, arguments: Mapping[str, Any]) -> TaskData:
    """Construct the training samples of `module:Name`, a task class that is made with these arguments."""
    found = _constructed(task, arguments, True)
    if found is None:
        raise ValueError(f"{task}.dataset(train=True) gives None")
    return found


def held_out_data(task: str, arguments: Mapping[str, Any], seed: int) -> TaskData | None:
    """Construct the held-out samples, as `open_items` does; None where the task has none.

    Raises:
        SourceError: the task's code raises, or gives what cannot be read by index.
    """
    try:
        with global_generators_seeded(seed):
            return _constructed(task, arguments, False)
    except SourceError:
        raise
    except Exception as cause:  # the user's code may raise anything
        rule = f"its dataset(False) raised {type(cause).__name__}: {cause}"
        raise SourceError(
            task, rule, "mend the task; where nothing is held out, let dataset(False) give None"
        ) from cause


def _constructed(task: str, arguments: Mapping[str, Any], train: bool) -> TaskData | None:
    module, _, name = task.partition(":")
    made = getattr(import_named(module), name)(**arguments)
    found = made.dataset(train)
    if found is None:
        return None
    data = TaskData(f"{task}.dataset(train={train})", made, found)
    data.drawn_by = made.sample_weights(found) if train and hasattr(made, "sample_weights") else None
    return data


def _mean_bytes(data: TaskData, packing: SamplePacker) -> float:
    """The mean of some samples spread over all; those that cannot be made say so when they are due."""
    sizes = []
    for number in range(min(_TRIED, len(data))):
        with suppress(Exception):
            sizes.append(data[number * len(data) // _TRIED if len(data) > _TRIED else number][0].nbytes)
    return fmean(sizes) if sizes else packing.most_bytes
