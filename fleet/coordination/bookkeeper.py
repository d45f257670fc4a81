"""Keeps the books and the journal one: what happens is written down, and changes the books by what was written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fleet.coordination.ledger import Ledger
from fleet.run_directory.journal import Journal
from fleet.scheduling.model.rates import RateCurve

Line = Mapping[str, Any]
"""A line of the journal; "t" is the second of the run, "event" what happened."""


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
        change(self.ledger, self.journal.write(event, **keys))

    def announce(self, event: str, **keys: Any) -> None:
        """The same for what passes too often to be kept: it is told to those who watch alone."""
        self.journal.announce(event, **keys)
        change(self.ledger, {"event": event, "t": self.journal.seconds(), **keys})


def recall(ledger: Ledger, lines: Iterable[Line]) -> None:
    """Change fresh books by all that earlier sessions wrote down; then nobody holds a device any more."""
    for line in lines:
        change(ledger, line)
    ledger.reopened()


def change(ledger: Ledger, line: Line) -> None:
    """Change the books by one line; what it says of a job that they do not have is passed over."""
    how, job = _CHANGES.get(line["event"]), line.get("job")
    if how is not None and (job is None or job in ledger.jobs):
        how(ledger, line)


def _session(ledger: Ledger, line: Line) -> None:
    ledger.reopened()
    ledger.sessions += 1


def _planned(ledger: Ledger, line: Line) -> None:
    ledger.planned({job: tuple(devices) for job, devices in line["allocation"].items()}, line["t"])


def _round_end(ledger: Ledger, line: Line) -> None:
    ledger.round_ended(line["t"])


def _ended(ledger: Ledger, line: Line) -> None:
    ledger.round_ended(line["t"])
    ledger.overhead.update(line["overhead_seconds"])


def _lost(ledger: Ledger, line: Line) -> None:
    ledger.devices_lost(line["devices"])


def _profile(ledger: Ledger, line: Line) -> None:
    ledger.formed(line.get("forming", 0.0))


def _rates(ledger: Ledger, line: Line) -> None:
    if line.get("source") != "training":  # that follows from the epochs
        measured = {int(count): rate for count, rate in line["measured"].items()}
        per_node, workers = max(ledger.cluster.devices_per_node), ledger.jobs[line["job"]].limit
        ledger.rated(line["job"], RateCurve(measured, per_node=per_node, workers=workers))


def _batch_profile(ledger: Ledger, line: Line) -> None:
    ledger.rated_with(line["job"], line["batch"], line["rate"])


def _batch(ledger: Ledger, line: Line) -> None:
    ledger.batch_fixed(line["job"], line["batch"])


def _admitted(ledger: Ledger, line: Line) -> None:
    ledger.admitted(line["job"])


def _pardoned(ledger: Ledger, line: Line) -> None:
    ledger.pardoned(line["job"], line["t"])


def _started(ledger: Ledger, line: Line) -> None:
    ledger.goes_on_from(line["job"], line["epoch"], line["step"], line["t"])
    ledger.started(line["job"], tuple(line["devices"]), line["t"], line.get("lane", 0))


def _formed(ledger: Ledger, line: Line) -> None:
    ledger.charged("reforming", line["seconds"] * ledger.share(line["job"]))
    ledger.formed(line["seconds"])


def _progress(ledger: Ledger, line: Line) -> None:
    ledger.progressed(line["job"], line["epoch"], line["step"], line["t"])


def _epoch(ledger: Ledger, line: Line) -> None:
    ledger.epoch_ended(line["job"], line["epoch"], line["metrics"], line.get("rate", 0.0), line["t"])
    ledger.was_deaf(line["job"], line.get("deaf", 0.0))


def _checkpoint(ledger: Ledger, line: Line) -> None:
    seconds = line.get("seconds", 0.0)
    ledger.charged("checkpoint", seconds * ledger.share(line["job"]))
    ledger.saved(line["job"], line["path"], seconds)


def _set_back(ledger: Ledger, line: Line) -> None:
    ledger.goes_on_from(line["job"], line["epoch"], line["step"], line["t"])


def _stopped(ledger: Ledger, line: Line) -> None:
    ledger.stopped(line["job"], line["epoch"], line["step"], line["t"])
    if line["why"] == "lost" and not ledger.lost.isdisjoint(line["devices"]):
        ledger.cost_ranks(line["job"])


def _done(ledger: Ledger, line: Line) -> None:
    ledger.done(line["job"], line["epoch"], line.get("metrics", {}), line.get("checkpoint"), line["t"])


def _failed(ledger: Ledger, line: Line) -> None:
    ledger.failed(line["job"], line["epoch"], line.get("traceback") or line["error"], line["t"])


_CHANGES: Mapping[str, Callable[[Ledger, Line], None]] = {
    "session": _session,
    "planned": _planned,
    "round_end": _round_end,
    "ended": _ended,
    "lost": _lost,
    "profile": _profile,
    "rates": _rates,
    "batch_profile": _batch_profile,
    "batch": _batch,
    "admitted": _admitted,
    "pardoned": _pardoned,
    "started": _started,
    "formed": _formed,
    "progress": _progress,
    "epoch": _epoch,
    "checkpoint": _checkpoint,
    "set_back": _set_back,
    "stopped": _stopped,
    "done": _done,
    "failed": _failed,
}
