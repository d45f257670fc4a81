"""Keeps the books and the journal one: what happens is written down, and changes the books by what was written.

Nobody else changes the books of a run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from fleet.coordination.ledger import Ledger
from fleet.run_directory.journal import Journal, JournalLine
from fleet.run_directory.sample_counts import SampleCounts
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.model.service_level import ServiceWindow


class Bookkeeper:
    """Writes down what happens in a run, and changes its books accordingly, in one call.

    The books change by the line alone: lines of earlier sessions, read again, change them as they did then.

    Args:
        ledger: the books.
        journal: its clock is that of the books.
    """

    def __init__(self, ledger: Ledger, journal: Journal) -> None:
        self.ledger, self.journal = ledger, journal

    def record(self, event: str, **keys: Any) -> None:
        """Write down one event of the journal, with its keys, and change the books by it."""
        if event == "done":
            deadline = self.ledger.jobs[keys["job"]].state.deadline
            keys["deadline"] = deadline if deadline < math.inf else None
        take_line(self.ledger, self.journal.write(event, **keys))

    def record_rates(self, name: str, curves: Mapping[str, RateCurve], source: str) -> None:
        """Write down samples/s of a job on each kind of device: as measured, and as the curve has them for each count.

        Who knows of no kinds finds the home kind's.

        Args:
            curves: by kind; one under "" where all devices are alike.
        """
        curve = curves[self.ledger.home(name, curves)]
        fitted = [float(rate) for rate in curve.rates(min(self.ledger.jobs[name].limit, self.ledger.cluster.size))]
        kinds = {kind: dict(each.measured) for kind, each in curves.items() if kind}
        told = {"kinds": kinds} if kinds else {}
        self.record("rates", job=name, source=source, measured=dict(curve.measured), fitted=fitted, **told)

    def record_windows(self, windows: Iterable[ServiceWindow]) -> None:
        """Write down what became of promised service levels."""
        for window in windows:
            self.record(
                "service_window", job=window.job, begin=window.begin, end=window.end, promised=window.promised,
                had=window.had, broken=window.broken,
            )  # fmt: skip

    def note(self, event: str, **keys: Any) -> None:
        """Change the books by what the journal need not keep: the next session learns it anew, from files or a clock.

        Keys may be objects that JSON cannot hold.
        """
        take_line(self.ledger, {"event": event, "t": self.journal.seconds(), **keys})

    def announce(self, event: str, **keys: Any) -> None:
        """Tell what passes too often to be kept to those who watch, and to nobody else."""
        self.journal.announce(event, **keys)
        self.note(event, **keys)


def recall(ledger: Ledger, lines: Iterable[JournalLine]) -> None:
    """Change fresh books by all that earlier sessions wrote down; then nobody holds a device any more."""
    for line in lines:
        take_line(ledger, line)
    ledger.reopened()


def take_line(ledger: Ledger, line: JournalLine) -> None:
    """Change the books by one line; what it says of a job that they do not have is passed over."""
    job = line.get("job")
    if job is None:
        _change_run(ledger, line)
    elif job in ledger.jobs:
        _change_job(ledger, job, line)


def _change_run(ledger: Ledger, line: JournalLine) -> None:
    match line["event"]:
        case "session":
            ledger.reopened()
            ledger.session_began()
        case "planned":
            ledger.planned({job: tuple(devices) for job, devices in line["allocation"].items()}, line["t"])
            ledger.lent.planned(line.get("lent"))
        case "round_end":
            ledger.round_ended(line["t"])
        case "preprocessors":
            ledger.preprocessors_measured(line)
        case "lost":
            ledger.devices_lost(line["devices"])
        case "samples":
            ledger.samples_counted(SampleCounts(line["read"], line["laid"], line["made"]))
        case "energy":
            ledger.energy_read(line)
        case "ended":
            ledger.round_ended(line["t"])
            ledger.ended(line["overhead_seconds"])
        case "arrived":
            ledger.arrived(line["jobs"])
        case "promises":
            ledger.promised(line["promises"])
        case "charged":
            ledger.charged(line["to"], line["seconds"])
        case "rating":
            ledger.rating(line["begins"])
        case "added":
            ledger.added(line["record"])


def _change_job(ledger: Ledger, job: str, line: JournalLine) -> None:
    if "best" in line:
        ledger.best_kept(job, line["best"])
    match line["event"]:
        case "profile":
            ledger.formed(line.get("forming", 0.0))
        case "rates" if line.get("source") != "training":  # those follow from the epochs
            kinds = line.get("kinds") or {"": line["measured"]}
            curves = {kind: _curve(ledger, job, kind, measured) for kind, measured in kinds.items()}
            ledger.rated(job, curves, line.get("source") == "guessed")
        case "batch_profile":
            ledger.rated_with(job, line["batch"], line["rate"])
        case "executor_profile":
            ledger.rated_together(job, line["executors"], line["rate"])
        case "batch":
            if line.get("epoch") is None:
                ledger.batch_fixed(job, line["batch"])
            else:
                ledger.batch_changed(job, line["batch"], line["epoch"], line.get("parts", 1))
        case "admitted":
            deadline = line.get("deadline")
            ledger.admitted(job, math.inf if deadline is None else deadline)
        case "late":
            ledger.promise_broken(job, line["deadline"], line["end"])
        case "service_window":
            ledger.service_told(job, line["broken"])
        case "pardoned":
            ledger.pardoned(job, line["t"])
        case "set_back":
            ledger.goes_on_from(job, line["epoch"], line["step"], line["t"])
        case "started":
            ledger.goes_on_from(job, line["epoch"], line["step"], line["t"])
            shares = tuple(line.get("shares", ()))
            kind, lane, kept = line.get("kind", ""), line.get("lane", 0), tuple(line.get("kept", ()))
            ledger.started(job, tuple(line["devices"]), line["t"], lane, shares, kind, kept)
            ledger.lent.started(job, line.get("prepared_by", ()))
        case "done":
            metrics, checkpoint, deadline = line.get("metrics", {}), line.get("checkpoint"), line.get("deadline")
            ledger.done(job, line["epoch"], metrics, checkpoint, line["t"], deadline)
        case "extended":
            ledger.stopped(job, ledger.jobs[job].epoch, ledger.jobs[job].step, line["t"])
            if ledger.jobs[job].until is not None:
                ledger.added(ledger.jobs[job].limited(line["epochs"]))
        case "failed":
            text = _error(line)
            ledger.failed(job, line["epoch"], text, line["t"], line.get("cost_ranks", False))
        case _:
            _change_trial(ledger, job, line)


def _change_trial(ledger: Ledger, job: str, line: JournalLine) -> None:
    """What the search says of a trial."""
    match line["event"]:
        case "search" if line["kind"] in ("start", "resume"):
            ledger.added(ledger.jobs[job].limited(line["end"]))
        case "ahead":
            ledger.added(ledger.jobs[job].limited(line["epoch"], ahead=not (line.get("sure") or line.get("probable"))))
        case "dropped":
            ledger.added(replace(ledger.jobs[job], checkpoint=None))
        case "further":
            record = ledger.jobs[job]
            ledger.added(replace(record, state=record.state.changed(further=line["epochs"])))
        case "withdrawn":
            found = (line["epoch"], line["metrics"], line["checkpoint"])
            ledger.added(ledger.jobs[job].withdrawn(*found, line["t"]))
        case _:
            _change_unsaid(ledger, job, line)


def _change_unsaid(ledger: Ledger, job: str, line: JournalLine) -> None:
    """What a run finds out anew at each start, and its journal does not say."""
    match line["event"]:
        case "halted" | "taken_up":
            ledger.halted(job, line["event"] == "halted")
        case "rank_cost":
            ledger.cost_ranks(job)
        case "stands":
            ledger.stands_at(job, line["found"])
        case "rate_known":
            ledger.rated_with(job, line["batch"], line["rate"])
        case "fits":
            ledger.fits(job, line["samples"])
        case "range_cut":
            ledger.range_cut(job, line["least"], line["most"])
        case "rehearses":
            ledger.rehearses(job, line["curves"])
        case _:
            _change_running(ledger, job, line)


def _change_running(ledger: Ledger, job: str, line: JournalLine) -> None:
    match line["event"]:
        case "formed":
            ledger.charged("reforming", line["seconds"] * ledger.share(job))
            ledger.formed(line["seconds"])
        case "timed":
            ledger.timed(job, line["rate"])
        case "progress":
            ledger.progressed(job, line["epoch"], line["step"], line["t"])
        case "slowed":
            ledger.slowed(job, line["rate"])
        case "epoch":
            computed = {int(device): seconds for device, seconds in line.get("computed", {}).items()}
            ledger.epoch_ended(job, line["epoch"], line["metrics"], line.get("rate", 0.0), line["t"], computed)
            ledger.was_deaf(job, line.get("deaf", 0.0))
            if rate := line.get("rate", 0.0):
                ledger.epoch_took(job, line.get("seconds", 0.0) - ledger.jobs[job].state.epoch / rate)
        case "checkpoint":
            ledger.charged("checkpoint", line.get("seconds", 0.0) * ledger.share(job))
            ledger.saved(job, line["path"], line.get("seconds", 0.0))
        case "stopped" | "paused":
            ledger.stopped(job, line["epoch"], line["step"], line["t"])
            if line["why"] == "lost" and not ledger.lost_devices.isdisjoint(line["devices"]):
                ledger.cost_ranks(job)


def _error(line: JournalLine) -> str:
    """A traceback says all; how a process ended, its stack alone does not."""
    traceback = line.get("traceback")
    if traceback and line.get("cost_ranks"):
        return f"{line['error']}\n{traceback}"
    return str(traceback or line["error"])


def _curve(ledger: Ledger, job: str, kind: str, measured: Mapping[str | int, float]) -> RateCurve:
    rates = {int(count): rate for count, rate in measured.items()}
    return RateCurve(rates, per_node=ledger.cluster.per_node(kind), workers=ledger.jobs[job].limit)
