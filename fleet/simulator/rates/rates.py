"""The face of measured rates to a simulator, from any source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import numpy as np

from fleet.scheduling.model.arrays import Floats
from fleet.scheduling.model.rates import RateCurve
from fleet.simulator.traces.job import TraceJob
from fleet.simulator.traces.problem import TraceError, TraceProblem, advice_on
from fleet.simulator.traces.trace import Trace


class UnknownRate(ValueError):
    """No rate was measured for the question; the text names the known ones."""


class Rates(Protocol):
    """Steps per second of a job, by the number of its devices."""

    def of(self, job: TraceJob, limit: int) -> Floats:
        """Steps/s of the job's whole batch on 1, 2, ..., `limit` devices; float64 of shape (limit,), read-only.

        Raises:
            UnknownRate: the job's model or batch size was not measured.
        """
        ...


class RunRates:
    """The rate curves that a run measured, by job: `Trace.curves` of its journal.

    Args:
        curves: by job; further ones may come.
    """

    def __init__(self, curves: Mapping[str, RateCurve]) -> None:
        self._curves = curves

    def of(self, job: TraceJob, limit: int) -> Floats:
        """As `Rates.of`."""
        curve = self._curves.get(job.name)
        if curve is None or job.batch_size is None:
            raise UnknownRate(f"the run measured no rates of job {job.name!r}; {advice_on(job.name, self._curves)}")
        rates: Floats = curve.rates(limit) / job.batch_size
        rates.flags.writeable = False
        return rates


def check_rates(trace: Trace, rates: Rates) -> None:
    """Check that there are rates for every job of a trace.

    Raises:
        TraceError: with every job that has none, each model and batch size told of once.
    """
    seen: dict[tuple[str, float], int] = {}
    jobs = trace.jobs
    for i, key in enumerate(zip(jobs.model, np.nan_to_num(jobs.batch_size).tolist())):
        seen.setdefault(key, i)
    problems = [problem for i in seen.values() if (problem := _problem(trace, jobs[i], rates))]
    if problems:
        raise TraceError(problems)


def unknown(what: str, value: object, known: Iterable[object]) -> UnknownRate:
    """The error that says what is known instead."""
    names = list(known)
    if isinstance(value, (int, float)) and names:
        close = min((float(str(name)) for name in names), key=lambda number: abs(number - value))
        return UnknownRate(f"{what} {value} was not measured; nearest: {close:g}; known: {', '.join(map(str, names))}")
    return UnknownRate(f"{what} {value!r} was not measured; {advice_on(str(value), names)}")


def _problem(trace: Trace, job: TraceJob, rates: Rates) -> TraceProblem | None:
    try:
        rates.of(job, 1)
    except UnknownRate as error:
        mend = "name another table of rates, or leave the job out"
        value = f"{job.model} {job.batch_size or ''}".strip()
        return TraceProblem(trace.file, f"job {job.name}: {error}", mend, job.line, "model", value)
    return None
