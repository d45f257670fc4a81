"""Twenty jobs that arrive one after another, as a spec for a rehearsal and as a trace for the simulator."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.rates import RateCurve
from fleet.simulator.machines.machine import Costs, MeasuredMachine, RunRates
from fleet.simulator.outcome import SimulationOutcome
from fleet.simulator.simulation import Simulation, SimulationConfig
from fleet.simulator.traces import Trace
from fleet.simulator.traces.trace import JobColumns, TraceJob
from fleet.spec.policies import policy

JOBS, DEVICES, BATCH, SAMPLES = 20, 4, 5, 480
RING = 1024
"""Samples that a run's ring holds by default: so far may a job be ahead of others."""
DEFAULTS = {
    "data": "points",
    "model": {"name": "trainers.zoo:MLP", "arguments": {"inputs": 6, "widths": [8], "classes": 3}},
    "optimizer": {"name": "SGD", "arguments": {"lr": 0.5}},
    "loss": "cross_entropy",
    "batch_size": BATCH,
}


@dataclass(frozen=True)
class Arriving:
    """What the spec says of one job, and its rates."""

    name: str
    workers: int
    epochs: int
    arrival: float
    deadline: float
    priority: int
    rates: Mapping[int, float]


def draw(seed: int = 1) -> list[Arriving]:
    """The jobs: of 1, 2 or 4 virtual workers, of 2 to 6 epochs of some seconds, one after every 3 s on average."""
    random_ = random.Random(seed)
    jobs, arrival = [], 0.0
    for index in range(JOBS):
        arrival += random_.expovariate(1 / 3)
        workers, epochs, single = random_.choice([1, 2, 4]), random_.randint(2, 6), random_.choice([60.0, 120.0, 240.0])
        rates = {m: single * m**0.9 for m in range(1, workers + 1) if workers % m == 0}
        within = epochs * SAMPLES / rates[workers] * random_.uniform(1.2, 4) + 2
        jobs.append(Arriving(f"j{index}", workers, epochs, round(arrival, 3), within, random_.randint(0, 2), rates))
    return jobs


def write_spec(folder: Path, jobs: list[Arriving], policy: Mapping[str, Any] | None = None) -> Path:
    """The spec of a rehearsal under a policy, with the data that it names."""
    source: dict[str, Any] = {
        part: {"source": "tests.commands.support.points:Points", "arguments": {"count": count}}
        for part, count in (("train", SAMPLES), ("held_out", 30))
    }
    spec = {
        "name": "arriving",
        **({"policy": dict(policy)} if policy else {}),
        "data": {"points": source},
        "defaults": DEFAULTS,
        "jobs": [
            {
                "name": job.name, "virtual_workers": job.workers, "stop": {"epochs": job.epochs},
                "arrival": job.arrival, "deadline": job.deadline, "priority": job.priority,
            }
            for job in jobs
        ],
        "rehearse": {"time_scale": 1.0, "rates": {job.name: dict(job.rates) for job in jobs}},
    }  # fmt: skip
    path = folder / "arriving.yaml"
    path.write_text(yaml.safe_dump(spec, sort_keys=False))
    return path


def simulated(
    jobs: list[Arriving], name: str, costs: Costs, margin: float = 0.0, parameters: Mapping[str, float] | None = None
) -> SimulationOutcome:
    """The same jobs, at the rates of the spec, in the simulator."""
    curves = {job.name: RateCurve(dict(job.rates), DEVICES, workers=job.workers) for job in jobs}
    columns = JobColumns.from_jobs([_trace_job(job) for job in jobs])
    trace = Trace.of(columns, "arriving", "journal", ()).with_curves(curves)
    machine = MeasuredMachine(Cluster((DEVICES,)), RunRates(curves), costs)
    return Simulation(
        trace, machine, policy(name, **(parameters or {})), config=SimulationConfig(0, RING, margin)
    ).run()


def _trace_job(job: Arriving) -> TraceJob:
    batch = job.workers * BATCH
    return TraceJob(
        job.name, job.arrival, job.workers, model=job.name, batch_size=batch, work=job.epochs * SAMPLES / batch,
        samples=float(job.epochs * SAMPLES), limit=job.workers, workers=job.workers, epochs=float(job.epochs),
        deadline=job.arrival + job.deadline, priority=job.priority, stream="points/0",
    )  # fmt: skip
