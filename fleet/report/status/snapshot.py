"""status.snapshot: where a long journal stood a moment ago, so that `fleet status` reads only the lines after that.

The journal stays the truth. A snapshot that is missing, damaged, of another version or of another journal is no
snapshot, and all lines are read.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from fleet.journal.events import parse
from fleet.journal.journal import as_json
from fleet.journal.state import EnergyTotals
from fleet.report.status.scan import JournalScan, ScannedJob
from preprocess.files.reading import MOST_JSON_BYTES, open_file, read_bytes
from preprocess.files.writing import write_parts

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
