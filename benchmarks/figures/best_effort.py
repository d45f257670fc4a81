"""Figure 11: jobs with deadlines among jobs without (ElasticFlow, 6.5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import median

import numpy as np

from benchmarks.figures.drawn_jobs import Draw
from benchmarks.figures.schedulers import OURS, a100_rates, played
from benchmarks.simulated.part import Part
from fleet.simulator.machines.rate_tables import RateTable
from fleet.simulator.outcome import SimulationOutcome

DRAW = Draw(jobs=200, gap=900)
NODES = 8
SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
UNIT = "Gandiva"
RATIOS = {
    "EDF": (0.09, 0.1, 0.15, 0.15, 0.23, 0.28, 0.44, 0.79, 0.95),
    UNIT: (0.25, 0.24, 0.2, 0.18, 0.19, 0.17, 0.18, 0.18, 0.16),
    "Tiresias": (0.46, 0.46, 0.44, 0.42, 0.43, 0.41, 0.44, 0.5, 0.53),
    "Themis": (0.41, 0.4, 0.37, 0.34, 0.36, 0.34, 0.35, 0.42, 0.37),
    "Chronus": (0.42, 0.42, 0.4, 0.37, 0.4, 0.39, 0.42, 0.5, 0.53),
    OURS: (0.74, 0.67, 0.67, 0.69, 0.68, 0.76, 0.82, 0.92, 0.95),
}
"""Figure 11a by share of best-effort jobs, from the artifact's plot_fig11.py."""
GAINS = {
    "EDF": (0.05, 0.05, 0.05, 0.05, 0.07, 0.07, 0.08, 0.08, 0.1),
    "Tiresias": (1.44, 1.39, 1.33, 1.31, 1.26, 1.27, 1.28, 1.3, 1.45),
    "Themis": (1.37, 1.36, 1.34, 1.32, 1.26, 1.27, 1.29, 1.29, 1.46),
    "Chronus": (1.5, 1.45, 1.4, 1.38, 1.29, 1.29, 1.28, 1.29, 1.44),
    OURS: (1.6, 1.37, 1.18, 1.11, 1.27, 1.24, 1.19, 1.16, 1.31),
}
"""Figure 11b: Gandiva's mean completion time of best-effort jobs over the scheduler's."""
POINTS, OFF = 0.1, 0.25
REPETITIONS = 3
Figures = dict[str, dict[float, float]]


def measure(part: Part, repetitions: int) -> None:
    """Deadlines met and completion times, medians over draws of deadlines and of who has none."""
    rates = a100_rates()
    if rates is None:
        part.note("the rates of ElasticFlow are not there; FLEET_TRACES names the folder that holds them")
        return
    ratios, gains = _played(rates, repetitions or REPETITIONS)
    for scheduler, plotted in RATIOS.items():
        worst = max(abs(ratios[scheduler][share] - theirs) for share, theirs in zip(SHARES, plotted))
        name = f"{scheduler}: deadline ratio, largest distance from Figure 11a"
        part.bar(name, worst, f"<= {POINTS}", worst <= POINTS)
    for scheduler, plotted in GAINS.items():
        worst = max(abs(gains[scheduler][share] / theirs - 1) for share, theirs in zip(SHARES, plotted))
        name = f"{scheduler}: completion times against Gandiva's, largest distance from Figure 11b"
        part.bar(name, worst, f"<= {OFF:.0%}", worst <= OFF)
    best = sum(ratios[OURS][share] >= max(of[share] for of in ratios.values()) for share in SHARES)
    part.bar("shares at which ElasticFlow meets most deadlines", best, str(len(SHARES)), best == len(SHARES))
    least = gains[OURS][SHARES[0]] / max(gains[other][SHARES[0]] for other in GAINS if other != OURS)
    part.bar("10 % best effort: ElasticFlow's completion times, next best over it", least, ">= 1", least >= 1)
    _table(part, "Figure 11a: deadline ratio", ratios, RATIOS)
    _table(part, "Figure 11b: Gandiva's completion time over the scheduler's", gains, GAINS)


def _played(rates: RateTable, repetitions: int) -> tuple[Figures, Figures]:
    """Scheduler -> share -> deadline ratio, and gain over Gandiva in completion time."""
    ratios: Figures = {scheduler: {} for scheduler in RATIOS}
    gains: Figures = {scheduler: {} for scheduler in GAINS}
    for share in SHARES:
        draws = [replace(DRAW, best_effort=share).trace(rates, repetition) for repetition in range(repetitions)]
        outcomes = {scheduler: [played(scheduler, trace, rates, NODES) for trace in draws] for scheduler in RATIOS}
        units = [free_completion(outcome) for outcome in outcomes[UNIT]]
        for scheduler, own in outcomes.items():
            ratios[scheduler][share] = median(outcome.deadline_ratio for outcome in own)
        for scheduler, by_share in gains.items():
            times = map(free_completion, outcomes[scheduler])
            by_share[share] = median(unit / seconds for unit, seconds in zip(units, times))
    return ratios, gains


def free_completion(outcome: SimulationOutcome) -> float:
    """Mean seconds from arrival to end of the jobs without a deadline."""
    free = ~np.isfinite(outcome.deadline) & outcome.finished
    return float((outcome.end - outcome.arrival)[free].mean())


def _table(part: Part, title: str, ours: Figures, theirs: Mapping[str, tuple[float, ...]]) -> None:
    rows = []
    for scheduler, plotted in theirs.items():
        rows.append([scheduler, *(f"{ours[scheduler][share]:.2f}" for share in SHARES)])
        rows.append(["  paper", *(f"{value:.2f}" for value in plotted)])
    part.table(title, ["best-effort jobs", *(f"{share:.0%}" for share in SHARES)], rows)
