"""The keys of journal events: those that runs wrote, and those that the code can write."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable
from pathlib import Path

from tests.docs.support.pages import ROOT

COMMON = {"t", "unix", "event"}


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
    """Event -> keys that are spelt out where fleet writes it; keys that a call takes from a mapping are not seen."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "fleet").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and _writes_event(node):
                event = str(node.args[0].value)  # type: ignore[attr-defined]
                found.setdefault(event, set()).update(key.arg for key in node.keywords if key.arg)
    return found


def _writes_event(call: ast.Call) -> bool:
    """Whether it is `journal.write("...", ...)`."""
    function = call.func
    if not (isinstance(function, ast.Attribute) and function.attr == "write" and len(call.args) == 1):
        return False
    first = call.args[0]
    return "journal" in ast.unparse(function.value) and isinstance(first, ast.Constant) and isinstance(first.value, str)
