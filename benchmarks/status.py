"""How soon `fleet status` answers on a run directory of very many networks, its start-up included."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.bars import median_bar
from benchmarks.many_networks import ManyNetworks

MOST_SECONDS = 0.5
REPETITIONS = 9


def measure(repetitions: int = 0, asked: ManyNetworks | None = None) -> dict[str, Any]:
    """Seconds of the whole command, by the clock; returns {"bars": [...], "tables": [...]}."""
    asked = asked or ManyNetworks()
    with tempfile.TemporaryDirectory(prefix="status-") as folder:
        directory = asked.write(Path(folder, "run"))
        size, lines = _size(directory / "journal.jsonl")
        seconds = {
            what: [_seconds(directory, *options) for _ in range(repetitions or REPETITIONS)]
            for what, options in {"as a table": (), "--json": ("--json",)}.items()
        }
    name = f"fleet status of {asked.networks:,} networks, {lines:,} lines: seconds"
    middle = sorted(seconds["as a table"])[len(seconds["as a table"]) // 2]
    rows = [[what, *(sorted(each)[place] for place in (len(each) // 2, 0, -1))] for what, each in seconds.items()]
    title = f"{asked.networks:,} networks, a journal of {lines:,} lines and {size / 1e6:.0f} MB"
    return {
        "bars": [median_bar(name, seconds["as a table"], f"<= {MOST_SECONDS:g}", middle <= MOST_SECONDS)],
        "tables": [{"title": title, "columns": ["fleet status", "median, s", "least", "most"], "rows": rows}],
    }


def _size(journal: Path) -> tuple[int, int]:
    content = journal.read_bytes()
    return len(content), content.count(b"\n")


def _seconds(directory: Path, *options: str) -> float:
    command = [sys.executable, "-m", "fleet", "status", str(directory), *options]
    begin = perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return perf_counter() - begin
