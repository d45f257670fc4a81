"""What a run knows of its search's trials before it begins: the first ones, the most that they can ask, a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from fleet.coordination.job_record import standing
from fleet.coordination.live_state import Recorder
from fleet.journal.directory import RunDirectory
from fleet.journal.events import Dropped
from fleet.journal.journal import read_journal
from fleet.journal.run_requests import AddedJobs, SearchRequests
from fleet.search import Search
from fleet.search.of_spec import search_of, search_problems
from fleet.session.search.ahead import Files
from fleet.session.search.recorded import recorded
from fleet.session.search.searching import Searching, Steering
from fleet.session.search.trial_values import JournalValues, RehearsedValues, TrialJobs, Values, costs_of
from fleet.spec import EnsembleSpec, Job, SpecError, check, trial_job
from fleet.spec.expansion import trial_name
from fleet.spec.search import share_of
from fleet.spec.trials import corner_jobs
from fleet.spec.values import MOST_JOBS
from fleet.workers.rank import Rank
from trainers import latest_good


def trials_at_once(spec: EnsembleSpec) -> int:
    """How many trials can train at a time, as far as there are devices."""
    if spec.search is None:
        return 0
    return MOST_JOBS if share_of(spec.search.ahead) else spec.search.width


def largest_trial_batch(spec: EnsembleSpec) -> int:
    """The most samples that a trial takes at once, in a step or as it is evaluated; 0: there are no trials."""
    jobs = corner_jobs(spec)
    if not jobs:
        return 0
    step = max(job.virtual_workers for job in jobs) * max(job.batch_size for job in jobs)
    return max(step, *(job.evaluation_batch_size or 0 for job in jobs))


def fresh_search(spec: EnsembleSpec) -> Search:
    """The search of a spec that is asked for the trials with which it begins, and is told nothing.

    Raises:
        SpecError: its sampler cannot be made.
    """
    problems = search_problems(spec)
    if problems:
        raise SpecError(problems, spec.origins.file)
    return search_of(spec, lambda trial, values: 1)


def with_first_trials(spec: EnsembleSpec) -> EnsembleSpec:
    """The spec with the trials with which its search begins as further jobs, each until its first rung."""
    if spec.search is None:
        return spec
    search, trials = fresh_search(spec), []
    for segment in search.needed():
        try:
            job = trial_job(spec, segment.trial, search.values(segment.trial))
        except SpecError:
            continue  # it fails
        trials.append(job.model_copy(update={"stop": job.stop.model_copy(update={"epochs": segment.end})}))
    return spec.with_jobs((*spec.jobs, *trials))


def described_search(spec: EnsembleSpec) -> Iterator[str]:
    """Sentences for people; none without a search."""
    search = spec.search
    if search is None:
        return
    bounds = [f"at most {search.most_trials} trials"] if search.most_trials is not None else []
    bounds += [f"at most {search.most_epochs} epochs"] if search.most_epochs is not None else []
    hours = None if search.budget is None else search.budget.hours
    bounds += [f"at most {hours:g} hours"] if hours is not None else []
    yield (
        f"search: {' and '.join(bounds)}, {search.width} under way at a time in virtual time, "
        f"sampler {search.sampler.name}, stopping {search.stopping.name}"
    )
    first = {segment.end for segment in fresh_search(spec).needed()}
    until = ", ".join(map(str, sorted(first)))
    yield (
        f"planned here are the first {search.width} trials, until {until} of their {search.epochs} epochs; which "
        "trials follow, and how far they train, their results decide"
    )


def jobs_of_trials(spec: EnsembleSpec, planned: EnsembleSpec) -> list[Job]:
    """The jobs that stand for trials in a spec that `with_first_trials` made."""
    own = {job.name for job in spec.jobs}
    return [job for job in planned.jobs if job.name not in own]


def searching_of(rank: Rank, books: Recorder) -> Searching | None:
    """The search of a run, as its journal left it; None: the run has none.

    Raises:
        BadInput: the search decides otherwise than the journal says.
    """
    spec = rank.runtime.spec
    if spec.search is None:
        return None
    jobs = TrialJobs(spec)
    found = recorded(spec, costs_of(rank.runtime, rank.sizes, jobs), read_journal(rank.directory.journal))
    steering = Steering(spec.search, found, books, SearchRequests(rank.directory.path))
    files = Files(
        rank.directory.checkpoints,
        lambda job: standing(rank.directory.checkpoints(job), rank.runtime.stop(job)),
        {event.trial for event in read_journal(rank.directory.journal) if isinstance(event, Dropped)},
    )
    return Searching(spec, found, books, _values(rank, books), steering, files, jobs)


def _values(rank: Rank, books: Recorder) -> Values:
    spec = rank.runtime.spec
    assert spec.search is not None
    metrics = spec.search.metrics
    if rank.runtime.rehearsal is not None:
        return RehearsedValues(metrics, spec.seed, spec.search.maximises)

    def saved(job: str, epoch: int) -> Mapping[str, float]:
        newest, _ = latest_good(rank.directory.checkpoints(job))
        return newest.history.at(epoch) if newest is not None else {}

    values = JournalValues(metrics, saved)
    for event in read_journal(rank.directory.journal):
        values.event(event)
    books.journal.listen(values.event)
    return values


def first_trial(spec: EnsembleSpec, directory: Path) -> list[Job]:
    """The first trial of a search that can be made, as long as no trial is part of the run.

    A run opens the data and sizes the rings by its jobs, and has one from its first start on. The others come as the
    search issues them.

    Raises:
        SpecError: none of those with which the search begins can be made; of the first, why.
    """
    if spec.search is None:
        return []
    search, problem = fresh_search(spec), None
    begun = [(segment.trial, search.values(segment.trial)) for segment in search.needed()]
    taken = {job["name"] for job in AddedJobs(directory).taken()}
    if not taken.isdisjoint(trial_name(spec.search.name, trial, values) for trial, values in begun):
        return []
    for trial, values in begun:
        try:
            job = trial_job(spec, trial, values)
            problems = check(spec.with_jobs((*spec.jobs, job)))
        except SpecError as error:
            problem = problem or error
        else:
            if not problems:
                return [job]
            problem = problem or SpecError(problems)
    if problem is None:
        return []
    raise problem


def take_first_trial(directory: RunDirectory, spec: EnsembleSpec) -> None:
    """Make the trial with which a run begins part of it."""
    here = {job.name for job in spec.jobs}
    for job in first_trial(spec, directory.path):
        if job.name in here:
            AddedJobs(directory.path).take(job.model_dump(mode="json"))
