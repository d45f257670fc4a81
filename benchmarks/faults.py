"""The instruments of `make faults` in a short form: what goes wrong costs itself alone, and is told.

Each instrument is a part of its own, with its bars; the long forms are `make faults` and `make chaos`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from benchmarks.bars import Bar, bar
from benchmarks.chaos import main as chaos

ROOT = Path(__file__).resolve().parents[1]
FUZZ_EXAMPLES = 200  # of each target
KILLS = 8
LIMIT_SECONDS = 1200.0  # of one part
MATRIX = "tests/faults/test_matrix.py"
SCRIPTS = "tests/faults/test_batch_scripts.py"
SIGNALS, CALLS = "tests/faults/test_signals.py", "tests/faults/test_failing_calls.py"
CUTS = ("tests/faults/test_power_cuts.py", "tests/faults/test_power_model.py")
ROUND_TRIPS = "tests/faults/fuzz/test_round_trips.py"
OLD_RUNS = "tests/live/test_old_runs.py"

Part = Callable[[Path], tuple[list[Bar], list[str]]]
"""Takes a folder of its own; returns its bars, and what should be told beside."""


def main(seconds: int = 0) -> dict[str, Any]:
    """Run every part; returns the bars. seconds: fuzz for so long instead of a number of examples."""
    bars: list[Bar] = []
    notes: list[str] = []
    with tempfile.TemporaryDirectory(prefix="fleet-faults-") as name:
        for title, part in parts(seconds).items():
            begin = time.monotonic()
            folder = Path(name) / title.replace(" ", "-")
            folder.mkdir()
            found, told = part(folder)
            bars, notes = [*bars, *found], [*notes, *told, f"{title}: {time.monotonic() - begin:.0f} s"]
            print(notes[-1], file=sys.stderr, flush=True)
    return {"bars": bars, "notes": notes}


def parts(seconds: int = 0) -> dict[str, Part]:
    """The instruments, by what they try."""
    return {
        "matrix": lambda folder: _cells("cells of the matrix", [MATRIX], folder, "not slow"),
        "batch scripts": lambda folder: _cells("cases of batch scripts", [SCRIPTS], folder, "not slow"),
        "signals": lambda folder: _cells("phases with a signal", [SIGNALS], folder, "not slow"),
        "failing calls": lambda folder: _cells("tests of failing system calls", [CALLS], folder, "not slow"),
        "power cuts": lambda folder: _cells("tests of power cuts", [*CUTS], folder, "not slow"),
        "round trips": lambda folder: _cells("types that come back", [ROUND_TRIPS], folder),
        "old directories": lambda folder: _cells("old directories", [OLD_RUNS], folder),
        "fuzz": lambda folder: _fuzz(folder, seconds),
        "chaos": lambda folder: _chaos(),
    }


def _cells(what: str, files: Sequence[str], folder: Path, marks: str = "") -> tuple[list[Bar], list[str]]:
    """Run tests, and count them."""
    report = folder / "report.xml"
    command = [sys.executable, "-m", "pytest", *files, "-q", "-m", marks, f"--junitxml={report}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = _run(command, environment)
    if not report.exists():
        return [bar(f"{what}, passed", 0, "all", False)], [done]
    suites = [suite.attrib for suite in ElementTree.parse(report).getroot().iter("testsuite")]
    count = {key: sum(int(suite[key]) for suite in suites) for key in ("tests", "failures", "errors", "skipped")}
    ran = count["tests"] - count["skipped"]
    failed = count["failures"] + count["errors"]
    bars = [bar(f"{what}, run", ran, ">= 1", ran >= 1), bar(f"{what}, failed", failed, "0", failed == 0)]
    return bars, [done[-3000:]] if failed else []


def _fuzz(folder: Path, seconds: int) -> tuple[list[Bar], list[str]]:
    found = folder / "found.json"
    amount = ["--seconds", str(seconds)] if seconds else ["--examples", str(FUZZ_EXAMPLES)]
    output = _run([sys.executable, "-m", "tests.faults.fuzz", *amount, "--json", str(found)], dict(os.environ))
    if not found.exists():
        return [bar("fuzzed examples", 0, ">= 1", False)], [output[-3000:]]
    result = json.loads(found.read_text())
    tallies = result["targets"]
    examples = sum(tally["examples"] for tally in tallies)
    escapes = [f"{tally['target']}: {text}" for tally in tallies for text in tally["escapes"].values()]
    least = min(tally["examples"] for tally in tallies)
    return [
        bar("fuzzed readers", len(tallies), ">= 20", len(tallies) >= 20),
        bar("fuzzed examples", examples, ">= 1 of each reader", least >= 1),
        bar("errors that escaped", len(escapes), "0", not escapes),
    ], escapes + [f"fuzzed with {result['engine']}"]


def _chaos() -> tuple[list[Bar], list[str]]:
    result = chaos(KILLS)
    return [{**found, "name": f"chaos: {found['name']}"} for found in result["bars"]], result["notes"]


def _run(command: Sequence[str], environment: dict[str, str]) -> str:
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired as late:
        return f"{' '.join(command[:4])} did not end within {LIMIT_SECONDS:g} s: {late.stdout!r}"
    return done.stdout + done.stderr
