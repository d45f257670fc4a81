"""The journal of a run, read as a trace: the networks that it trained, and their measured rates."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from itertools import count, takewhile
from pathlib import Path

from fleet.journal import events
from fleet.journal.journal import read_journal
from fleet.scheduling.model.data_path import DataPath, Feed
from fleet.scheduling.model.rates import RateCurve
from fleet.simulator.traces.columns import JobColumns
from fleet.simulator.traces.job import TraceJob
from fleet.simulator.traces.problem import TraceError
from fleet.simulator.traces.trace import Trace

FORMAT = "journal"
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
    trace = Trace.of(JobColumns.from_jobs(jobs), str(path), FORMAT, notes).with_curves(curves)
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
