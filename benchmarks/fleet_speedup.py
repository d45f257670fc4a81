"""How much sooner an ensemble ends in flotillas than with one network a device: on drawn ensembles, rehearsed.

FLEET, MLSys'20, Figure 5 asks the same of 100 networks on 20 to 160 GPUs. Here 24 networks with single-device rates
that lie up to 8x apart (Figure 7) are rehearsed on 6, 12 and 24 devices: ranks, plans, the data path, reduction
messages and checkpoints are real, a device's compute is a wait taken from the rate curve. The simulator plays the same
ensembles beside it, with whole steps, and with the seconds that groups took to form there.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.bars import Bar, bar
from benchmarks.rehearsed_ensembles import DEVICES_PER_NODE, NETWORKS, draw_networks, simulated_seconds, write_ensemble
from benchmarks.rehearsed_ranks import RehearsedRun, rehearse
from fleet.journal.events import Event, Formed, Planned
from fleet.journal.journal import read_journal
from fleet.report.analysis import device_times, mean_waiting
from fleet.report.run_history import read_history

DEVICES = (6, 12, 24)
ENSEMBLES = 7  # in less than half an hour
POLICIES = ("baseline", "flotilla")
TIME_SCALE = 0.25
START_SECONDS, RUN_SECONDS = 900, 300
"""What the ranks' start and a run may take."""
PAPERS_SMALLEST_GAIN = 1.12
PAPERS_WORST_CHECKPOINTS = 6.3  # percent, Table 4
AGREEING = 0.1
"""By how much rehearsed and simulated gains may differ in the median."""


@dataclass(frozen=True)
class Figures:
    """One rehearsal, and the simulation of the same.

    Attributes:
        wall, simulated: seconds of the whole run, in rehearsed time.
        rounds: allocations.
        waiting, computing: mean seconds of a device, in rehearsed time.
        scheduling, checkpoint, reforming: percent of the run.
    """

    wall: float
    simulated: float
    rounds: int
    waiting: float
    computing: float
    scheduling: float
    checkpoint: float
    reforming: float


Pairs = list[dict[str, Figures]]
"""By ensemble: policy -> figures."""


def main(repetitions: int = 0) -> dict[str, Any]:
    """Rehearse each ensemble under both policies on each number of devices; bars, and tables that explain them.

    Args:
        repetitions: ensembles; 0: 7 of them.
    """
    found = {}
    for devices in DEVICES:
        with tempfile.TemporaryDirectory(prefix="fleet-speedup-") as folder:
            found[devices] = rehearsed(Path(folder), devices, range(repetitions or ENSEMBLES))
        print(f"{devices} devices: gains {_range(gains(found[devices]))}", file=sys.stderr, flush=True)
    return summary(found)


def rehearsed(folder: Path, devices: int, seeds: Sequence[int]) -> Pairs:
    """Rehearse the ensembles in turn; which policy comes first alternates."""
    specs = [write_ensemble(folder, seed, TIME_SCALE) for seed in seeds]
    runs = [
        RehearsedRun(str(spec), str(folder / f"{name}-{seed}"), name)
        for seed, spec in zip(seeds, specs)
        for name in (POLICIES if seed % 2 == 0 else POLICIES[::-1])
    ]
    nodes = (DEVICES_PER_NODE,) * (devices // DEVICES_PER_NODE)
    rehearse(runs, nodes, folder, START_SECONDS + RUN_SECONDS * len(runs))
    return [{name: read_figures(folder / f"{name}-{seed}", devices, seed) for name in POLICIES} for seed in seeds]


def read_figures(out: Path, devices: int, seed: int) -> Figures:
    """Figures of a rehearsal, and of its simulation with the seconds that groups took to form."""
    run = json.loads((out / "run.json").read_text())
    times = device_times(read_history(out / "journal.jsonl"))
    wall = float(run["wall_seconds"])
    forming = statistics.median(forming_seconds(read_journal(out / "journal.jsonl"))) / TIME_SCALE
    return Figures(
        wall / TIME_SCALE,
        simulated_seconds(draw_networks(seed), devices, run["policy"], forming),
        len(run["rounds"]),
        mean_waiting(times) / TIME_SCALE,
        statistics.mean(time.computing for time in times) / TIME_SCALE,
        *(100 * run["overhead_seconds"][name] / wall for name in ("scheduling", "checkpoint", "reforming")),
    )


def forming_seconds(journal: Iterable[Event]) -> list[float]:
    """From each plan that began a round until each of its groups had formed and rank 0 knew it, seconds."""
    planned, found = 0.0, []
    for event in journal:
        if isinstance(event, Planned):
            planned = event.t
        elif isinstance(event, Formed):
            found.append(event.t - planned)
    return found


def gains(pairs: Pairs) -> list[float]:
    """Baseline's time by the flotilla's, of each ensemble."""
    return [pair["baseline"].wall / pair["flotilla"].wall for pair in pairs]


def simulated_gains(pairs: Pairs) -> list[float]:
    """The same in the simulator."""
    return [pair["baseline"].simulated / pair["flotilla"].simulated for pair in pairs]


def summary(found: dict[int, Pairs]) -> dict[str, Any]:
    """Medians and ranges over the ensembles, and whether the bars are met."""
    ensembles = len(found[DEVICES[0]])
    what = f"{NETWORKS} networks, {ensembles} ensembles drawn at random, time scale {TIME_SCALE}"
    return {
        "bars": _bars(found),
        "tables": [
            {"title": f"gain of flotilla over baseline: {what}", "columns": GAIN_COLUMNS, "rows": _gain_rows(found)},
            {
                "title": f"seconds of rehearsed time, medians: {what}",
                "columns": TIME_COLUMNS,
                "rows": _time_rows(found),
            },
        ],
        "gains": {
            devices: {"rehearsed": gains(pairs), "simulated": simulated_gains(pairs)}
            for devices, pairs in found.items()
        },
    }


def _bars(found: dict[int, Pairs]) -> list[Bar]:
    """The paper's smallest gain where devices are half as many as networks or more; own costs; agreement."""
    bars = []
    for devices, pairs in found.items():
        gain = statistics.median(gains(pairs))
        if 2 * devices >= NETWORKS:
            wanted = f">= {PAPERS_SMALLEST_GAIN}"
            bars.append(bar(f"{devices} devices: median gain", gain, wanted, gain >= PAPERS_SMALLEST_GAIN))
        off = gain / statistics.median(simulated_gains(pairs)) - 1
        name = f"{devices} devices: median gain, rehearsed by simulated, less 1"
        bars.append(bar(name, off, f"within {AGREEING:.0%}", abs(off) <= AGREEING))
    every = [figures for pairs in found.values() for pair in pairs for figures in pair.values()]
    scheduling, checkpoint = max(each.scheduling for each in every), max(each.checkpoint for each in every)
    unscaled = TIME_SCALE * scheduling  # a rehearsal shortens the run, and not what its ranks do themselves
    bars.append(bar("coordinator's own cost, worst, percent of a run at its own speed", unscaled, "< 1", unscaled < 1))
    wanted = f"< {PAPERS_WORST_CHECKPOINTS}"
    bars.append(bar("checkpoints, worst, percent of a run", checkpoint, wanted, checkpoint < PAPERS_WORST_CHECKPOINTS))
    return bars


GAIN_COLUMNS = ["devices", "networks a device", "gain, median (range)", "simulated", "ensembles with a gain"]
TIME_COLUMNS = [
    "devices", "policy", "whole run", "simulated", "rounds", "waiting/device", "computing/device", "checkpoints %",
    "re-forming %", "coordinator %",
]  # fmt: skip


def _gain_rows(found: dict[int, Pairs]) -> list[list[Any]]:
    return [
        [devices, f"{NETWORKS / devices:g}", _range(gains(pairs)), _range(simulated_gains(pairs)),
         f"{sum(gain > 1 for gain in gains(pairs))} of {len(pairs)}"]
        for devices, pairs in found.items()
    ]  # fmt: skip


def _time_rows(found: dict[int, Pairs]) -> list[list[Any]]:
    fields = (
        "wall", "simulated", "rounds", "waiting", "computing", "checkpoint", "reforming", "scheduling",
    )  # fmt: skip
    return [
        [devices, name, *(float(statistics.median(getattr(pair[name], field) for pair in pairs)) for field in fields)]
        for devices, pairs in found.items()
        for name in POLICIES
    ]


def _range(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"
