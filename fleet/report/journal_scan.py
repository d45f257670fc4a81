"""Folds a journal's lines into where the run stands, and takes apart only those that tell it.

`status.snapshot` holds where a long journal stood a moment ago, so that `fleet status` reads only the lines after that.
The journal stays the truth: a snapshot that is missing, damaged, of another version or of another journal is no
snapshot, and all lines are read.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from fleet.journal import events
from fleet.journal.events import parse
from fleet.journal.journal import as_json, devices_of, event_of, job_name, job_of, new_lines, second_of
from fleet.journal.state import EnergyTotals
from preprocess.files.reading import MOST_JSON_BYTES, open_file, read_bytes
from preprocess.files.writing import write_parts

_HEAD_BYTES = 80  # in which a line tells its kind
_TOLD = re.compile(
    rb'"event":"(?!checkpoint"|planned"|formed"|round_end"|preprocessing")(\w+)"'
    rb'(?:(?:,"round":(?:\d+|null))?,"job":"([^"\\]*)")?'
)
"""A line that is taken in: its kind, and its job where that stands next, as it does where the writer puts it."""


@dataclass
class ScannedJob:
    """One job. `spec`, `rates`, `epoch`, `timed`, `search`, `result`, `word`: its last lines of these kinds, and in
    `begun` that with which its search began it; not taken apart; empty: none.

    Attributes:
        status: pending, running, stopped (goes on), halted (as `fleet stop` asked), paused (its search has to
            decide), pruned (its search wants no more of it), done or failed.
        since: second of the run at which that began.
        devices: on which it runs.
        seconds: device-seconds of the groups that have ended.
        word: the line that gave it its status.
    """

    name: str
    status: str = "pending"
    since: float = 0.0
    devices: tuple[int, ...] = ()
    seconds: float = 0.0
    word: bytes = b""
    spec: bytes = b""
    rates: bytes = b""
    epoch: bytes = b""
    timed: bytes = b""
    search: bytes = b""
    begun: bytes = b""
    result: bytes = b""


@dataclass
class JournalScan(events.Observer):
    """A journal so far; lines are taken in as they come.

    Attributes:
        jobs: by name as it stands in the lines.
        session, cluster, allocation, ended: the last line of that kind in the last session; None: there is none.
        bounds: the last line that says how far the run's search goes; None: there is none.
        plan: the same, not taken apart.
        measuring: the job that was measured last, in a session that trains nothing yet.
        reserved: device-seconds of the sessions that are over.
        energy: that lines tell.
        damaged: lines that are not as they were written, of those that were taken apart.
        begin, now: seconds of the run at which the session began, and the last line was written; unix: the latter.
        offset: bytes that have been read; last: the kind of the last event.
    """

    jobs: dict[bytes, ScannedJob] = field(default_factory=dict)
    sessions: int = 0
    session: events.Session | None = None
    cluster: events.Cluster | None = None
    allocation: events.Allocation | None = None
    bounds: events.Bounds | None = None
    plan: bytes = b""
    ended: events.Ended | None = None
    warnings: int = 0
    stopping: bool = False
    measuring: str = ""
    begin: float = 0.0
    now: float = 0.0
    unix: float = 0.0
    reserved: float = 0.0
    energy: EnergyTotals = EnergyTotals()
    damaged: int = 0
    offset: int = 0
    last: str = ""
    _running: set[bytes] = field(default_factory=set)
    _session_at: int = -1  # where the session began, of the new lines

    def read(self, journal: Path) -> None:
        """Take in what the journal has beyond what was read before.

        Raises:
            FileNotFoundError: there is none.
        """
        for lines, begin, end in new_lines(journal, self.offset):
            if begin < self.offset:  # another file by now
                vars(self).update(vars(JournalScan()))
            if lines:
                self.take_lines(lines)
            else:
                self.damaged += 1
            self.offset = end

    def take_lines(self, lines: bytes) -> None:
        """Take in whole lines."""
        epochs: dict[bytes, int] = {}
        for found in _TOLD.finditer(lines):
            kind, name = found.groups()
            at = found.start()
            head = at - _HEAD_BYTES - 1  # no further: in a line of megabytes that would take long
            start = lines.rfind(b"\n", head if head > 0 else 0, at) + 1
            if at - start > _HEAD_BYTES:  # it stands in a text
                continue
            if kind == b"epoch" and name:
                epochs[name] = start
            else:
                line = lines[start : lines.find(b"\n", at)]
                if kind == b"session":
                    self._see_last(lines, start)
                self._take_line(kind, job_of(line) if name is None else name, line, start)
        for name, start in epochs.items():
            self._job(name).epoch = lines[start : lines.find(b"\n", start)]
        self._see_last(lines, len(lines))

    def _take_line(self, kind: bytes, name: bytes, line: bytes, start: int) -> None:
        if kind in _KEPT:
            job = self._job(name)
            setattr(job, _KEPT[kind], line)
            if kind == b"search" and b'"kind":"start"' in line:
                job.begun = line
        elif kind in _LEFT or kind == b"started":
            self._moved(line, kind, name)
        elif kind in _FOLDED:
            self._fold(line, start)

    def _see_last(self, lines: bytes, end: int) -> None:
        """Take in the last line before a place, and the session's last plan before it."""
        at = lines.rfind(b'"event":"planned"', max(0, self._session_at), end)
        if at > self._session_at:
            self.plan = lines[lines.rfind(b"\n", 0, at) + 1 : lines.find(b"\n", at)]
        self._session_at = -1
        last = lines[lines.rfind(b"\n", 0, max(0, end - 1)) + 1 : max(0, end - 1)]
        event = event_of(last) if last else None
        if event is not None:
            self.last = event.event
            self.now = max(self.now, event.t)
            self.unix = event.unix or self.unix

    def seconds_of(self, job: ScannedJob, now: float) -> float:
        """Device-seconds that a job has held until `now`."""
        return job.seconds + len(job.devices) * max(0.0, now - job.since)

    @property
    def size(self) -> int:
        """Devices of the last session; 0: not known."""
        return 0 if self.cluster is None else self.cluster.size

    def _job(self, name: bytes) -> ScannedJob:
        known = self.jobs.get(name)
        if known is None:
            known = self.jobs[name] = ScannedJob(job_name(name))
        return known

    def _moved(self, line: bytes, kind: bytes, name: bytes) -> None:
        """A job was given devices, or left them, or its state is another."""
        try:
            second = second_of(line)
            devices = devices_of(line) if kind == b"started" else ()
        except ValueError:
            self.damaged += 1
            return
        self.now = max(self.now, second)
        job = self._job(name)
        self._release(job)
        job.status, job.devices, job.word = _STATUS.get(kind) or kind.decode(), devices, line
        if kind == b"started":
            job.timed = b""
            self._running.add(name)
        else:
            self._running.discard(name)

    def _fold(self, line: bytes, start: int) -> None:
        event = event_of(line)
        if event is None:
            self.damaged += 1
            return
        before, self.now = self.now, max(self.now, event.t)
        if isinstance(event, events.Session):
            self._begin(event, before, start)
        else:
            self.take(event)

    def on_cluster(self, event: events.Cluster) -> None:
        self.cluster = event

    def on_guesses(self, event: events.Guesses) -> None:
        for name, rate in event.rates.items():
            line = events.Rates(job=name, source="guessed", measured={1: rate}, fitted=(rate,), t=event.t)
            self._job(json.dumps(name, ensure_ascii=True)[1:-1].encode()).rates = json.dumps(as_json(line)).encode()

    def on_profile(self, event: events.Profile) -> None:
        self.measuring = event.job

    def on_warning(self, event: events.Warned) -> None:
        self.warnings += 1

    def on_energy(self, event: events.Energy) -> None:
        self.energy = self.energy.plus(event)

    def on_stopping(self, event: events.Stopping) -> None:
        self.stopping = True

    def on_ended(self, event: events.Ended) -> None:
        self.ended = event
        self._release_all()

    def on_allocation(self, event: events.Allocation) -> None:
        self.allocation = event

    def on_bounds(self, event: events.Bounds) -> None:
        self.bounds = event

    def _begin(self, event: events.Session, before: float, start: int) -> None:
        """A session begins; the one before was over when it wrote its last line."""
        begin, self.now = self.now, before
        self._release_all()
        self.reserved += self.size * max(0.0, before - self.begin)
        self.sessions += 1
        self.session, self.begin, self.now = event, begin, begin
        self.cluster = self.ended = self.allocation = None
        self.plan, self.stopping, self.measuring, self._session_at = b"", False, "", start

    def _release_all(self) -> None:
        for name in self._running:
            job = self.jobs[name]
            self._release(job)
            job.status, job.word = "stopped", b""
        self._running = set()

    def _release(self, job: ScannedJob) -> None:
        job.seconds = self.seconds_of(job, self.now)
        job.devices, job.since = (), self.now


_KEPT = {
    b"epoch": "epoch",
    b"job": "spec",
    b"rates": "rates",
    b"timed": "timed",
    b"search": "search",
    b"result": "result",
}
_LEFT = frozenset({b"stopped", b"done", b"failed", b"halted", b"taken_up", b"paused", b"pruned", b"twin"})
_STATUS = {b"twin": "done", b"started": "running", b"taken_up": "pending"}
_FOLDED = frozenset(
    {
        b"session",
        b"cluster",
        b"allocation",
        b"profile",
        b"guesses",
        b"warning",
        b"stopping",
        b"ended",
        b"energy",
        b"bounds",
    }
)


NAME = "status.snapshot"
LEAST_BYTES = 16 << 20  # of a journal that takes long enough to read
_FORMAT = 3
_TAIL_BYTES = 4096  # before the place up to which a journal was read: they tell whether it is this one
_PLAIN = ("stopping", "measuring", "last")
_COUNTS = ("sessions", "warnings", "damaged", "offset", "_session_at")
_TIMES = ("begin", "now", "unix", "reserved")
_WORDS = ("last", "measuring", "plan")
_EVENTS = ("session", "cluster", "allocation", "bounds", "ended")
_LINES = ("word", "spec", "rates", "epoch", "timed", "search", "begun", "result")


class Snapshots:
    """Leaves snapshots of a run's journal beside it.

    Args:
        journal: its path.
        least: bytes of a journal below which none is left.
    """

    def __init__(self, journal: Path, least: int = LEAST_BYTES) -> None:
        self._journal, self._least = journal, least
        self._scan: JournalScan | None = None

    def renew(self) -> None:
        """Leave one of what the journal holds now, if it is long. OSError: it cannot be written."""
        if self._journal.stat().st_size < self._least:
            return
        if self._scan is None:
            self._scan = read_snapshot(self._journal) or JournalScan()
        self._scan.read(self._journal)
        write_snapshot(self._journal, self._scan)


def write_snapshot(journal: Path, scan: JournalScan) -> None:
    """Replace the snapshot beside a journal. OSError: it cannot be written."""
    content = json.dumps({**_told(scan), "format": _FORMAT, "tail": _tail(journal, scan.offset)}, separators=(",", ":"))
    write_parts(journal.with_name(NAME), (f"{zlib.crc32(content.encode()):08x}\n", content))


def read_snapshot(journal: Path) -> JournalScan | None:
    """Return what the snapshot beside a journal says of it; None: there is none, or it is of no use."""
    try:
        seal, _, content = read_bytes(journal.with_name(NAME), MOST_JSON_BYTES).partition(b"\n")
        if int(seal, 16) != zlib.crc32(content):
            return None
        told = json.loads(content)
        if told["format"] != _FORMAT or told["tail"] != _tail(journal, told["offset"]):
            return None
        return _scan(told)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _tail(journal: Path, offset: int) -> str:
    """The checksum of the bytes before a place; "" if there are no such."""
    size = min(_TAIL_BYTES, offset)
    with open_file(journal) as file:
        file.seek(offset - size)
        found = file.read(size)
    return f"{zlib.crc32(found):08x}" if len(found) == size else ""


def _told(scan: JournalScan) -> dict[str, Any]:
    """A scan as JSON; bytes are text of as many characters."""
    energy = asdict(scan.energy)
    return {
        **{name: getattr(scan, name) for name in (*_PLAIN, *_COUNTS, *_TIMES)},
        **{name: None if (event := getattr(scan, name)) is None else as_json(event) for name in _EVENTS},
        "plan": _text(scan.plan),
        "energy": {**energy, "sources": sorted(scan.energy.sources)},
        "running": [_text(name) for name in scan._running],
        "jobs": [_job_told(key, job) for key, job in scan.jobs.items()],
    }


def _job_told(key: bytes, job: ScannedJob) -> list[Any]:
    values = [getattr(job, each.name) for each in fields(job)]
    return [_text(key), *(_text(value) if isinstance(value, bytes) else value for value in values)]


def _scan(told: Mapping[str, Any]) -> JournalScan:
    """Raises ValueError and its like where it says what no scan can hold."""
    energy = parse({"event": "energy", **told["energy"]})
    _check(all(type(told[name]) is int and told[name] >= -1 for name in _COUNTS))
    _check(all(type(told[name]) in (int, float) and math.isfinite(told[name]) for name in _TIMES))
    _check(all(isinstance(told[name], str) for name in _WORDS))
    return JournalScan(
        **{name: told[name] for name in (*_PLAIN, *_COUNTS, *_TIMES)},
        **dict[str, Any]({name: told[name] and _event(told[name], name) for name in _EVENTS}),
        plan=_bytes(told["plan"]),
        energy=EnergyTotals().plus(energy),  # type: ignore[arg-type]
        _running={_bytes(name) for name in told["running"]},
        jobs={_bytes(key): _job(values) for key, *values in told["jobs"]},
    )


def _event(told: Any, kind: str) -> Any:
    _check(told["event"] == kind)
    return parse(told)


def _job(values: list[Any]) -> ScannedJob:
    told = dict(zip((each.name for each in fields(ScannedJob)), values, strict=True))
    lines = {name: _bytes(told[name]) for name in _LINES}
    _check(all(isinstance(told[name], str) for name in ("name", "status")))
    _check(all(type(told[name]) in (int, float) and math.isfinite(told[name]) for name in ("since", "seconds")))
    _check(all(type(device) is int for device in told["devices"]))
    return ScannedJob(**{**told, **lines, "devices": tuple(told["devices"])})


def _check(right: bool) -> None:
    if not right:
        raise ValueError("no scan of a journal says that")


def _text(line: bytes) -> str:
    return line.decode("latin-1")


def _bytes(text: str) -> bytes:
    return text.encode("latin-1")
