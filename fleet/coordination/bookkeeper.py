"""Keeps the books and the journal one: what happens is written down, and changes the books by what was written.

Nobody else changes the books of a run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import ParamSpec

from fleet.coordination.ledger import Ledger
from fleet.journal import events
from fleet.journal.journal import Journal
from fleet.journal.state import SampleCounts
from fleet.scheduling.model.data_path import DataPath
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.model.service_level import ServiceWindow

P = ParamSpec("P")


class Bookkeeper:
    """Writes down what happens in a run, and changes its books accordingly, in one call.

    The books change by the event alone: those of earlier sessions, read again, change them as they did then.

    Args:
        ledger: the books.
        journal: its clock is that of the books.
    """

    def __init__(self, ledger: Ledger, journal: Journal) -> None:
        self.ledger, self.journal = ledger, journal
        self._changes = BookChanges(ledger)

    def record(self, event: events.Event) -> None:
        """Write down an event of the journal, and change the books by it."""
        if isinstance(event, events.Done):
            deadline = self.ledger.jobs[event.job].state.deadline
            event = replace(event, deadline=deadline if deadline < math.inf else None)
        self._changes.take(self.journal.write(event))

    def record_rates(self, name: str, curves: Mapping[str, RateCurve], source: str) -> None:
        """Write down samples/s of a job on each kind of device: as measured, and as the curve has them for each count.

        Who knows of no kinds finds the home kind's.

        Args:
            curves: by kind; one under "" where all devices are alike.
        """
        curve = curves[self.ledger.home(name, curves)]
        counts = min(self.ledger.jobs[name].limit, self.ledger.cluster.size)
        fitted = tuple(float(rate) for rate in curve.rates(counts))
        kinds = {kind: dict(each.measured) for kind, each in curves.items() if kind}
        self.record(events.Rates(job=name, source=source, measured=dict(curve.measured), fitted=fitted, kinds=kinds))

    def record_windows(self, windows: Iterable[ServiceWindow]) -> None:
        """Write down what became of promised service levels."""
        for window in windows:
            self.record(
                events.ServiceWindow(
                    job=window.job,
                    begin=window.begin,
                    end=window.end,
                    promised=window.promised,
                    had=window.had,
                    broken=window.broken,
                )
            )

    def note(self, change: Callable[P, None], *what: P.args, **more: P.kwargs) -> None:
        """Change the books by what the journal need not keep: the next session learns it anew, from files or a clock.

        Args:
            change: a method of the books.
        """
        change(*what, **more)

    def announce(self, event: events.Event) -> None:
        """Tell what passes too often to be kept to those who watch, and to nobody else."""
        self._changes.take(self.journal.announce(event))


def recall(ledger: Ledger, told: Iterable[events.Event]) -> None:
    """Change fresh books by all that earlier sessions wrote down; then nobody holds a device any more."""
    changes = BookChanges(ledger)
    for event in told:
        changes.take(event)
    ledger.reopened()


class BookChanges(events.Observer):
    """What each event changes in the books; what one says of a job that they do not have is passed over."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def take(self, event: events.Event) -> None:
        """Change the books by an event."""
        if not isinstance(event, events.JobEvent) or event.job in self._ledger.jobs:
            super().take(event)

    # the run

    def on_session(self, event: events.Session) -> None:
        self._ledger.reopened()
        self._ledger.session_began()

    def on_planned(self, event: events.Planned) -> None:
        self._ledger.planned(event.allocation, event.t, event.others_go_on)
        self._ledger.lent.planned(event.lent)

    def on_round_end(self, event: events.RoundEnded) -> None:
        self._ledger.round_ended(event.t)

    def on_preprocessors(self, event: events.Preprocessors) -> None:
        self._ledger.preprocessors_measured(DataPath.of(event.counts, event.of_data, event.of_new))

    def on_lost(self, event: events.RanksLost) -> None:
        self._ledger.devices_lost(event.devices)

    def on_samples(self, event: events.Samples) -> None:
        self._ledger.samples_counted(SampleCounts(event.read, event.laid, event.made))

    def on_energy(self, event: events.Energy) -> None:
        self._ledger.energy_read(event)

    def on_ended(self, event: events.Ended) -> None:
        self._ledger.round_ended(event.t)
        self._ledger.ended(event.overhead_seconds)

    # a job before it trains

    def on_profile(self, event: events.Profile) -> None:
        self._ledger.formed(event.forming)

    def on_rates(self, event: events.Rates) -> None:
        if event.source != "training":  # those follow from the epochs
            job, kinds = event.job, event.kinds or {"": event.measured}
            per_node, limit = self._ledger.cluster.per_node, self._ledger.jobs[job].limit
            curves = {kind: RateCurve(rates, per_node=per_node(kind), workers=limit) for kind, rates in kinds.items()}
            self._ledger.rated(job, curves, event.source == "guessed")

    def on_batch_profile(self, event: events.BatchProfile) -> None:
        self._ledger.rated_with(event.job, event.batch, event.rate)

    def on_executor_profile(self, event: events.ExecutorProfile) -> None:
        self._ledger.rated_together(event.job, event.executors, event.rate)

    def on_batch(self, event: events.Batch) -> None:
        if event.epoch is None:
            self._ledger.batch_fixed(event.job, event.batch)
        else:
            self._ledger.batch_changed(event.job, event.batch, event.epoch, event.parts or 1)

    def on_admitted(self, event: events.Admitted) -> None:
        self._ledger.admitted(event.job, math.inf if event.deadline is None else event.deadline)

    def on_late(self, event: events.Late) -> None:
        self._ledger.promise_broken(event.job, event.deadline, event.end)

    def on_service_window(self, event: events.ServiceWindow) -> None:
        self._ledger.service_told(event.job, event.broken)

    def on_pardoned(self, event: events.Pardoned) -> None:
        self._ledger.pardoned(event.job, event.t)

    def on_rank_cost(self, event: events.RankCost) -> None:
        self._ledger.cost_ranks(event.job)

    # a job while it trains

    def on_started(self, event: events.Started) -> None:
        job = event.job
        self._ledger.goes_on_from(job, event.epoch, event.step, event.t)
        self._ledger.started(job, event.devices, event.t, event.lane, event.shares, event.kind, event.kept)
        self._ledger.lent.started(job, event.prepared_by)

    def on_formed(self, event: events.Formed) -> None:
        self._ledger.charged("reforming", event.seconds * self._ledger.share(event.job))
        self._ledger.formed(event.seconds)

    def on_timed(self, event: events.Timed) -> None:
        self._ledger.timed(event.job, event.rate)

    def on_progress(self, event: events.Progress) -> None:
        self._ledger.progressed(event.job, event.epoch, event.step, event.t)

    def on_slowed(self, event: events.Slowed) -> None:
        self._ledger.slowed(event.job, event.rate)

    def on_epoch(self, event: events.Epoch) -> None:
        job, rate = event.job, event.rate or 0.0
        self._ledger.epoch_ended(job, event.epoch, event.metrics, rate, event.t, event.computed)
        self._ledger.was_deaf(job, event.deaf)
        if rate:
            self._ledger.epoch_took(job, event.seconds - self._ledger.jobs[job].state.epoch / rate)

    def on_checkpoint(self, event: events.Checkpoint) -> None:
        if event.best is not None:
            self._ledger.best_kept(event.job, event.best)
        self._ledger.charged("checkpoint", event.seconds * self._ledger.share(event.job))
        self._ledger.saved(event.job, event.path, event.seconds)

    def on_best(self, event: events.BestKept) -> None:
        self._ledger.best_kept(event.job, event.best)

    def on_set_back(self, event: events.SetBack) -> None:
        self._ledger.goes_on_from(event.job, event.epoch, event.step, event.t)

    # how a job's training ends

    def on_stopped(self, event: events.Stopped | events.Paused) -> None:
        self._ledger.stopped(event.job, event.epoch, event.step, event.t)
        if event.why == "lost" and not self._ledger.lost_devices.isdisjoint(event.devices):
            self._ledger.cost_ranks(event.job)

    on_paused = on_stopped

    def on_halted(self, event: events.Halted) -> None:
        self._ledger.halted(event.job)

    def on_taken_up(self, event: events.TakenUp) -> None:
        self._ledger.halted(event.job, False)

    def on_done(self, event: events.Done) -> None:
        self._ledger.done(event.job, event.epoch, event.metrics, event.checkpoint, event.t, event.deadline)

    def on_failed(self, event: events.Failed) -> None:
        text = event.traceback or event.error  # a traceback says all; how a process ended, its stack alone does not
        if event.traceback and event.cost_ranks:
            text = f"{event.error}\n{event.traceback}"
        self._ledger.failed(event.job, event.epoch, text, event.t, event.cost_ranks)

    def on_extended(self, event: events.Extended) -> None:
        job = self._ledger.jobs[event.job]
        self._ledger.stopped(job.name, job.epoch, job.step, event.t)
        if job.until is not None:
            self._ledger.added(self._ledger.jobs[job.name].limited(event.epochs))

    # the trial of a search

    def on_search(self, event: events.Decided) -> None:
        if event.kind in ("start", "resume"):
            self._ledger.added(self._ledger.jobs[event.job].limited(event.end))

    def on_ahead(self, event: events.Ahead) -> None:
        ahead = not (event.sure or event.probable)
        self._ledger.added(self._ledger.jobs[event.job].limited(event.epoch, ahead=ahead))

    def on_dropped(self, event: events.Dropped) -> None:
        self._ledger.added(replace(self._ledger.jobs[event.job], checkpoint=None))

    def on_withdrawn(self, event: events.Withdrawn) -> None:
        job = self._ledger.jobs[event.job]
        self._ledger.added(job.withdrawn(event.epoch, event.metrics, event.checkpoint, event.t))
