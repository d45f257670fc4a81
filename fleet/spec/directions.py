"""Whether more or less of a job's metrics is better, as somebody declares it; nothing is guessed from names.

The job declares it (see `fleet.spec.metrics`), or the `mode` of the search.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fleet.spec.ensemble import EnsembleSpec
from fleet.spec.job import Job
from fleet.spec.metrics import Direction, declared, declared_alone, metric_name, section_of
from fleet.spec.problem import KeyPath, Problem
from fleet.spec.search import SearchSpec

MODES: Mapping[str, Direction] = {"min": "lower", "max": "higher"}


def declared_directions(job: Job) -> dict[str, Direction]:
    """Metric -> its direction, of all metrics of a job of which the job declares it."""
    return declared(None if job.task is None else job.task.name, job.metrics)


def directions(spec: EnsembleSpec, job: Job) -> dict[str, Direction]:
    """Return what is declared of a job's metrics, the search's `mode` included."""
    return {**said_by_mode(spec.search), **declared_directions(job)}


def recorded_directions(spec: EnsembleSpec, job: Job) -> dict[str, Direction]:
    """What a run writes down of a job: of the metrics that it names, and of those by which it and others are compared.

    Who reads that needs none of the job's code.
    """
    wanted = {*map(metric_name, job.metrics), *job.stop.target, job.stop.monitored, spec.checkpoints.best}
    wanted |= {
        *declared_alone(None if job.task is None else job.task.name, ()),
        *(spec.search.metrics if spec.search else ()),
    }
    return {name: better for name, better in directions(spec, job).items() if name in wanted}


def said_by_mode(search: SearchSpec | None) -> dict[str, Direction]:
    """Return what the `mode` of a search declares of its metrics."""
    if search is None or search.mode is None:
        return {}
    modes = [search.mode] if isinstance(search.mode, str) else search.mode
    return {metric: MODES[mode] for metric, mode in zip(search.metrics, modes)}


def compared_by(spec: EnsembleSpec) -> tuple[str, Direction] | None:
    """By which metric a run's networks are compared where nobody names one; None: nobody says.

    That of the search, else that of the best checkpoints, else the one at which all jobs stop.
    """
    if spec.search is not None:
        return spec.search.metrics[0], "higher" if spec.search.maximise else "lower"
    if not spec.jobs:
        return None
    watched = {job.stop.monitor or next(iter(job.stop.target), None) for job in spec.jobs}
    metric = spec.checkpoints.best or (watched.pop() if len(watched) == 1 else None)
    better = None if metric is None else directions(spec, spec.jobs[0]).get(metric)
    return None if metric is None or better is None else (metric, better)


def undeclared(spec: EnsembleSpec, base: KeyPath, job: Job, path: KeyPath, value: Any, metric: str) -> Problem:
    """The problem that nobody declares whether more or less of a metric is better."""
    said = next((section_of(each) for each in job.metrics if metric_name(each) == metric), None)
    of = f", of: {said.of!r}" if said is not None and said.of else ""
    rule = f"nobody declares whether more or less of {metric!r} is better"
    mend = f"write {{name: {metric}{of}, better: lower}} into metrics, or better: higher"
    if job.task is not None:
        mend += f'; or let the task class have better = {{"{metric}": "lower"}}'
    return spec.origins.problem(base + path, value, rule, mend=mend)


def direction_problems(spec: EnsembleSpec, base: KeyPath, job: Job) -> Iterator[Problem]:
    """Yield where a job needs a direction of a metric that nobody declares."""
    known = directions(spec, job)
    for name, value in job.stop.target.items():
        if name not in known:
            yield undeclared(spec, base, job, ("stop", "target", name), value, name)
    monitored = job.stop.monitored
    if job.stop.patience is not None and monitored not in known and monitored not in job.stop.target:
        yield undeclared(spec, base, job, ("stop", "monitor"), monitored, monitored)
    best = spec.checkpoints.best
    if best is not None and best not in known:
        yield undeclared(spec, (), job, ("checkpoints", "best"), best, best)


def search_direction_problems(spec: EnsembleSpec, search: SearchSpec, job: Job) -> Iterator[Problem]:
    """Metrics of a search whose direction nobody declares, or of which `mode` says another than they do."""
    own, said = declared_directions(job), said_by_mode(search)
    for metric in search.metrics:
        if metric not in own and metric not in said:
            yield undeclared(spec, (), job, ("search", "metric"), metric, metric)
        elif own.get(metric, said.get(metric)) != said.get(metric, own.get(metric)):
            words = {"higher": "max", "lower": "min"}
            rule = f"mode says that {said[metric]} is better of {metric}, and the metric declares that {own[metric]} is"
            mend = f"set mode to {words[own[metric]]}, or take it away"
            yield spec.origins.problem(("search", "mode"), search.mode, rule, words[own[metric]], mend)


def best_problems(spec: EnsembleSpec) -> Iterator[Problem]:
    """Jobs of which some declare that more, and some that less, of the metric of best checkpoints is better."""
    best = spec.checkpoints.best
    found = {} if best is None else {job.name: directions(spec, job).get(best) for job in spec.jobs}
    told = {better: name for name, better in found.items() if better is not None}
    if len(told) > 1:
        rule = f"more of {best} is better in job {told['higher']}, and less in job {told['lower']}"
        yield spec.origins.problem(("checkpoints", "best"), best, rule, mend="give one of the metrics another name")
