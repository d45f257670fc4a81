"""The spec of a run as rank 0 finds it: the file's jobs, and those that `fleet add` brought."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from fleet.coordination.errors import storage
from fleet.journal.added_jobs import AddedJobs
from fleet.journal.directory import RunDirectory
from fleet.journal.journal import last_second
from fleet.machine.standard_error import tell
from fleet.run.bad_input import BadInput
from fleet.run.chosen_workers import with_chosen_workers
from fleet.run.opening.extended_spec import extended
from fleet.run.options import RunOptions
from fleet.run.recorded_choices import with_known_batches, with_known_rule
from fleet.run.search.trials import first_trial
from fleet.spec import Job, importable
from fleet.spec.places import check_places, found_files


def whole_spec(options: RunOptions, ranks: int = 0) -> dict[str, Any]:
    """The spec's values, with the jobs that were added to the run or are on offer.

    Args:
        ranks: how many the run has, for `virtual_workers: auto`; 0: as `resources.trainers` says.

    Raises:
        SpecError, BadInput, SourceError, TransformError: the text names the mistakes.
        StorageError: the run directory cannot be read.
    """
    asked = options.load()
    check_places(asked)
    directory = RunDirectory(options.directory(asked))
    trainers = max(1, ranks - asked.resources.preprocessors) if ranks else asked.resources.trainers or 1
    with storage():
        known = with_known_batches(with_known_rule(asked, directory.path), directory.path)
        spec = with_chosen_workers(known, directory.path, options.pretend or (trainers,))
    sizes = [f"{job.name}: {job.batch_size}" for job in known.jobs if asked.job(job.name) != job]
    if sizes:
        tell(f"batch_size: largest stands for {', '.join(sizes)}, as long as the run lives")
    chosen = [f"{mine.name}: {mine.virtual_workers}" for mine in spec.jobs if asked.job(mine.name).auto_workers]
    if chosen:
        tell(f"virtual_workers: auto stands for {', '.join(chosen)}, as long as the run lives")
    values, own = {**spec.to_mapping(), **found_files(spec)}, {job.name for job in spec.jobs}
    with storage():
        added = AddedJobs(directory.path).at_start(last_second(directory.journal), lambda job: _can_begin(job, own))
    mine = {job["name"]: job for job in values["jobs"]}
    added = [job for job in added if mine.get(job["name"]) != job]  # the spec may have caught up with them
    for job in added:
        if job["name"] in own:
            raise BadInput(
                f"{options.spec} names a job {job['name']}, and so does one that was added to the run in "
                f"{directory.path}; give yours another name"
            )
    known_spec = spec.with_jobs((*spec.jobs, *(Job.model_validate(job) for job in added)))
    with storage(), importable([spec.folder, Path.cwd()]):
        trials = [job.model_dump(mode="json") for job in first_trial(known_spec, directory.path)]
    jobs = extended([*values["jobs"], *added, *trials], directory.path, options)
    return {**values, "jobs": _part_of(jobs, options.profile.part if options.profile else None)}


def _part_of(jobs: list[Any], part: tuple[int, int] | None) -> list[Any]:
    """Every so many-th of the jobs, where a part of them is profiled."""
    if part is None:
        return jobs
    number, parts = part
    if parts > len(jobs):
        raise BadInput(f"--part {number}/{parts}: the spec has {len(jobs)} jobs; make at most {len(jobs)} parts")
    return jobs[number - 1 :: parts]


def _can_begin(job: Mapping[str, Any], own: Collection[str]) -> bool:
    """Whether an offer can be trained from the start on; rank 0 refuses others, with a reason, when the run goes on."""
    try:
        return Job.model_validate(job).name not in own
    except ValueError:
        return False
