"""The trials of a run's search, as a session finds them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fleet.coordination.job_record import standing
from fleet.coordination.live_state import Recorder
from fleet.journal.directory import RunDirectory
from fleet.journal.events import Dropped
from fleet.journal.journal import read_journal
from fleet.journal.run_requests import AddedJobs, SearchRequests
from fleet.session.search.ahead import Files
from fleet.session.search.costs import costs_of
from fleet.session.search.foretold import fresh_search
from fleet.session.search.recorded import recorded
from fleet.session.search.rehearsed_values import RehearsedValues
from fleet.session.search.searching import Searching
from fleet.session.search.steering import Steering
from fleet.session.search.trial_jobs import TrialJobs
from fleet.session.search.values import JournalValues, Values
from fleet.spec import EnsembleSpec, Job, SpecError, check, trial_job
from fleet.spec.expansion import trial_name
from fleet.workers.rank import Rank
from trainers import latest_good


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
        rank.directory.checkpoints, lambda job: standing(rank.directory.checkpoints(job), rank.runtime.stop(job)),
        {event.trial for event in read_journal(rank.directory.journal) if isinstance(event, Dropped)},
    )  # fmt: skip
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
