"""How long the policies plan, for a fresh state: 100 jobs on 160 devices, and 10,000 on 10,000; nodes of four.

Rates are those of FLEET, MLSys'20: 21 to 176 samples/s on one device, Eq. 5 with a loss of 3 % for each further device,
measured up to two nodes (8 counts) or up to the limit (64 counts), or a staircase of 64 virtual workers.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.bars import at_most
from fleet.scheduling import Policy
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Allocation, State, validate
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.placing.placement import score
from fleet.spec.plugins import POLICIES
from fleet.spec.policies import policy

PER_NODE = 4
LIMIT = 64
SIZES = ((100, 160, 0.010), (10_000, 10_000, 1.0))  # jobs, devices, and the most seconds that flotilla may take
REPETITIONS = 7
CURVES = {"8 measured": (2 * PER_NODE, None), "64 measured": (LIMIT, None), "64 measured, stairs": (LIMIT, LIMIT)}


def main(repetitions: int = 0) -> dict[str, Any]:
    """Plan again and again, all kinds in turn; bars are on flotilla, with every curve still to be tabulated.

    Returns:
        {"bars": [...], "tables": [...], "plans": [...]}: medians and spreads, seconds.
    """
    timed = [_timed(*size, kind, repetitions or REPETITIONS) for size in SIZES for kind in CURVES]
    plans = [plan for plans in timed for plan in plans]
    return {"bars": [bar for size in SIZES for bar in _bars(*size, plans)], "tables": [_table(plans)], "plans": plans}


def ensemble(jobs: int, kind: str, seed: int = 0) -> tuple[JobState, ...]:
    """Jobs of one sharing class with rate curves of that kind, fresh: not tabulated yet."""
    generator = np.random.default_rng([seed, jobs])
    measured, workers = CURVES[kind]
    counts = np.arange(1, measured + 1)
    turns = counts if workers is None else workers / np.ceil(workers / counts)
    single = np.exp(generator.uniform(np.log(21), np.log(176), jobs))
    noise = generator.normal(1, 0.01, (jobs, measured))
    rates = (single[:, np.newaxis] * turns * 0.97 ** (counts - 1) * noise).tolist()
    curves = [RateCurve(dict(enumerate(row, 1)), PER_NODE, LIMIT, workers) for row in rates]
    return tuple(JobState(f"job-{index}", curve, LIMIT, 0, "data/0") for index, curve in enumerate(curves))


def _contenders() -> dict[str, Policy]:
    return {**{name: policy(name) for name in POLICIES.built_in}, "flotilla, literal": policy("flotilla", literal=True)}


def _timed(jobs: int, devices: int, _: float, kind: str, repetitions: int) -> list[dict[str, Any]]:
    """The plans of all policies for one ensemble: the first with fresh curves, and the next one."""
    cluster = Cluster((PER_NODE,) * (devices // PER_NODE))
    contenders = _contenders()
    first: dict[str, list[float]] = {name: [] for name in contenders}
    again: dict[str, list[float]] = {name: [] for name in contenders}
    plans: dict[str, Allocation] = {}
    for repetition in range(repetitions):
        for name, contender in contenders.items():
            state = State.of(cluster, ensemble(jobs, kind, repetition))
            first[name].append(_seconds(lambda: contender.plan(state)))  # noqa: B023
            again[name].append(_seconds(lambda: contender.plan(state)))  # noqa: B023
            plans[name] = contender.plan(state).allocation
            validate(plans[name], state)
    return [
        {
            "jobs": jobs,
            "devices": devices,
            "curves": kind,
            "policy": name,
            "first": _spread(first[name]),
            "again": _spread(again[name]),
            "members": len(plan),
            "used": sum(map(len, plan.values())),
            "score": score(plan, cluster),
        }
        for name, plan in plans.items()
    ]


def _seconds(plan: Callable[[], object]) -> float:
    """Wall time of one call, without the garbage of others."""
    gc.collect()
    gc.disable()
    begin = perf_counter()
    plan()
    seconds = perf_counter() - begin
    gc.enable()
    return seconds


def _spread(values: list[float]) -> dict[str, float]:
    return {"median": median(values), "least": min(values), "most": max(values)}


def _bars(jobs: int, devices: int, most: float, plans: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The slowest median over the kinds of curves."""
    bars = []
    for which, note in (("first", "curves not tabulated"), ("again", "curves tabulated")):
        mine = [p for p in plans if (p["jobs"], p["devices"], p["policy"]) == (jobs, devices, "flotilla")]
        value = max(plan[which]["median"] for plan in mine)
        name = f"flotilla plans {jobs} jobs on {devices} devices, {note}: seconds"
        bars.append(at_most(name, value, most, unit=" s"))
    return bars


def _table(plans: list[dict[str, Any]]) -> dict[str, Any]:
    columns = ["jobs x devices", "curves", "policy", "first, ms", "again, ms", "members"]
    rows = []
    for plan in plans:
        size = f"{plan['jobs']} x {plan['devices']}"
        rows.append([size, plan["curves"], plan["policy"], _told(plan["first"]), _told(plan["again"]), plan["members"]])
    return {"title": "planning: median (least to most)", "columns": columns, "rows": rows}


def _told(spread: dict[str, float]) -> str:
    median_, least, most = (f"{spread[key] * 1e3:.3g}" for key in ("median", "least", "most"))
    return f"{median_} ({least} to {most})"
