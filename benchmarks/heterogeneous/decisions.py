"""How long the policy `goodput` takes to decide."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from time import perf_counter

import numpy as np

from benchmarks.heterogeneous.workloads import ABSENT, MIXED, folder, rates, trace_of
from benchmarks.papers.sia_machine import SiaApplication, SiaMachine, SiaRates
from benchmarks.simulated.part import Part, uncollected
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import State
from fleet.simulator.comparing.settings import read_cluster
from fleet.simulator.machines.machine import Adapting
from fleet.spec.policies import policy

SMALL, LARGE = 0.020, 1.0
"""Seconds of the 99th percentile of decisions: 64 devices and 160 jobs; 2,000 devices of four kinds and 5,000 jobs."""
FOUR = "100x4:aws,50x8:dgx-ext,75x8:rtx,75x8:more"
REPETITIONS = 100


def measure(part: Part, repetitions: int) -> None:
    """The 99th percentile of decisions, each with one job more or less and all the others as they were."""
    if folder() is None:
        part.note(ABSENT)
        return
    sizes = ((MIXED, rates(), 160, SMALL), (FOUR, _four_kinds(), 5000, LARGE))
    for shape, known, jobs, most in sizes:
        cluster = read_cluster(shape)
        times = _timed(cluster, known, jobs, repetitions or (REPETITIONS if jobs < 1000 else REPETITIONS // 5))
        p99 = float(np.percentile(times, 99))
        part.bar(f"{cluster.size} devices, {jobs} jobs: p99 of a decision, s", p99, f"<= {most:g}", p99 <= most)


def _four_kinds() -> SiaRates:
    """A fourth kind, as fast as 2080Ti."""
    found: dict[str, SiaApplication] = {}
    for model in rates().models:
        application = rates().application(model)
        found[model] = replace(application, kinds={**application.kinds, "more": application.kinds["rtx"]})
    return SiaRates(found)


def _timed(cluster: Cluster, known: SiaRates, jobs: int, times: int) -> list[float]:
    chosen, taken = policy("goodput"), []
    everybody = list(_jobs(cluster, known, jobs + 1))
    running: dict[str, tuple[int, ...]] = {}
    with uncollected():
        for number in range(times):
            states = [job for place, job in enumerate(everybody) if place != number % len(everybody)]
            names = {job.name for job in states}
            held = {name: devices for name, devices in running.items() if name in names}
            shown = [job.changed(held=len(held.get(job.name, ()))) for job in states]
            state = State.of(cluster, shown, held, time=10_000.0)
            begin = perf_counter()
            running = dict(chosen.plan(state).allocation)
            taken.append(perf_counter() - begin)
    return taken


def _jobs(cluster: Cluster, known: SiaRates, count: int) -> Iterator[JobState]:
    """Jobs of a workload, again and again, as they arrive where applications are profiled."""
    machine = SiaMachine(cluster, known).under(Adapting(tunes=True, profiled=True))
    jobs = list(trace_of("newtrace-1"))
    for number in range(count):
        job = replace(jobs[number % len(jobs)], name=f"job-{number}", arrival=float(number))
        yield machine.arriving(job)
