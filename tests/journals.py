"""Journals as tests make them, and as anybody reads them who knows their lines alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from fleet.journal.events import KINDS, Event, parse
from fleet.journal.journal import as_json

Line = dict[str, Any]
_USUAL: Line = {
    "epoch": 0, "step": 0, "devices": [0], "metrics": {}, "count": 1, "rate": 1.0, "trial": 0, "job": "a", "why": "",
    "error": "", "path": "", "seconds": 0.0, "end": 1, "time": 0, "start": 0, "cost": 1, "ranks": [], "allocation": {},
    "devices_per_node": [], "overhead_seconds": {}, "width": 1, "kind": "train", "stage": "source",
}  # fmt: skip


def as_event(line: Mapping[str, Any]) -> Event:
    """The event of a line; keys that its test leaves out have usual values."""
    known = {each.name for each in fields(KINDS[line["event"]])} if line["event"] in KINDS else set()
    usual = {key: value for key, value in _USUAL.items() if key in known - line.keys()}
    try:
        return parse(json.loads(json.dumps(line)))
    except ValueError:
        return parse({**usual, **json.loads(json.dumps(line))})


def as_events(lines: Iterable[Mapping[str, Any]]) -> list[Event]:
    """The events of lines."""
    return [as_event(line) for line in lines]


def lines_told(events: Iterable[Event]) -> list[Line]:
    """Events as lines of a journal."""
    return [as_json(event) for event in events]


def read_lines(path: Path) -> Iterator[Line]:
    """The lines of a journal that are whole."""
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            found = json.loads(line)
        except ValueError:
            continue
        found.pop("crc", None)
        yield found
