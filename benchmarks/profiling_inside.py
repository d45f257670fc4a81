"""What it brings to measure rates while networks train, instead of before: on the demo, and on rehearsed ensembles.

The demo trains in turn with rates measured before and in training; both must leave the same weights. Rehearsals play
ensembles whose true rates are known, with a coordinator that knows them and with one that has to learn them: what is
lost is the price of plans that were made by guesses. FLEET (MLSys'20, 6.1) profiles before, with 48 batches a count.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.bars import Bar, bar, median_bar
from benchmarks.guessed_ensembles import write_guessed_ensemble
from benchmarks.rehearsed_ranks import RehearsedRun, rehearse
from fleet.journal.events import Cluster, Formed
from fleet.journal.journal import read_journal

ROOT = Path(__file__).parent.parent
DEMO = ROOT / "examples" / "digits.yaml"
WAYS = ("before", "training")
PAIRS, ENSEMBLES, DEVICES = 3, 4, 6
PATIENCE = 900.0
MOST_PROFILING, MOST_FIRST, LEAST_GAIN, MOST_LOSS = 0.02, 1.0, 1.12, 1.02


@dataclass(frozen=True)
class Trained:
    """One run of the demo.

    Attributes:
        wall: seconds from its begin until all is done.
        profiling: of them, spent on measuring.
        first: seconds from its begin until the first group trains.
        rounds: allocations.
    """

    wall: float
    profiling: float
    first: float
    rounds: int


def main(repetitions: int = 0) -> dict[str, Any]:
    """Train the demo and rehearse ensembles, each both ways in turn.

    Args:
        repetitions: pairs of runs of the demo, and ensembles; 0: 3 and 4.
    """
    with tempfile.TemporaryDirectory(prefix="fleet-profiling-") as folder:
        trained, same = train_demo(Path(folder), repetitions or PAIRS)
        rehearsed = rehearse_ensembles(Path(folder), range(repetitions or ENSEMBLES))
    return {"bars": [*_demo_bars(trained, same), _rehearsal_bar(rehearsed)], "tables": _tables(trained, rehearsed)}


def train_demo(folder: Path, pairs: int) -> tuple[list[dict[str, Trained]], int]:
    """Train the demo both ways; which comes first alternates. Returns the pairs, and how many have the same weights."""
    found, same = [], 0
    for number in range(pairs):
        outs = {way: folder / f"{way}-{number}" for way in WAYS}
        for way in WAYS if number % 2 == 0 else WAYS[::-1]:
            options = ["--out", str(outs[way]), "--set", f"profile.when={way}"]
            _fleet(["run", str(DEMO), *options])
            print(f"demo, rates measured {way}: {_read(outs[way])}", file=sys.stderr, flush=True)
        found.append({way: _read(out) for way, out in outs.items()})
        same += _fleet(["compare", *map(str, outs.values())], check=False) == 0
    return found, same


def rehearse_ensembles(folder: Path, seeds: Sequence[int]) -> list[dict[str, float]]:
    """Rehearse each ensemble with a coordinator that knows its rates, and with one that learns them."""
    runs = []
    for seed in seeds:
        specs = {way: write_guessed_ensemble(folder, seed, way == "training") for way in WAYS}
        for way in WAYS if seed % 2 == 0 else WAYS[::-1]:
            runs.append(RehearsedRun(str(specs[way]), str(folder / f"ensemble-{seed}-{way}"), "flotilla"))
    rehearse(runs, (DEVICES,), folder, PATIENCE * len(runs))
    return [{way: _read(folder / f"ensemble-{seed}-{way}").wall for way in WAYS} for seed in seeds]


def _fleet(words: list[str], check: bool = True) -> int:
    command = [sys.executable, "-m", "fleet", *words]
    return subprocess.run(command, cwd=ROOT, check=check, timeout=PATIENCE, stdout=subprocess.DEVNULL).returncode


def _read(out: Path) -> Trained:
    run, lines = json.loads((out / "run.json").read_text()), list(read_journal(out / "journal.jsonl"))
    begin = next(line.t for line in lines if isinstance(line, Cluster))
    first = next(line.t for line in lines if isinstance(line, Formed))
    return Trained(run["wall_seconds"], run["overhead_seconds"]["profiling"], first - begin, len(run["rounds"]))


def _demo_bars(pairs: list[dict[str, Trained]], same: int) -> list[Bar]:
    inside = [pair["training"] for pair in pairs]
    gains = [pair["before"].wall / pair["training"].wall for pair in pairs]
    shares, first = [each.profiling / each.wall for each in inside], [each.first for each in inside]
    gain = statistics.median(gains)
    return [
        median_bar("demo: time with rates measured before, by that in training", gains, f">= {LEAST_GAIN}",
                   gain >= LEAST_GAIN),
        median_bar("demo: part of the time that profiling in training takes", shares, f"<= {MOST_PROFILING}",
                   max(shares) <= MOST_PROFILING),
        median_bar("demo: seconds until the first group trains", first, f"<= {MOST_FIRST:g}", max(first) <= MOST_FIRST),
        bar("demo: pairs of runs with the same weights", same, f"= {len(pairs)}", same == len(pairs)),
    ]  # fmt: skip


def _rehearsal_bar(pairs: list[dict[str, float]]) -> Bar:
    losses = [pair["training"] / pair["before"] for pair in pairs]
    ok = statistics.median(losses) <= MOST_LOSS
    return median_bar("rehearsals: time with learnt rates, by that with known ones", losses, f"<= {MOST_LOSS}", ok)


def _tables(trained: list[dict[str, Trained]], rehearsed: list[dict[str, float]]) -> list[dict[str, Any]]:
    fields = ("wall", "profiling", "first", "rounds")
    rows = [
        [way, *(float(statistics.median(getattr(pair[way], field) for pair in trained)) for field in fields)]
        for way in WAYS
    ]
    return [
        {
            "title": f"demo, medians of {len(trained)} runs each, seconds",
            "columns": ["rates measured", "whole run", "profiling", "until the first group trains", "rounds"],
            "rows": rows,
        },
        {
            "title": f"rehearsed ensembles on {DEVICES} devices, seconds",
            "columns": ["ensemble", "rates known", "rates learnt"],
            "rows": [[number, pair["before"], pair["training"]] for number, pair in enumerate(rehearsed)],
        },
    ]
