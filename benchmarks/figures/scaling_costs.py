"""Figure 12: what scaling and migration take, and what that costs a cluster (ElasticFlow, 6.6)."""

from __future__ import annotations

from statistics import median

import numpy as np

from benchmarks.bars import median_bar
from benchmarks.figures.schedulers import OURS, a100_rates, played
from benchmarks.resizing import by_restart, in_place
from benchmarks.simulated.part import Part, published
from fleet.simulator.machines.machine import Costs
from fleet.simulator.traces import read_trace

PLOTTED = {
    "ResNet50": (1.884, 1.659, 1.666, 1.787, 0.887),
    "VGG16": (1.820, 1.629, 2.407, 2.354, 3.209),
    "InceptionV3": (1.819, 1.099, 1.738, 1.733, 0.690),
    "GPT2": (2.344, 3.101, 3.203, 3.198, 2.119),
    "BERT": (3.904, 2.611, 4.239, 4.222, 3.191),
    "DeepSpeech2": (3.904, 2.611, 4.239, 4.222, 3.191),
}
"""Figure 12b, seconds by case, from the artifact's plot_fig12b.py; ResNet50 has 102 MB of parameters."""
LIKE = "ResNet50"
MOVES = (
    ("1 to 2 devices", (0,), (0, 1)),
    ("2 to 1", (0, 1), (0,)),
    ("half to all (theirs: 8 to 16, here: 2 to 4)", (0, 1), (0, 1, 2, 3)),
    ("all to half", (0, 1, 2, 3), (0, 1)),
    ("to as many others (theirs: 8, here: 2)", (0, 1), (2, 3)),
)
"""The figure's cases, and from which trainers to which others they go here."""
REPETITIONS = 3
NODES = 16
INTERVAL = 23 * 60.0
"""Seconds between two plans on the paper's traces."""
OFF, MARGINAL = 0.25, 0.01
THIRTY = 30.0


def measure(part: Part, repetitions: int) -> None:
    """Moves of a job of 100 MB, in place and by checkpoint and restart; and 195job where a move costs so much."""
    places, rows = [], []
    for (name, old, new), theirs in zip(MOVES, zip(*PLOTTED.values())):
        turns = range(repetitions or REPETITIONS)
        seconds, restarts = zip(*((in_place(old, new), by_restart(old, new)) for _ in turns))
        places.append(median(seconds))
        like, least, most = dict(zip(PLOTTED, theirs))[LIKE], min(theirs), max(theirs)
        rows.append([name, places[-1], min(seconds), max(seconds), median(restarts), like, f"{least} to {most}"])
        part.bars.append(median_bar(f"{name}: seconds in place", list(seconds), f"<= {least}", places[-1] <= least))
    columns = ["move", "in place, s", "from", "to", "by restart, s", f"paper, {LIKE}", "paper, all six"]
    part.table("Figure 12b", columns, rows)
    _simulated(part, max(places))


def _simulated(part: Part, ours: float) -> None:
    """Deadlines and lost time of the paper's trace under costs from none to many times the measured ones."""
    file, rates = published("traces/elasticflow/195job.csv"), a100_rates()
    if file is None or rates is None:
        part.note("the traces of ElasticFlow are not there; FLEET_TRACES names the folder that holds them")
        return
    trace, theirs = read_trace(file), max(map(max, PLOTTED.values()))
    rows = []
    settings = {"none": 0.0, "the longest move here": ours, "the paper's longest": theirs, "longer": THIRTY}
    for name, cost in settings.items():
        outcome = played(OURS, trace, rates, NODES, Costs(cost, cost))
        restarts, late = int(outcome.restarts.sum()), outcome.late_admitted
        lost = restarts * cost / float(np.nansum(outcome.end - outcome.begin))
        rows.append([name, cost, outcome.deadline_ratio, late, restarts, f"{lost:.3%}"])
        part.bar(f"195job, moves of {cost:.3g} s: promises broken", late, "0", not late)
    gap = float(np.diff(outcome.timeline.times).mean())
    name = "195job: seconds between two plans"
    part.bar(name, gap, f"{INTERVAL:g} +- {OFF:.0%}, the paper's traces", abs(gap / INTERVAL - 1) <= OFF)
    part.bar("the longest move here over these seconds", ours / gap, f"<= {MARGINAL}", ours / gap <= MARGINAL)
    columns = ["costs of a move", "s", "deadline ratio", "late admitted", "moves", "of the jobs' time"]
    part.table("what moves cost on 195job, simulated", columns, rows)
