"""The smallest driver: carries a policy's allocations out until every job is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Policy, State, validate


@dataclass
class Run:
    """What happened: the allocations that were started, and the jobs in the order of their ends."""

    rounds: list[dict[str, tuple[int, ...]]] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    stops: int = 0


def drive(
    policy: Policy,
    cluster: Cluster,
    jobs: Sequence[JobState],
    epochs: Mapping[str, int],
    pick: Callable[[list[str]], str],
) -> Run:
    """Train each job for its number of epochs; `pick` says which running job ends its epoch next."""
    run, left = Run(), dict(epochs)
    running: dict[str, tuple[int, ...]] = {}
    leaving: set[str] = set()
    asked = False
    while any(left.values()):
        if not asked:
            state = _state(cluster, jobs, left, epochs, running, run)
            allocation = policy.plan(state).whole_of(state.staying)
            validate(allocation, state)
            leaving |= {job for job in running if allocation.get(job) != running[job]}
            new = {job: devices for job, devices in allocation.items() if job not in running}
            held = {device for devices in running.values() for device in devices}
            if new and not held.intersection(*[[d for devices in new.values() for d in devices]]):
                running |= new
                run.rounds.append(dict(allocation))
        assert running, f"{policy.name} leaves the machine idle while jobs wait"
        job = pick(sorted(running))
        left[job] -= 1
        asked = left[job] > 0 and job not in leaving
        if not asked:
            del running[job]
            run.stops += left[job] > 0
            leaving.discard(job)
            run.done += [job] if left[job] == 0 else []
    return run


def _state(
    cluster: Cluster,
    jobs: Sequence[JobState],
    left: Mapping[str, int],
    epochs: Mapping[str, int],
    running: Mapping[str, tuple[int, ...]],
    run: Run,
) -> State:
    unfinished = tuple(
        JobState(
            job.name, job.rate, job.limit, epochs[job.name] - left[job.name], f"s/{epochs[job.name] - left[job.name]}"
        )
        for job in jobs
        if left[job.name]
    )
    return State.of(cluster, unfinished, dict(running), run.rounds[-1] if run.rounds else {})
