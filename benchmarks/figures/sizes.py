"""Figure 9: what admission control and elastic scaling bring on clusters of three sizes (ElasticFlow, 6.4)."""

from __future__ import annotations

from statistics import median

from benchmarks.figures.drawn_jobs import Draw
from benchmarks.figures.schedulers import OURS, a100_rates, played
from benchmarks.simulated.part import Part
from fleet.simulator.machines.rate_tables import RateTable

DRAW = Draw(jobs=1000, gap=1500)
NODES = {64: 8, 128: 16, 256: 32}
NEITHER, ADMISSION, SCALING = "EDF", "EDF + Admission Control", "EDF + Elastic Scaling"
PLOTTED = {
    NEITHER: (0.026, 0.118, 0.118),
    ADMISSION: (0.203, 0.326, 0.658),
    SCALING: (0.452, 0.835, 0.939),
    OURS: (0.926, 0.949, 0.944),
}
"""The bars of Figure 9, from the artifact's plot_fig9.py; the paper's text states no numbers."""
POINTS = 0.1
REPETITIONS = 5
Ratios = dict[str, dict[int, list[float]]]


def measure(part: Part, repetitions: int) -> None:
    """The deadline ratios of all four, as often as deadlines are drawn."""
    rates = a100_rates()
    if rates is None:
        part.note("the rates of ElasticFlow are not there; FLEET_TRACES names the folder that holds them")
        return
    ratios = _ratios(rates, repetitions or REPETITIONS)
    rows = []
    for scheduler, plotted in PLOTTED.items():
        for size, theirs in zip(NODES, plotted):
            own = ratios[scheduler][size]
            rows.append([scheduler, size, median(own), min(own), max(own), theirs])
            off = abs(median(own) - theirs)
            name = f"{scheduler}, {size} GPUs: deadline ratio"
            part.bar(name, median(own), f"{theirs} +- {POINTS}, the paper's", off <= POINTS)
    _orders(part, ratios)
    part.table("Figure 9", ["scheduler", "GPUs", "deadline ratio", "from", "to", "paper"], rows)


def _ratios(rates: RateTable, repetitions: int) -> Ratios:
    """Scheduler -> size -> the ratio of each repetition."""
    found: Ratios = {scheduler: {size: [] for size in NODES} for scheduler in PLOTTED}
    for repetition in range(repetitions):
        trace = DRAW.trace(rates, repetition)
        for scheduler, sizes in found.items():
            for size, own in sizes.items():
                own.append(played(scheduler, trace, rates, NODES[size]).deadline_ratio)
    return found


def _orders(part: Part, ratios: Ratios) -> None:
    """What the paper's text says of the figure; each must hold in all repetitions."""
    for variant in (ADMISSION, SCALING):
        for size in NODES:
            triples = zip(ratios[NEITHER][size], ratios[variant][size], ratios[OURS][size])
            held = sum(low < middle < high for low, middle, high in triples)
            every = len(ratios[OURS][size])
            name = f"{size} GPUs: {variant} lies between EDF and ElasticFlow, repetitions"
            part.bar(name, held, str(every), held == every)
    gaps = [median(ratios[OURS][size]) - median(ratios[SCALING][size]) for size in NODES]
    name = "gap between ElasticFlow and EDF + Elastic Scaling, on 64 less on 256 GPUs"
    part.bar(name, gaps[0] - gaps[-1], "> 0, and it falls at each size", gaps == sorted(gaps, reverse=True))
