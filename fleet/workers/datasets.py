"""The data sets of a run's jobs: what to open, opened, and the facts about them that every rank learns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fleet.spec import EnsembleSpec, Job, Source
from fleet.spec.job import data_key
from fleet.spec.trials import corner_jobs, has_folds
from fleet.workers.packed_data import PackedData
from fleet.workers.runtime import DataFacts
from fleet.workers.task_data import held_out_data, training_data
from preprocess import Dataset, DatasetSpec, SourceError, SourceSpec, is_worth_keeping
from preprocess.samples.block_order import OrderSpec
from preprocess.samples.errors import DataSpecError, NotArrays, TransformError, UnusableDataError
from preprocess.sources.blocks import block_bytes


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
