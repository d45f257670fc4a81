"""The policy `goodput` beside Sia and the bound: remaining epochs unknown and known, moves in place, devices alike."""

from __future__ import annotations

import numpy as np

from benchmarks.heterogeneous.least_times import bound_hours
from benchmarks.heterogeneous.workloads import (
    ABSENT,
    ALIKE,
    HOUR,
    MOVE,
    WORKLOADS,
    folder,
    hours,
    moved_in_place,
    played,
    theirs,
    workloads,
)
from benchmarks.simulated.part import Part

BLIND, KNOWN, WORSE = 0.15, 0.30, 1.02
"""Parts of Sia's mean completion time to be saved; and how p99 and makespan may stand to Sia's."""
NEAR = 0.05
"""Part of the bound within which a mean may stay instead, where no plan saves as much."""
SIA_ALIKE, AHEAD = 1.9, 0.10
"""Sia's mean of the Philly workloads on 64 T4, hours (paper); and the part of it to be saved."""
SIMULATED = 10.0
"""Seconds for newtrace-1."""


def measure(part: Part, repetitions: int) -> None:
    """Bars by workload, the homogeneous case, and how long the largest workload takes to simulate."""
    if folder() is None:
        part.note(ABSENT)
        return
    rows = [_compared(part, workload) for workload in WORKLOADS]
    columns = [
        "workload",
        "Sia: mean / p99 / makespan, h",
        "goodput",
        "with epochs known",
        f"moves of {MOVE:g} s",
        f"moves of {MOVE:g} s, epochs known",
        "no plan's mean is below",
        "restarts a job",
        "fairness",
    ]
    part.table("goodput beside Sia", columns, rows)
    philly = workloads("philly")
    means = [hours(played("goodput", workload, ALIKE))[0] for workload in philly]
    mean, most = float(np.mean(means)), SIA_ALIKE * (1 - AHEAD)
    part.bar(f"64 T4, {len(philly)} Philly workloads: mean JCT, h", mean, f"<= {most:.2f}", mean <= most)
    seconds = played("goodput", "newtrace-1").seconds
    part.bar("newtrace-1 simulated, s", seconds, f"<= {SIMULATED:g}", seconds <= SIMULATED)
    part.note(
        "under goodput an application's step times are known before its first run, as fleet profiles jobs; Sia learns "
        "them as each job trains. All restarts cost what Sia's cost, but in the columns of moves. The bound knows all "
        "arrivals in advance, and lets jobs share devices more finely than they fit on nodes; restarts count in it"
    )


def _compared(part: Part, workload: str) -> list[str]:
    """The bars of one workload; its row of the table."""
    reference, sia = theirs("sia", workload), played("sia", workload)
    blind, known = played("goodput", workload), played("goodput", workload, parameters=(("known", True),))
    in_place = [moved_in_place("goodput", workload, (("known", known),)) for known in (False, True)]
    told, bound = {}, bound_hours(workload)
    for name, outcome, saved in (("blind", blind, BLIND), ("epochs known", known, KNOWN)):
        mean, p99, makespan = told[name] = hours(outcome)
        off = mean / reference.mean - 1
        wanted, near = f"<= -{saved:g}, or within {NEAR:g} of the bound", mean <= (1 + NEAR) * bound
        part.bar(f"{workload}, {name}: mean JCT to Sia's", off, wanted, off <= -saved or near)
        if name == "blind":
            for what, own, their in (("p99", p99, reference.p99), ("makespan", makespan, reference.makespan)):
                part.bar(f"{workload}: {what} to Sia's", own / their, f"<= {WORSE:g}", own <= WORSE * their)
    worst, theirs_worst = float(np.nanmax(blind.fairness)), float(np.nanmax(sia.fairness))
    part.bar(f"{workload}: worst fairness", worst, f"<= Sia's {theirs_worst:.2f}", worst <= theirs_worst)
    return [
        workload,
        f"{reference.mean:.3f} / {reference.p99:.2f} / {reference.makespan:.1f}",
        " / ".join(f"{value:.3f}" for value in told["blind"]),
        " / ".join(f"{value:.3f}" for value in told["epochs known"]),
        *(" / ".join(f"{value:.3f}" for value in hours(each)) for each in in_place),
        f"{bound:.3f} ({bound / reference.mean - 1:+.1%})",
        f"{float(blind.restarts.mean()):.1f}",
        f"{worst:.2f} (Sia {theirs_worst:.2f}); longest {float(blind.jct.max()) / HOUR:.1f} h",
    ]
