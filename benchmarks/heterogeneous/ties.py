"""Plans of the policy `sia` that cost the same: what a way to choose among them changes, in theirs and in ours."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from benchmarks.heterogeneous.their_runs import solved_with, their_runs
from benchmarks.heterogeneous.workloads import ABSENT, folder, hours, played, theirs
from benchmarks.papers.sia import ChoiceProgram, Highs, Solver
from benchmarks.simulated.part import Part
from fleet.scheduling.model.arrays import Counts, Floats
from fleet.simulator.outcome import SimulationOutcome

WITHIN = 0.05
"""Part of theirs by which a mean over ways to break ties may differ."""
ORDERS = (1, 2)
"""Seeds of the orders in which the solver gets the jobs, beside the one in which they come."""
FIGURES = ("mean JCT", "p99 JCT", "makespan")


@dataclass(frozen=True)
class Reordered:
    """A solver that gets the jobs in an order that is drawn; a `Solver`.

    Args:
        inner: the solver.
        seed: of the draw; 0: as they come.
    """

    inner: Solver
    seed: int = 0

    def __call__(self, program: ChoiceProgram, gap: float) -> Counts:
        """As `Solver.__call__`."""
        if not self.seed:
            return self.inner(program, gap)
        order = np.random.default_rng(self.seed).permutation(len(program.costs))
        chosen = np.empty(len(order), dtype=np.int64)
        chosen[order] = self.inner(program._replace(costs=program.costs[order], fixed=program.fixed[order]), gap)
        return chosen


def measure(part: Part, repetitions: int) -> None:
    """Means over ways to break ties, theirs and ours."""
    if folder() is None:
        part.note(ABSENT)
        return
    rows = [_compared(part, workload, runs) for workload, runs in their_runs().items()]
    columns = [
        "workload",
        "theirs: mean / p99 / makespan, h",
        "ours",
        "theirs among themselves, by job",
        "ours to theirs",
    ]
    part.table("sia with several ways to break ties: means, least to most", columns, rows)


def _compared(part: Part, workload: str, runs: dict[str, Any]) -> list[str]:
    """The bars of one workload; its row of the table."""
    reference = theirs("sia", workload)
    names = list(reference.jct)
    jobs = [np.array([reference.jct[name] for name in names])]
    jobs += [np.array([run["jct_s"][name] for name in names]) for run in runs.values()]
    outcomes = [played("sia", workload)] + [solved_with(Reordered(Highs(), seed), workload) for seed in ORDERS]
    ours = [_by_name(outcome, names) for outcome in outcomes]
    figures = np.array(
        [(reference.mean, reference.p99, reference.makespan), *(tuple(run["hours"]) for run in runs.values())]
    )
    own = np.array([hours(outcome) for outcome in outcomes])
    for place, what in enumerate(FIGURES):
        off = float(own[:, place].mean() / figures[:, place].mean() - 1)
        name = f"sia {workload}: {what} off theirs, means over ties"
        part.bar(name, off, f"-{WITHIN:g} to {WITHIN:g}", abs(off) <= WITHIN)
    among = [_median(one, other) for one, other in combinations(jobs, 2)]
    across = [_median(one, other) for one in jobs for other in ours]
    means = _median(np.mean(jobs, axis=0), np.mean(ours, axis=0))
    return [
        workload,
        _range(figures),
        _range(own),
        f"{min(among):.1%} to {max(among):.1%}",
        f"{min(across):.1%} to {max(across):.1%}; means {means:.1%}",
    ]


def _by_name(outcome: SimulationOutcome, names: list[str]) -> Floats:
    seconds = dict(zip(outcome.names, outcome.jct.tolist()))
    return np.array([seconds[name] for name in names])


def _median(one: Floats, other: Floats) -> float:
    """By how much a job's completion times differ, as a part of the first."""
    return float(np.median(np.abs(other / one - 1)))


def _range(figures: Floats) -> str:
    """The mean of each column, and from where to where it goes."""
    columns = zip(figures.mean(axis=0), figures.min(axis=0), figures.max(axis=0))
    return " / ".join(f"{mean:.3f} ({least:.3f} to {most:.3f})" for mean, least, most in columns)
