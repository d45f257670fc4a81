"""Measured against fitted training rates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from fleet.report.history import RunHistory


@dataclass(frozen=True)
class JobRates:
    """The rates of one job in samples per second, by number of devices.

    profiled: measured by the profiler or read from a file. trained: the mean of the epochs trained on that many
    devices, or its first steps there where it ended none; where jobs share a stream this is the pace of the slowest, so
    it may lie below the curve.
    fitted: the curve that the policy used last.
    """

    job: str
    profiled: Mapping[int, float]
    trained: Mapping[int, float]
    fitted: Mapping[int, float]

    def difference(self, devices: int) -> float | None:
        """(measured - fitted) / fitted; measured while training where that is known, else by the profiler."""
        measured, fitted = self.trained.get(devices, self.profiled.get(devices)), self.fitted.get(devices)
        return (measured - fitted) / fitted if measured is not None and fitted else None


def job_rates(history: RunHistory) -> tuple[JobRates, ...]:
    """The rates of every job of which any is known, in the order of the spec."""
    rows = (_rates(history, name) for name in history.jobs)
    return tuple(row for row in rows if row.profiled or row.trained or row.fitted)


def _rates(history: RunHistory, job: str) -> JobRates:
    profiled: dict[int, float] = {}
    fitted: dict[int, float] = {}
    for curve in (curve for curve in history.rates if curve.job == job):
        if curve.source not in ("training", "guessed"):
            profiled.update(curve.measured)
        fitted = dict(enumerate(curve.fitted, start=1)) or fitted
    profiled.update({m.count: m.rate for m in history.measurements if m.job == job})
    return JobRates(job, dict(sorted(profiled.items())), _trained(history, job), fitted)


def _trained(history: RunHistory, job: str) -> dict[int, float]:
    rates: dict[int, list[float]] = defaultdict(list)
    for epoch in history.epochs_of(job):
        if epoch.rate is not None and epoch.devices:
            rates[len(epoch.devices)].append(epoch.rate)
    timed = {m.count: m.rate for m in history.timings if m.job == job}
    return dict(sorted({**timed, **{count: fmean(values) for count, values in rates.items()}}.items()))
