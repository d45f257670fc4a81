"""The first command on a machine with a GPU: whether fleet works there, with which bits, how fast, in how much memory.

One part after another, each in a process of its own and bounded in time; one that fails leaves the others. What was
found is kept in profiles/gpu, from where docs/explanation/gpu.md has its tables. Logs: runs/gpu-check.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NoReturn

from benchmarks.bars import bar
from benchmarks.gpu import kept
from benchmarks.gpu.found_device import FoundDevice, NoDevice, find
from benchmarks.gpu.measuring import MODULES, measured
from benchmarks.gpu.part import ROOT, Given
from fleet.machine.launch.launched import BAD_INPUT
from fleet.machine.standard_streams import tell
from preprocess.files.writing import make_folder

WEIGHTS: Mapping[str, float] = {
    "doctor": 15, "digits": 60, "tests": 90, "steps": 110, "figure-12": 75, "figure-13": 30, "members": 100,
    "several": 120,
}  # fmt: skip
"""How parts share the time; what one leaves goes to those after it."""
SECONDS = 480.0
LOGS = Path("runs/gpu-check")
_OF_SEVERAL = "several"


def main(repetitions: int = 0, parts: str = "", seconds: float = 0.0, device: str = "") -> dict[str, Any]:
    """Measure the parts; return {"bars": [...], "tables": [...], "notes": [...], "parts": {...}, "markdown": TEXT}.

    parts: names with commas between; all if none is given. seconds: for all of them; SECONDS if 0.
    device: "rig" tries everything on the accelerator that tests compile, with small sizes; it keeps nothing.
    """
    begin, chosen = time.monotonic(), _chosen(parts)
    if device not in ("", "rig"):
        _refuse(f"--device {device}: leave it out for this machine's GPU, or say rig")
    if device == "rig":
        _take_the_rig()
    try:
        found = find()
    except NoDevice as error:
        _refuse(str(error))
    chosen = [name for name in chosen if name != _OF_SEVERAL or found.count > 1 or parts]
    when = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    told, note = _measured(chosen, found, begin + (seconds or SECONDS), when)
    result = _joined(told)
    result["markdown"] = kept.as_markdown(kept.kept(found, when, told, None))
    result["notes"].append(note or "figures of the rig are no figures of a GPU: nothing is kept")
    return result


def _keep(found: FoundDevice, when: str, told: Mapping[str, Any]) -> str:
    try:
        return f"kept in {kept.keep(found, when, told).relative_to(ROOT)}"
    except OSError as error:
        return f"not kept: {error}; --json prints everything"


def _chosen(parts: str) -> list[str]:
    chosen = parts.split(",") if parts else list(MODULES)
    unknown = [name for name in chosen if name not in MODULES]
    if unknown:
        _refuse(f"--parts {parts}: there is no part {unknown[0]!r}; there are: {', '.join(MODULES)}")
    return [name for name in MODULES if name in chosen]


def _refuse(text: str) -> NoReturn:
    tell(text)
    sys.exit(BAD_INPUT)


def _take_the_rig() -> None:
    """Let this process's children see two devices of the rig."""
    from tests.device.building import NoCompiler, built
    from tests.warm.starting import RIG_FOLDER, python_path

    try:
        folder = built()
    except NoCompiler as error:
        _refuse(str(error))
    rules = {"RIG_DEVICES": "2", "RIG_GENERATOR": "host", "RIG_SCHEDULE": "prompt"}
    os.environ |= {RIG_FOLDER: str(folder), **{name: value for name, value in rules.items() if name not in os.environ}}
    os.environ["PYTHONPATH"] = python_path()


def _measured(chosen: Sequence[str], found: FoundDevice, until: float, when: str) -> tuple[dict[str, Any], str]:
    """Measure one part after another, say how each ends, and keep it: whoever ends this has those before.

    Return the parts, and where they are kept.
    """
    make_folder(LOGS)
    told: dict[str, Any] = {}
    note = ""
    for number, name in enumerate(chosen):
        left = max(0.0, until - time.monotonic())
        share = left * WEIGHTS[name] / sum(WEIGHTS[each] for each in chosen[number:])
        given = Given(found.kind, found.count, found.memory, not found.is_real, share, time.monotonic() + share)
        told[name] = measured(name, given, LOGS / f"{name}.log")
        if found.is_real:
            note = _keep(found, when, {name: told[name]})
        print(f"{name}: {_end_of(told[name])}", file=sys.stderr, flush=True)
    return told, note


def _end_of(part: Mapping[str, Any]) -> str:
    words = f": {part['words']}" if part["words"] else ""
    return f"{part['status']} after {part['seconds']:g} s{words}"


def _joined(told: Mapping[str, Any]) -> dict[str, Any]:
    """Put the parts together, each bar, table and note under its part's name."""
    bars, tables, notes = [], [], []
    rows = [[name, part["status"], part["words"], part["seconds"]] for name, part in told.items()]
    tables.append({"title": "how the parts ended", "columns": ["part", "ended", "words", "s"], "rows": rows})
    for name, part in told.items():
        well = part["status"] in ("done", "skipped")
        bars += [bar(f"{name} ends well", float(well), "1", well)]
        bars += [{**each, "name": f"{name}: {each['name']}"} for each in part["bars"]]
        tables += [{**table, "title": f"{name}: {table['title']}"} for table in part["tables"]]
        notes += [f"{name}: {note}" for note in part["notes"]]
    return {"bars": bars, "tables": tables, "notes": notes, "parts": dict(told)}
