"""All schedulers on the published traces, held against what their papers say: one part a paper or question.

The traces and tables of rates are not in this repository: FLEET_TRACES names the folder that holds them.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from time import perf_counter
from typing import Any

from benchmarks.simulated.part import Part

PARTS = (
    "elasticflow", "deadlines", "baselines", "large", "pollux", "easyscale", "throughput", "ensemble", "sharing",
    "speedup",
)  # fmt: skip


def main(repetitions: int = 0) -> dict[str, Any]:
    """Measure every part that there is.

    Returns:
        {"bars": [...], "tables": [...], "notes": [...], "seconds": {part: wall seconds}}
    """
    return collected("benchmarks.simulated", PARTS, repetitions)


def collected(room: str, parts: Iterable[str], repetitions: int) -> dict[str, Any]:
    """Measure parts of a benchmark, modules of a room that have a `measure`; as `main` returns it."""
    whole, seconds = Part(), {}
    for name in parts:
        begin = perf_counter()
        part = _measured(room, name, repetitions)
        seconds[name] = perf_counter() - begin
        short = sum(not bar["ok"] for bar in part.bars)
        print(f"{name}: {len(part.bars)} bars, {short} short, {seconds[name]:.1f} s", file=sys.stderr, flush=True)
        _collect(whole, name, part)
    return {"bars": whole.bars, "tables": whole.tables, "notes": whole.notes, "seconds": seconds}


def _measured(room: str, name: str, repetitions: int) -> Part:
    """What a part finds; one that fails misses a bar and leaves the others to be measured."""
    part = Part()
    module = f"{room}.{name}"
    if find_spec(module) is None:
        part.note("it is not part of this version")
        return part
    try:
        import_module(module).measure(part, repetitions)
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        part.bar("ends without an error", 0.0, "1", False)
        part.note(f"it ended early: {type(error).__name__}: {error}")
    if not (part.bars or part.tables or part.notes):
        part.note("it measured nothing")
    return part


def _collect(whole: Part, name: str, part: Part) -> None:
    """Add what one part found, under its name."""
    whole.bars += [{**bar, "name": f"{name}: {bar['name']}"} for bar in part.bars]
    whole.tables += [{**table, "title": f"{name}: {table['title']}"} for table in part.tables]
    whole.notes += [f"{name}: {note}" for note in part.notes]
