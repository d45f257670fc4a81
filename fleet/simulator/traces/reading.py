"""Reads a trace of any format, which it finds by the file's columns; a run's journal is one, too."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, takewhile
from pathlib import Path

from fleet.journal import events
from fleet.journal.journal import read_journal
from fleet.scheduling.model.data_path import DataPath, Feed
from fleet.scheduling.model.rates import RateCurve
from fleet.simulator.traces import formats
from fleet.simulator.traces.table import TraceError, TraceProblem, TraceTable, advice_on, read_table
from fleet.simulator.traces.trace import JobColumns, Trace, TraceJob

RUN = "journal"
JOURNAL = "journal.jsonl"


def read_run(path: Path) -> Trace:
    """Read a run directory, or its journal.

    Every network is a job. Those that the run knew before its first round arrive when their spec says, the others when
    they were announced. There is to do what the network did: its epochs until it was done, whatever ended it; for one
    that is not done, the epochs that its spec allows. `devices` is the count on which most of its epochs were trained,
    `duration` the time for all of them there, at the last measured rates. `curves` holds these, `losses` those of the
    epochs, which are the same under any policy. `model` is the job's name: networks of one model differ in their rates
    where their virtual workers do.

    Raises:
        TraceError: there is no journal, or no job in it could be trained again.
    """
    journal = path / JOURNAL if path.is_dir() else path
    run = _Run()
    try:
        for event in read_journal(journal):
            run.take(event)
    except OSError as error:
        raise TraceError.of(journal, f"it cannot be read: {error.strerror}", "name the directory of a run") from error
    except ValueError as error:
        mend = "name the journal of a run that this version of fleet wrote"
        raise TraceError.of(journal, f"it cannot be understood: {error}", mend) from error
    if not run.jobs:
        there = "there is no job in it" if journal.is_file() else "there is no such file"
        raise TraceError.of(journal, there, f"name the directory of a run: it holds {JOURNAL}")
    curves = {
        name: job.curve(run.per_node).capped(run.feeds(job.data), job.workers)
        for name, job in run.jobs.items()
        if job.measured
    }
    jobs = [made for name, job in run.jobs.items() if (made := job.made(name, curves.get(name)))]
    if not jobs:
        raise TraceError.of(journal, "no job in it has rates and epochs", "let the run finish an epoch, or profile it")
    notes = tuple(f"{name}: no rates or no epochs are known; it was left out" for name in _left_out(run, jobs))
    losses = {name: found for name, job in run.jobs.items() if (found := job.loss_curve())}
    feeds = {name: feed for name, job in run.jobs.items() if (feed := run.feed_of(job.data)) is not None}
    trace = Trace.of(JobColumns.from_jobs(jobs), str(path), RUN, notes).with_curves(curves)
    return trace.with_losses(losses).with_feeds(feeds)


@dataclass
class _Job:
    """What the journal says of one network."""

    arrival: float
    samples: int | None
    batch: int
    workers: int
    allowed: int | None
    stream: str
    data: str
    due: float | None
    priority: int
    minimum: int
    service: events.ServiceLevel | None
    measured: dict[int, float] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)  # finished epoch -> devices that trained it
    steps: dict[int, int] = field(default_factory=dict)  # finished epochs -> steps since the job began
    losses: dict[int, float] = field(default_factory=dict)  # by epoch, from 1
    outcome: str = ""

    def curve(self, per_node: int) -> RateCurve:
        """r(m), samples/s, from the last measurements."""
        return RateCurve(self.measured, per_node, workers=self.workers)

    def loss_curve(self) -> tuple[float, ...]:
        """From the first epoch on, as far as none is missing."""
        return tuple(takewhile(math.isfinite, (self.losses.get(epoch, math.nan) for epoch in count(1))))

    def made(self, name: str, curve: RateCurve | None) -> TraceJob | None:
        """The job of the trace; None where its rates or its amount of work are not known."""
        trained = max(self.counts, default=0)
        epochs = trained if self.outcome in ("done", "pruned") else self.allowed or trained
        if curve is None or not epochs or not self.samples:
            return None
        devices = Counter(self.counts.values()).most_common(1)[0][0] if self.counts else self.minimum
        samples, batch = float(epochs * self.samples), self.batch * self.workers
        return TraceJob(
            name,
            self.arrival,
            devices,
            model=name,
            batch_size=batch,
            work=self._work(epochs, batch),
            samples=samples,
            duration=samples / curve(devices),
            limit=self.workers,
            minimum_devices=None if self.minimum == 1 else self.minimum,
            workers=self.workers,
            epochs=float(epochs),
            stream=self.stream,
            deadline=None if self.due is None else max(self.arrival, self.due),
            priority=self.priority,
            service_devices=None if self.service is None else self.service.devices,
            service_window=None if self.service is None else self.service.window,
            outcome=self.outcome,
        )

    def _work(self, epochs: int, batch: int) -> float:
        """Steps of so many epochs: those counted, or as many as DDP's sampler, which pads, makes of an epoch."""
        counted = self.steps.get(epochs)
        return float(counted) if counted else float(epochs * math.ceil((self.samples or 0) / batch))


@dataclass
class _Run(events.Observer):
    jobs: dict[str, _Job] = field(default_factory=dict)
    per_node: int = 1
    planned: bool = False
    data_path: DataPath | None = None  # None: nobody measured it

    def feed_of(self, data: str) -> Feed | None:
        """How fast preprocessors make a data set; None: nobody knows."""
        return None if self.data_path is None else self.data_path.feed_of(data)

    def feeds(self, data: str) -> float:
        """Samples/s that preprocessors make of a data set; infinite: nobody knows."""
        return math.inf if self.data_path is None else self.data_path.feeds(data)

    def on_cluster(self, event: events.Cluster) -> None:
        self.per_node = max(event.devices_per_node, default=1)

    def on_planned(self, event: events.Planned) -> None:
        self.planned = True

    def on_preprocessors(self, event: events.Preprocessors) -> None:
        self.data_path = DataPath.of(event.counts, event.of_data, event.of_new)

    def on_job(self, event: events.Job) -> None:
        """A job is announced by every session; the first tells when it arrived."""
        if event.batch_size is None or event.virtual_workers is None:
            raise ValueError(f"job {event.job} has no batch_size or no virtual_workers")
        if event.job not in self.jobs:
            arrival = event.t if self.planned else event.arrival or 0.0
            self.jobs[event.job] = _Job(
                arrival=arrival,
                samples=event.samples,
                batch=event.batch_size,
                workers=event.virtual_workers,
                allowed=event.max_epochs,
                stream=_stream(event) if event.data else "",
                data=event.data or "",
                due=_due(event, arrival),
                priority=event.priority or 0,
                minimum=event.minimum_devices or 1,
                service=event.service_level,
            )

    def on_rates(self, event: events.Rates) -> None:
        if event.job in self.jobs:
            self.jobs[event.job].measured = dict(event.measured)

    def on_guesses(self, event: events.Guesses) -> None:
        for name in event.rates.keys() & self.jobs.keys():
            self.jobs[name].measured = {1: event.rates[name]}

    def on_batch(self, event: events.Batch) -> None:
        if event.job in self.jobs:
            self.jobs[event.job].batch = event.batch // self.jobs[event.job].workers

    def on_epoch(self, event: events.Epoch) -> None:
        if event.job in self.jobs:
            job, epoch = self.jobs[event.job], event.epoch
            job.counts[epoch], job.steps[epoch] = len(event.devices), event.step
            job.losses[epoch] = event.metrics.get("loss", math.nan)

    def on_done(self, event: events.Done | events.Pruned | events.Failed) -> None:
        if event.job in self.jobs:
            self.jobs[event.job].outcome = event.event

    on_pruned = on_failed = on_done


def _stream(event: events.Job) -> str:
    """Whose samples a job reads; journals of before seeds could be apart tell one seed."""
    return f"{event.data}/{event.seed or 0 if event.order_seed is None else event.order_seed}"


def _due(event: events.Job, arrival: float) -> float | None:
    """When a job should be done; older runs said only how long after its arrival."""
    if event.due is None and isinstance(event.deadline, (int, float)):
        return arrival + event.deadline
    return event.due


def _left_out(run: _Run, jobs: list[TraceJob]) -> list[str]:
    kept = {job.name for job in jobs}
    return [name for name in run.jobs if name not in kept]


TraceReader = Callable[[TraceTable], Trace]

TABLES: Mapping[str, TraceReader] = {
    formats.ELASTICFLOW: formats.read_elasticflow,
    formats.EASYSCALE: formats.read_easyscale,
    formats.AS_SIMULATED: formats.read_easyscale_as_simulated,
    formats.POLLUX: formats.read_pollux,
    formats.PHILLY: formats.read_philly,
    formats.NATIVE: formats.read_native,
}
"""Readers of comma-separated files, by format."""

FILES: Mapping[str, Callable[[Path], Trace]] = {formats.PHILLY_LOG: formats.read_philly_log, RUN: read_run}
"""Readers of other files, by format."""

FORMATS = (*TABLES, *FILES)

_PHILLY_MORE = (*formats.PHILLY_NAMES, *formats.PHILLY_TENANTS, *formats.PHILLY_MODELS, *formats.PHILLY_STATUS)
_SIGNS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    (formats.ELASTICFLOW, formats.ELASTICFLOW_COLUMNS, ()),
    (formats.ELASTICFLOW, formats.SHORT_COLUMNS, ()),
    (formats.EASYSCALE, formats.EASYSCALE_COLUMNS, ()),
    (formats.POLLUX, formats.POLLUX_COLUMNS, ()),
    (formats.NATIVE, formats.NATIVE_COLUMNS, formats.NATIVE_OTHERS),
    *(
        (formats.PHILLY, (time, devices, "duration"), _PHILLY_MORE)
        for time in formats.PHILLY_TIMES
        for devices in formats.PHILLY_DEVICES
    ),
)
"""For each format the columns that it needs, and those that it may have."""
_SHOWN = 6  # signs that a report spells out; philly's differ in names alone


def read_trace(path: str | Path, format: str | None = None, start: float | None = None) -> Trace:
    """Read a trace.

    Args:
        path: a file, or the directory of a run.
        format: one of FORMATS; None: found by the columns (of a .json file or of a run's journal, by its name).
        start: when the file's second 0 is, seconds since 1970; None: deadlines are no times of day.

    Raises:
        TraceError: the file cannot be used; it tells of everything that is wrong.
        ValueError: there is no such format.
    """
    path = Path(path)
    if format is not None and format not in FORMATS:
        raise ValueError(f"format {format!r} is not known; {advice_on(format, FORMATS)}")
    format = format or _by_name(path)
    whole = FILES.get(format or "")
    if whole is not None:
        return whole(path)
    table = read_table(path)
    table.relate("deadline", start)
    return TABLES[format or _by_columns(table)](table)


def _by_name(path: Path) -> str | None:
    if path.is_dir() or path.suffix == ".jsonl":
        return RUN
    return formats.PHILLY_LOG if path.suffix == ".json" else None


def _by_columns(table: TraceTable) -> str:
    """The format that knows the most of the columns, and of whose own at least half are there.

    Of those that know equally many, one that misses nothing.
    """
    ranked = [
        (_known(table, needed + more), _known(table, needed) / len(needed), format) for format, needed, more in _SIGNS
    ]
    likely = [rank for rank in ranked if rank[1] >= 0.5]
    if likely:
        return max(likely, key=lambda rank: rank[:2])[2]
    known = "; ".join(f"{format}: {', '.join(columns)}" for format, columns, _ in _SIGNS[:_SHOWN])
    rule = f"no format of traces has these columns: {', '.join(table.columns)}"
    raise TraceError([TraceProblem(table.file, rule, f"name the columns as one of these does - {known}", 1)])


def _known(table: TraceTable, columns: Sequence[str]) -> int:
    return sum(column in table.columns for column in columns)
