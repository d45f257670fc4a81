"""Figure 10: how well schedulers use a cluster on which every deadline can be met (ElasticFlow, 6.4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.figures.drawn_jobs import Draw
from benchmarks.figures.schedulers import OURS, a100_rates, played
from benchmarks.simulated.part import Part
from fleet.simulator.outcome import SimulationOutcome

DRAW = Draw(jobs=100, gap=1500, seed=1, tightness=(1.5, 1.5))
"""No deadline is left to chance: the jobs are the paper's."""
NODES = 16
HOURS = 100
HOUR = 3600.0
OFF = 0.1


@dataclass(frozen=True)
class Logged:
    """What the artifact's logs of the figure give: CE in the mean of the first 100 hours, and the makespan, seconds."""

    efficiency: float
    makespan: float


LOGS = {
    "EDF": Logged(0.0581, 1_358_163),
    "Gandiva": Logged(0.1337, 740_338),
    "Tiresias": Logged(0.1307, 740_161),
    "Themis": Logged(0.1309, 740_400),
    "Chronus": Logged(float("nan"), 966_240),  # its log tells of the efficiency at some times alone
    OURS: Logged(0.1673, 656_366),
}


def measure(part: Part, repetitions: int) -> None:
    """Efficiency and makespan of all six."""
    rates = a100_rates()
    if rates is None:
        part.note("the rates of ElasticFlow are not there; FLEET_TRACES names the folder that holds them")
        return
    trace = DRAW.trace(rates)
    outcomes = {scheduler: played(scheduler, trace, rates, NODES) for scheduler in LOGS}
    early = {scheduler: early_efficiency(outcome) for scheduler, outcome in outcomes.items()}
    rows = []
    for scheduler, logged in LOGS.items():
        outcome = outcomes[scheduler]
        theirs = "" if np.isnan(logged.efficiency) else logged.efficiency
        rows.append([scheduler, early[scheduler], theirs, outcome.makespan / HOUR, logged.makespan / HOUR])
        if theirs:
            _near(part, f"{scheduler}: CE of the first {HOURS} h", early[scheduler], logged.efficiency)
        _near(part, f"{scheduler}: makespan, h", outcome.makespan / HOUR, logged.makespan / HOUR)
    met = int(outcomes[OURS].in_time.sum())
    part.bar("jobs that ElasticFlow ends in time", met, str(DRAW.jobs), met == DRAW.jobs)
    second = max(value for scheduler, value in early.items() if scheduler != OURS)
    part.bar("ElasticFlow's CE over the next best", early[OURS] / second, "> 1", early[OURS] > second)
    first = min(outcome.makespan for scheduler, outcome in outcomes.items() if scheduler != OURS)
    ratio = outcomes[OURS].makespan / first
    part.bar("ElasticFlow's makespan over the next best", ratio, "< 1", ratio < 1)
    columns = ["scheduler", f"CE, first {HOURS} h", "paper's log", "makespan, h", "paper's log"]
    part.table("Figure 10", columns, rows)


def early_efficiency(outcome: SimulationOutcome) -> float:
    """CE (Eq. 8) in the mean of the first HOURS."""
    times = np.minimum(outcome.timeline.times, HOURS * HOUR)
    spent = np.diff(times, append=HOURS * HOUR)
    return float(outcome.timeline.speedup @ spent) / (HOURS * HOUR * outcome.devices)


def _near(part: Part, name: str, ours: float, theirs: float) -> None:
    part.bar(name, ours, f"{theirs:.4g} +- {OFF:.0%}, the paper's log", abs(ours / theirs - 1) <= OFF)
