"""A year of a million jobs on 10,000 devices: what a job costs the simulator.

By default the first tenth of the year is played, and the rest told from it. FLEET_YEAR_JOBS sets how many jobs.
"""

from __future__ import annotations

import os
from time import process_time

from benchmarks.simulated.part import Part
from fleet.scheduling.model.cluster import Cluster
from fleet.simulator.machines.machine import MeasuredMachine
from fleet.simulator.machines.rate_tables import RateTable
from fleet.simulator.outcome import SimulationOutcome
from fleet.simulator.simulation import Simulation
from fleet.simulator.traces import Synthetic, Trace, synthetic_trace
from fleet.spec.policies import policy

YEAR = 365 * 86400.0
WHOLE = 1_000_000
PLAYED = 100_000
CLUSTER = Cluster((8,) * 1250)
MOST_SECONDS = 300.0
POLICIES = ("fifo", "tiresias")
RATES = RateTable(
    {
        ("sublinear", 64): {1: 10.0, 2: 19.0, 4: 36.0, 8: 66.0, 16: 120.0},
        ("linear", 256): {1: 3.0, 2: 6.0, 4: 12.0, 8: 24.0, 16: 48.0},
    }
)
"""Steps/s: made up, for it is the simulator that is measured."""


def measure(part: Part, repetitions: int) -> None:
    """Microseconds of a job, and seconds of the whole year, under policies that preempt nobody and everybody."""
    jobs = int(os.environ.get("FLEET_YEAR_JOBS", PLAYED))
    trace = year(jobs)
    rows = []
    for name in POLICIES:
        outcome, processor = min((_timed(trace, name) for _ in range(max(1, repetitions))), key=lambda found: found[1])
        whole = processor / jobs * WHOLE
        title = f"a year of 1,000,000 jobs on 10,000 devices under {name}, s of one processor"
        part.bar(title, whole, f"below {MOST_SECONDS:g}", whole < MOST_SECONDS)
        rows.append([name, *_figures(outcome, processor)])
    columns = [
        "policy", "jobs", "s of a processor", "s of the clock", "us an event", "us a job", "plans", "restarts",
        "most waiting",
    ]  # fmt: skip
    part.table("the year, as far as it was played", columns, rows)
    if jobs != WHOLE:
        part.note(f"{jobs:,} jobs were played and the rest told from them; FLEET_YEAR_JOBS={WHOLE} plays them all")


def _timed(trace: Trace, name: str) -> tuple[SimulationOutcome, float]:
    """What became of it, and the seconds of one processor that it took: those do not depend on what else runs."""
    begin = process_time()
    outcome = played(trace, name)
    return outcome, process_time() - begin


def _figures(outcome: SimulationOutcome, processor: float) -> list[float]:
    """An arrival, an end and a restart are an event each."""
    jobs, restarts = len(outcome.names), int(outcome.restarts.sum())
    return [
        jobs, round(processor, 1), round(outcome.seconds, 1), round(processor / (2 * jobs + restarts) * 1e6, 1),
        round(processor / jobs * 1e6, 1), len(outcome.timeline.times), restarts, int(outcome.timeline.waiting.max()),
    ]  # fmt: skip


def year(jobs: int, seed: int = 0) -> Trace:
    """The first jobs of a year of a million, which keep 10,000 devices about as busy as they can be, in bursts."""
    drawn = Synthetic(
        jobs=jobs, gap=YEAR / WHOLE, arrivals="bursty", burst=200, burst_gap=0.01, duration=43_000.0, spread=1.5
    )  # fmt: skip
    return synthetic_trace(drawn, RATES, seed)


def played(trace: Trace, name: str) -> SimulationOutcome:
    """What became of it under a policy."""
    return Simulation(trace, MeasuredMachine(CLUSTER, RATES), policy(name)).run()
