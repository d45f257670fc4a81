"""The spec of a run as rank 0 finds it: the file's jobs, and those that `fleet add` brought."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fleet.coordination.failures import storage
from fleet.coordination.live_state import LiveState
from fleet.journal import events
from fleet.journal.directory import RunDirectory
from fleet.journal.journal import last_second
from fleet.journal.run_requests import AddedJobs
from fleet.journal.whole_files import Extension, read_extensions
from fleet.machine.standard_streams import tell
from fleet.models.errors import ModelsError
from fleet.models.extension import extension_of
from fleet.session.chosen_workers import with_chosen_workers, with_known_batches, with_known_rule
from fleet.session.options import RunOptions
from fleet.session.search.first_trials import first_trial
from fleet.spec import EnsembleSpec, Job, importable
from fleet.spec.document import Origins
from fleet.spec.semantics import check_places, with_found_files
from fleet.workers.agreement import BadInput


def whole_spec(options: RunOptions, ranks: int = 0) -> EnsembleSpec:
    """The spec, with the jobs that were added to the run or are on offer.

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
    spec, own = with_found_files(spec), {job.name: job for job in spec.jobs}
    with storage():
        told = AddedJobs(directory.path).at_start(last_second(directory.journal), lambda job: _can_begin(job, own))
    added = [job for each in told if own.get(each["name"]) != (job := Job.model_validate(each))]
    for job in added:  # the spec has not caught up with
        if job.name in own:
            raise BadInput(
                f"{options.spec} names a job {job.name}, and so does one that was added to the run in "
                f"{directory.path}; give yours another name"
            )
    with_added = spec.with_jobs((*spec.jobs, *added))
    with storage(), importable([spec.folder, Path.cwd()]):
        jobs = (*with_added.jobs, *first_trial(with_added, directory.path))
    _check_names(jobs)
    spec = spec.with_jobs(extended(jobs, directory.path, options))
    return spec if options.profile is None or options.profile.part is None else _part_of(spec, *options.profile.part)


def _check_names(jobs: Sequence[Job]) -> None:
    """BadInput if two jobs have one name: of a search's first trial and another one."""
    for name, count in Counter(job.name for job in jobs).items():
        if count > 1:
            raise BadInput(f"the name {name} is taken: a job and the first trial of the search have it; rename one")


def _part_of(spec: EnsembleSpec, number: int, parts: int) -> EnsembleSpec:
    """The spec with every so many-th of its jobs, of which a part is profiled."""
    jobs = spec.jobs
    if parts > len(jobs):
        raise BadInput(f"--part {number}/{parts}: the spec has {len(jobs)} jobs; make at most {len(jobs)} parts")
    return spec.with_jobs(jobs[number - 1 :: parts]).written_at(Origins(spec.origins.file, spec.folder))


def _can_begin(job: Mapping[str, Any], own: Collection[str]) -> bool:
    """Whether an offer can be trained from the start on; rank 0 refuses others, with a reason, when the run goes on."""
    try:
        return Job.model_validate(job).name not in own
    except ValueError:
        return False


def check_extension(options: RunOptions) -> None:
    """See whether a job can be extended as the options ask, before ranks are started. BadInput if it cannot."""
    if options.extend is not None and options.out is not None:
        extensions(options, options.out, tell)


def extensions(options: RunOptions, directory: Path, told: Any = lambda text: None) -> dict[str, Extension]:
    """Return the extensions of a run's jobs, with the one that is asked for now.

    Raises:
        BadInput: the job cannot be extended so.
        StorageError: the run directory cannot be read.
    """
    asked = options.extend
    try:
        with storage():
            known = read_extensions(directory)
            if asked is None:
                return known
            return {**known, asked.job: extension_of(directory, asked.job, asked.epochs, asked.only_epochs, told)}
    except ModelsError as error:
        raise BadInput(str(error)) from error


def extended(jobs: Iterable[Job], directory: Path, options: RunOptions) -> tuple[Job, ...]:
    """Return a spec's jobs with the `stop` of those that are extended. Raises as `extensions`."""
    known, earlier = extensions(options, directory), extensions(RunOptions(options.spec), directory)
    return tuple(_longer(job, known[job.name], earlier.get(job.name)) if job.name in known else job for job in jobs)


def _longer(job: Job, extension: Extension, before: Extension | None) -> Job:
    values = job.model_dump(mode="json")
    own = before is not None and values["stop"] == before.stop  # the run's own spec has the earlier extension
    return Job.model_validate({**values, "stop": extension.stop if own else extension.of(values["stop"])})


def reopen(ledger: LiveState, directory: Path, journal: Iterable[events.Event]) -> dict[str, int]:
    """Let jobs that are extended since the last session wait for devices again; return until which epoch each trains.

    Args:
        journal: its events.
    """
    told = {event.job: event.epochs for event in journal if isinstance(event, events.Extended)}
    known = {job: extension.epochs for job, extension in read_extensions(directory).items() if job in ledger.jobs}
    new = {job: epochs for job, epochs in known.items() if told.get(job) != epochs}
    for job in new:
        if ledger.jobs[job].status == "done" or ledger.jobs[job].is_paused:
            ledger.take(events.Extended(job=job, epochs=known[job]))
    return new
