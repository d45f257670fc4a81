"""What a simulation plays: jobs, their rates, and failures of nodes; from files, from a run, or drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from fleet.journal import events
from fleet.journal.journal import read_journal
from fleet.scheduling.model.cluster import Cluster
from fleet.simulator.comparing.settings import number, read_cluster, read_settings
from fleet.simulator.machines.kinds import KindRates
from fleet.simulator.machines.machine import Costs, Rates, RunRates, check_rates
from fleet.simulator.machines.rate_tables import BatchRates, RateTable, read_rates
from fleet.simulator.simulation import NodeFailure
from fleet.simulator.traces import Synthetic, Trace, TraceError, TraceProblem, read_trace, synthetic_trace, with_models
from fleet.simulator.traces.reading import JOURNAL
from fleet.simulator.traces.synthetic import generator
from fleet.simulator.traces.table import advice_on, read_table
from preprocess.files.reading import read_json

RUN = "run.json"
_EXAMPLE = "jobs=1000,gap=30"
_PAIRS = ("tightness",)
_MAPPINGS = ("sizes",)


@dataclass(frozen=True)
class Workload:
    """Where jobs and rates come from; one of `trace`, `run` and `synthetic`.

    Attributes:
        trace: a file of any known format.
        format: the file's format; None: found by its columns.
        run: the directory of a run of fleet; its journal holds jobs and rates.
        synthetic: how jobs are drawn.
        rates: a folder or file of measured rates; None: a run's own, or of a trace the durations that it says.
        draw_models: jobs of a trace without models get them, and work, from the table of rates.
        tightness: with `draw_models`, bounds of lambda: the deadline is the arrival + lambda * duration.
        start: when the second 0 of a trace is, seconds since 1970; its deadlines may be times of day.
        batch_ranges: policies may give a job any batch between the smallest and the largest measured of its model.

    Raises:
        ValueError: not one of the three, or what does not go together.
    """

    trace: Path | None = None
    format: str | None = None
    run: Path | None = None
    synthetic: Synthetic | None = None
    rates: Path | None = None
    draw_models: bool = False
    tightness: tuple[float, float] | None = None
    batch_ranges: bool = False
    start: float | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("trace", "run", "synthetic") if getattr(self, name) is not None]
        if len(given) != 1:
            has = " and ".join(f"--{name}" for name in given) or "none of them"
            raise ValueError(f"jobs come from one of --trace, --run and --synthetic; there is {has}")
        if self.format is not None and self.trace is None:
            raise ValueError(f"--format {self.format} is that of a --trace; leave it out")
        if self.run is not None and self.rates is not None:
            raise ValueError("--run brings the rates that the run measured; leave --rates out")
        if self.synthetic is not None and self.rates is None:
            raise ValueError("--synthetic draws jobs from a table of rates; name its folder with --rates")
        if self.draw_models and (self.trace is None or self.rates is None):
            raise ValueError("--draw-models gives the jobs of a --trace models from --rates; name both")
        if self.start is not None and self.trace is None:
            raise ValueError("--start says when the second 0 of a --trace is; name that, or leave --start out")
        if self.tightness is not None and not self.draw_models:
            raise ValueError("--tightness is for jobs whose models are drawn; add --draw-models")
        if self.batch_ranges and self.rates is None:
            raise ValueError("--batch-ranges are those of a table of rates; name its folder with --rates")

    @property
    def name(self) -> str:
        """What it is called in a report."""
        path = self.trace or self.run
        return "synthetic" if path is None else path.resolve().name

    def load(self, seed: int) -> tuple[Trace, Rates | None]:
        """The jobs and their rates. The seed matters only where something is drawn.

        Raises:
            TraceError: a file cannot be used, or a job has no rate or no length.
            ValueError: the options do not go together.
        """
        trace, rates = self._jobs(None if self.rates is None else read_rates(self.rates), seed)
        if not len(trace):
            raise TraceError.of(trace.file, "there is no job in it", "name a trace with jobs")
        if self.batch_ranges:
            rates = BatchRates(_table(rates, "--batch-ranges"))
        if rates is None:
            _check_durations(trace)
        else:
            _check_work(trace, rates)
            _check_models(trace, rates)
        return trace, rates

    def _jobs(self, rates: Rates | None, seed: int) -> tuple[Trace, Rates | None]:
        if self.run is not None:
            trace = read_trace(self.run, "journal")
            return trace, RunRates(trace.curves)
        if self.synthetic is not None:
            return synthetic_trace(self.synthetic, _table(rates, "--synthetic"), seed), rates
        assert self.trace is not None
        trace = read_trace(self.trace, self.format, self.start)
        if trace.curves and rates is None:
            return trace, RunRates(trace.curves)
        if self.draw_models:
            drawn = with_models(trace, _table(rates, "--draw-models"), seed, tightness=self.tightness)
            note = f"models and batch sizes are drawn from the table of rates, seed {seed}"
            return replace(drawn, notes=(*trace.notes, note)), rates
        return trace, rates


def synthetic_of(text: str) -> Synthetic:
    """What `--synthetic` says: `jobs=1000,gap=30` and other parameters of `Synthetic`.

    Raises:
        ValueError: a parameter is not known, missing or wrong.
    """
    given = read_settings(text, _EXAMPLE)
    known = [field.name for field in fields(Synthetic) if field.name != "mix"]
    for name in given:
        if name not in known:
            raise ValueError(f"synthetic: {name!r} is not known; {advice_on(name, known)}")
    for name in ("jobs", "gap"):
        if name not in given:
            raise ValueError(f"synthetic: {name} is missing; write {_EXAMPLE}")
    try:
        return Synthetic(**{name: _parameter(name, value) for name, value in given.items()})
    except (TypeError, ValueError) as error:
        raise ValueError(f"synthetic: {error}") from None


def costs_of_run(run: Path) -> Costs:
    """The median seconds that a run's jobs took to form their first groups, and later ones; 0 where it formed none."""
    first: dict[str, float] = {}
    later: list[float] = []
    for event in read_journal(run / JOURNAL if run.is_dir() else run):
        if not isinstance(event, events.Formed):
            continue
        if event.job in first:
            later.append(event.seconds)
        else:
            first[event.job] = event.seconds
    start = median(first.values()) if first else 0.0
    return Costs(start, median(later) if later else start)


def cluster_for(workload: Workload, shape: str | None) -> Cluster:
    """The cluster on which a workload is played: of that shape, or else the one of its run.

    Raises:
        ValueError: there is neither, or the shape is none.
        TraceError: the run's journal does not say on which devices it trained.
    """
    if shape is not None:
        return read_cluster(shape)
    if workload.run is None:
        raise ValueError("on which devices? name the cluster, such as --cluster 16x8: 16 nodes of 8 devices")
    return cluster_of_run(workload.run)


def cluster_of_run(run: Path) -> Cluster:
    """The nodes and devices on which a run trained.

    Raises:
        TraceError: its journal does not say them.
    """
    journal = run / JOURNAL if run.is_dir() else run
    if not journal.is_file():
        raise TraceError.of(run, f"there is no run: {JOURNAL} is missing", "name the --out of a `fleet run`")
    for event in read_journal(journal):
        if isinstance(event, events.Cluster):
            if not event.size:
                break
            return Cluster(tuple(count for count in event.devices_per_node if count))
    raise TraceError.of(journal, "it does not say on which nodes the run trained", "name them with --cluster")


def run_itself(run: Path) -> str | None:
    """What became of the run, in a line; None where it has not ended."""
    try:
        told = read_json(run / RUN)
        ended = f"policy {told['policy']}, {told['status']} after {float(told['wall_seconds']):.1f} s"
        return f"the run itself: {ended}, start and profiling included"
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _parameter(name: str, value: Any) -> Any:
    if name == "arrivals":
        return value
    if name in _PAIRS:
        if not isinstance(value, list) or len(value) != 2:
            raise ValueError(f"{name} is {value!r}; it must be two numbers, such as [0.5, 1.5]")
        return tuple(number(name, item) for item in value)
    if name in _MAPPINGS:
        if not isinstance(value, Mapping):
            raise ValueError(f"{name} is {value!r}; it must be devices and their weights, such as {{1: 3, 8: 1}}")
        return {_whole(name, key): number(name, weight) for key, weight in value.items()}
    return _whole(name, value) if name == "jobs" else number(name, value)


def _whole(name: str, value: object) -> int:
    found = number(name, value)
    if not found.is_integer():
        raise ValueError(f"{name} is {value!r}; it must be a whole number")
    return int(found)


def _table(rates: Rates | None, what: str) -> RateTable:
    if not isinstance(rates, RateTable):
        raise ValueError(f"{what} needs rates by model and batch size: a folder of MODEL.csv files")
    return rates


def _check_durations(trace: Trace) -> None:
    """Without rates a job's duration says how long it is."""
    missing = np.flatnonzero(np.isnan(trace.jobs.duration))
    _raise(trace, missing, "duration", "without rates a job needs a duration", "name its rates with --rates")


def _check_work(trace: Trace, rates: Rates) -> None:
    """With rates it is the model and the amount of work; jobs that serve, on devices of kinds, have neither."""
    jobs = trace.jobs
    if isinstance(rates, RunRates):
        return
    nameless = np.array([not model.strip() for model in jobs.model], dtype=np.bool_)
    if isinstance(rates, KindRates):
        nameless &= np.isnan(jobs.duration)
    mend = "add --draw-models, or leave --rates out and the durations count"
    _raise(trace, np.flatnonzero(nameless), "model", "the trace names no model, so it has no rate", mend)
    if isinstance(rates, RateTable):
        missing = np.flatnonzero(np.isnan(jobs.work) & np.isnan(jobs.samples))
        mend = "name rates that say it, as those of Pollux do, or add a column `work`"
        _raise(trace, missing, "work", "it is not said how much there is to do", mend)


def _check_models(trace: Trace, rates: Rates) -> None:
    """Jobs with a model have rates; a run's jobs are known by their names."""
    named = np.flatnonzero([bool(model.strip()) for model in trace.jobs.model])
    check_rates(replace(trace, jobs=trace.jobs.take(named)) if len(named) < len(trace) else trace, rates)


def _raise(trace: Trace, rows: Any, column: str, rule: str, mend: str) -> None:
    if len(rows):
        jobs = [trace.jobs[row] for row in rows[:1000].tolist()]
        raise TraceError(
            TraceProblem(trace.file or "trace", f"job {job.name}: {rule}", mend, job.line, column) for job in jobs
        )


DAY = 86400.0
_LATER = 30 * DAY
"""How long after the last arrival drawn failures go on, if nothing else is said, seconds."""
_FAILURES_EXAMPLE = "mean=86400,repair=3600"
_COLUMNS = ("time", "node")
_MOST = 5_000_000


@dataclass(frozen=True)
class DrawnFailures:
    """Every node fails again and again, independently; times to failure are exponential (as in a Poisson process).

    Attributes:
        mean: seconds from a repair to the next failure of a node.
        repair: seconds that a repair takes.
        until: seconds since the first arrival after which nothing fails; None: 30 days after the last arrival.

    Raises:
        ValueError: a number that no node can have.
    """

    mean: float
    repair: float = 3600.0
    until: float | None = None

    def __post_init__(self) -> None:
        for name in ("mean", "repair", "until"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ValueError(f"failures: {name} is {value} s; it must be above 0, and finite")

    def draw(self, cluster: Cluster, trace: Trace, seed: int) -> tuple[NodeFailure, ...]:
        """The failures by time; seed path (seed, "failure").

        Raises:
            ValueError: there would be more than can be played.
        """
        until = self.until if self.until is not None else float(trace.jobs.arrival[-1]) + _LATER
        each = math.ceil(until / (self.mean + self.repair)) + 1
        if each * cluster.nodes > _MOST:
            raise ValueError(
                f"failures: a mean of {self.mean:g} s gives millions of them in {until:g} s; name a larger"
            )
        gaps = generator(seed, "failure").standard_exponential((cluster.nodes, 4 * each + 16)) * self.mean
        times = np.cumsum(gaps + self.repair, axis=1) - self.repair
        found = [
            NodeFailure(time, node, time + self.repair)
            for node, row in enumerate(times.tolist())
            for time in row
            if time < until
        ]
        return tuple(sorted(found, key=lambda failure: (failure.time, failure.node)))


def failures_of(text: str) -> DrawnFailures | Path:
    """What `--failures` says: a file, or mean=...,repair=...,until=...

    Raises:
        ValueError: a name that is not known, or no number.
    """
    if "=" not in text or Path(text).exists():
        return Path(text)
    given = read_settings(text, _FAILURES_EXAMPLE)
    known = ("mean", "repair", "until")
    for name in given:
        if name not in known:
            raise ValueError(
                f"failures: {name!r} is not known; write {_FAILURES_EXAMPLE}, or name a file; known: {', '.join(known)}"
            )
    if "mean" not in given:
        raise ValueError(
            f"failures: the mean seconds between two failures of a node are missing; write {_FAILURES_EXAMPLE}"
        )
    return DrawnFailures(**{name: number(f"failures: {name}", value) for name, value in given.items()})


def read_failures(path: Path, cluster: Cluster) -> tuple[NodeFailure, ...]:
    """Read the columns time, node (from 0) and until; an empty `until` is never. Seconds since the first arrival.

    Raises:
        TraceError: with every cell that is wrong.
    """
    table = read_table(path)
    table.require(_COLUMNS, "failures")
    time, node = table.numbers("time", least=0), table.numbers("node", least=0, whole=True)
    until = table.numbers("until", least=0, optional=True)
    table.check(
        ~(node >= cluster.nodes), "node", f"the cluster's nodes are 0 to {cluster.nodes - 1}", "name one of these"
    )
    table.check(~(until <= time), "until", "it works again before it fails", "correct one of the two")
    table.finish()
    ends = np.where(np.isnan(until), math.inf, until)
    return tuple(
        NodeFailure(at, int(where), end) for at, where, end in sorted(zip(time.tolist(), node.tolist(), ends.tolist()))
    )
