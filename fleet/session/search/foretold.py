"""What can be said of a search before it begins."""

from __future__ import annotations

from collections.abc import Iterator

from fleet.search import Search
from fleet.search.of_spec import search_of, search_problems
from fleet.spec import EnsembleSpec, Job, SpecError, trial_job


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
