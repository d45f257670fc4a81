"""The keys of journal events: those that runs wrote, and those that the code can write."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from tests.docs.support.pages import ROOT

COMMON = {"t", "unix", "event", "crc"}


def written(journals: Iterable[Path]) -> dict[str, set[str]]:
    """Event -> keys that it had in any of these journals, but for those that every event has."""
    found: dict[str, set[str]] = {}
    for journal in journals:
        for line in journal.read_text().splitlines():
            event = json.loads(line)
            assert event.keys() >= COMMON, event
            found.setdefault(event["event"], set()).update(event.keys() - COMMON)
    return found


@cache
def in_code() -> dict[str, set[str]]:
    """Event -> keys that are spelt out where fleet writes it; keys that a call takes from a mapping are not seen."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "fleet").rglob("*.py")):
        text = path.read_text()
        if path.name != "event_lines.py" and ".write(" not in text and ".record(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and _writes_event(node):
                event = str(node.args[0].value)  # type: ignore[attr-defined]
                found.setdefault(event, set()).update(key.arg for key in node.keywords if key.arg)
            elif path.name == "event_lines.py" and isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
                name, line = node.value.elts  # a line by its event and its keys
                found.setdefault(ast.literal_eval(name), set()).update(_spelt_out(line))
    return found


def _spelt_out(line: ast.expr) -> set[str]:
    keys = line.keys if isinstance(line, ast.Dict) else []
    return {key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}


def _writes_event(call: ast.Call) -> bool:
    """Whether it is `journal.write("...", ...)`, or a bookkeeper's `record("...", ...)`, which writes the same line."""
    function = call.func
    if not (isinstance(function, ast.Attribute) and len(call.args) == 1 and function.attr in ("record", "write")):
        return False
    first = call.args[0]
    writes = function.attr == "record" or "journal" in ast.unparse(function.value).lower()
    return writes and isinstance(first, ast.Constant) and isinstance(first.value, str)
