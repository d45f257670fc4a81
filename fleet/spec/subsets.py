"""The part of a data set's training samples that a job trains on, and whether there can be such a part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fleet.spec.job import SUBSET_KEYS, Job
from fleet.spec.problem import KeyPath, Problem
from preprocess.samples.part import Bag, Fold, Part

if TYPE_CHECKING:
    from fleet.spec.ensemble import EnsembleSpec


def part_of(job: Job) -> Part | None:
    """The part that a job says; None: it trains on all samples.

    The seed of its order draws the folds, so that they share a stream and differ in nothing else; the seed of its
    weights draws the bag, so that networks that share a stream have bags of their own.
    """
    if all(getattr(job, key) is None for key in SUBSET_KEYS):
        return None
    fold = None if job.folds is None else Fold(job.fold or 0, job.folds, job.order_seed)
    return Part(job.subset, fold, None if job.bag is None else Bag(job.bag, job.weights_seed))


def part_in_words(job: Job) -> str | None:
    """The part in words; None: all samples."""
    words = []
    if job.subset is not None:
        words.append(f"the first {job.subset}" if isinstance(job.subset, int) else f"{len(job.subset)} named")
    if job.folds is not None:
        words.append(f"without fold {job.fold} of {job.folds}")
    if job.bag is not None:
        words.append(f"a bag of {job.bag:g}")
    return ", ".join(words) or None


def part_problems(spec: EnsembleSpec, position: int, length: int | None) -> Iterator[Problem]:
    """Yield what is wrong with the part of a job.

    Args:
        position: the job stands there in the spec.
        length: training samples of its data set; None: not known.
    """
    job, base = spec.jobs[position], ("jobs", position)
    section = spec.data.get(job.data) if job.data is not None else None
    if job.folds is not None and section is not None and section.held_out is not None:
        rule = f"each fold is held out in its turn, and the data set {job.data!r} has held_out, which all evaluate on"
        mend = f"take held_out away from data.{job.data}, or name a data set without it"
        yield spec.origins.problem(base + ("folds",), job.folds, rule, mend=mend)
    if section is not None and section.order.weights is not None and part_of(job) is not None:
        key = next(key for key in SUBSET_KEYS if getattr(job, key) is not None)
        rule = f"data {job.data!r} draws its samples by weights, some of them several times, and never a part of them"
        yield spec.origins.problem(base + (key,), getattr(job, key), rule, mend=f"take {key} or order.weights away")
    if length is not None:
        yield from _size_problems(spec, job, base, length)


def _size_problems(spec: EnsembleSpec, job: Job, base: KeyPath, length: int) -> Iterator[Problem]:
    subset, samples = job.subset, length
    if isinstance(subset, int):
        samples = subset
        if subset > length:
            rule = f"the data set has {length} training samples"
            yield spec.origins.problem(base + ("subset",), subset, rule, str(length), f"set it to at most {length}")
    elif subset is not None:
        samples = len(subset)
        if subset[-1] >= length:
            rule = f"there is no sample {subset[-1]}: the data set has {length}, which are counted from 0"
            mend = f"name samples of 0 to {length - 1}"
            yield spec.origins.problem(base + ("subset",), list(subset), rule, mend=mend)
    if job.folds is not None and job.folds > samples:
        rule = f"more folds than the {samples} samples that they divide: some would be empty"
        yield spec.origins.problem(base + ("folds",), job.folds, rule, str(samples), f"set it to at most {samples}")
