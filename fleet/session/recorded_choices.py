"""What an earlier start of a run chose where the spec leaves a number open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fleet.journal.directory import RunDirectory
from fleet.spec import EnsembleSpec


def recorded_numbers(out: Path, key: str) -> dict[str, int]:
    """Job -> the number that a run which has begun in this directory has for a key, where it has one."""
    jobs = _kept(out).get("jobs", {})
    return {name: values[key] for name, values in jobs.items() if type(values.get(key)) is int}


def _kept(out: Path) -> dict[str, Any]:
    """What the run that has begun in this directory wrote down of its spec; nothing, if none has."""
    directory = RunDirectory(out)
    begun = directory.spec.exists() and directory.journal.exists()
    return directory.read_spec() if begun else {}


def with_known_batches(spec: EnsembleSpec, out: Path) -> EnsembleSpec:
    """The spec with a number in place of each `batch_size: largest` for which the run in `out` has found one."""
    if not any(job.largest_batch for job in spec.jobs):
        return spec
    sizes = recorded_numbers(out, "batch_size")
    return spec.with_jobs(
        tuple(
            job.with_batch_size(sizes[job.name]) if job.largest_batch and job.name in sizes else job
            for job in spec.jobs
        )
    )


def with_known_rule(spec: EnsembleSpec, out: Path) -> EnsembleSpec:
    """The spec whose search halves as that of the run in `out`, which was begun before there was a `confidence`."""
    if spec.search is None or not spec.search.stopping.is_confident:
        return spec
    kept, stopping = _kept(out).get("search"), spec.search.stopping
    if not kept or "confidence" in kept["stopping"] or "confidence" in stopping.model_fields_set:
        return spec
    search = spec.search.model_copy(update={"stopping": stopping.model_copy(update={"confidence": 0.0})})
    return spec.model_copy(update={"search": search})
