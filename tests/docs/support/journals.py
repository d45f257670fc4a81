"""The keys of journal events: those that runs wrote, and those that the code can write."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

from fleet.journal.events import KINDS

COMMON = {"t", "unix", "event", "crc"}
READ = "damaged_line"  # of a warning that stands for a line, and in none


def written(journals: Iterable[Path]) -> dict[str, set[str]]:
    """Event -> keys that it had in any of these journals, but for those that every event has."""
    found: dict[str, set[str]] = {}
    for journal in journals:
        for line in journal.read_text().splitlines():
            event = json.loads(line)
            assert event.keys() >= COMMON, event
            found.setdefault(event["event"], set()).update(event.keys() - COMMON)
    return found


def in_code() -> dict[str, set[str]]:
    """Event -> keys that fleet writes, but for those that every event has."""
    return {kind: {each.name for each in fields(known)} - COMMON - {READ} for kind, known in KINDS.items()}
