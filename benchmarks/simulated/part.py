"""What a part of the benchmark finds, and where the published traces are."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.bars import Bar, bar

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Part:
    """Bars, tables and notes of one part, to be filled as it is measured."""

    bars: list[Bar] = field(default_factory=list)
    tables: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def bar(self, name: str, value: float, wanted: str, ok: bool) -> None:
        """A figure, what it should be, and whether it is."""
        self.bars.append(bar(name, value, wanted, ok))

    def table(self, title: str, columns: list[str], rows: list[list[Any]]) -> None:
        """Figures side by side."""
        self.tables.append({"title": title, "columns": columns, "rows": rows})

    def note(self, text: str) -> None:
        """What a reader must know: a figure that misses its bar and why, a part that was left out."""
        self.notes.append(text)


def published(name: str) -> Path | None:
    """A published trace or table of rates, under FLEET_TRACES or beside the checkout; None where it is not there."""
    path = Path(os.environ.get("FLEET_TRACES") or ROOT.parent / "shared") / name
    return path if path.exists() else None


@contextmanager
def uncollected() -> Iterator[None]:
    """Time what is inside without Python's garbage collector, as timeit does."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
