"""The algorithms as the paper prints them, a line of code for each of its lines; slow, for comparison."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.rates import RateCurve


def counts_of(job: JobState, literal: bool) -> list[int]:
    """Every count up to the limit; or those faster than all smaller ones, of each stair only the first."""
    counts = list(range(1, job.limit + 1))
    if literal:
        return counts
    workers = job.rate.workers
    if workers:
        counts = [m for m in counts if m == 1 or -(-workers // m) < -(-workers // (m - 1))]
    return [m for m in counts if all(job.rate(m) > job.rate(k) for k in counts if k < m)]


def create_flotilla(cands: Sequence[JobState], devices: int, delta: float, literal: bool) -> dict[str, int]:
    """Algorithm 2; `delta` in samples/s. Unless literal, each data set has its own r_fast, in parts of which gaps count
    where there are several; and those that cannot keep the pace may join on one device each if they do no harm.
    """
    order = {job.name: index for index, job in enumerate(cands)}
    jobs = {job.name: job for job in cands}
    data = {job.name: "" if literal else job.data for job in cands}
    fast = {
        own: max((job for job in cands if data[job.name] == own), key=lambda job: (job.rate(1), -order[job.name]))
        for own in data.values()
    }
    r_fast = {name: fast[own].rate(1) for name, own in data.items()}
    unit = r_fast if len(fast) > 1 else dict.fromkeys(r_fast, 1.0)
    flotilla: dict[str, int] = {}
    refused: list[JobState] = []
    while True:
        left = devices - sum(flotilla.values())
        open_ = [job for job in cands if job.name not in flotilla and job not in refused]
        found = [
            (
                -1.0 if job in fast.values() else abs(job.rate(m) - r_fast[job.name]) / unit[job.name],
                -job.rate(m), order[job.name], m,
            )
            for job in open_
            for m in counts_of(job, literal)[: 1 if job in fast.values() else None]
            if m <= left
        ]  # fmt: skip
        if not found:
            break
        # Of one job the smaller count wins a tie of gaps, whatever the rates.
        best_of = {o: min((gap, m, minus) for gap, minus, o_, m in found if o_ == o) for _, _, o, _ in found}
        gap, minus, o, m = min((gap, minus, o, m) for o, (gap, m, minus) in best_of.items())
        best = cands[o]
        if flotilla and gap > delta / unit[best.name]:
            refused.append(best)
            continue
        flotilla[best.name] = m
    if not literal:
        refused.sort(key=lambda job: (-job.rate(1) / unit[job.name], order[job.name]))
        flotilla = filled(flotilla, refused, jobs, order, devices, unit)
    return assign_rest(flotilla, jobs, order, devices, literal, unit)


def filled(
    flotilla: dict[str, int], others: Sequence[JobState], jobs: dict[str, JobState], order: dict[str, int],
    devices: int, unit: dict[str, float],
) -> dict[str, int]:  # fmt: skip
    """Each of the others in turn on one device, if the flotilla then still does 0.9 of its useful work."""
    streams = set[str]()
    for job in others:
        if sum(flotilla.values()) == devices:
            break
        wider = {**flotilla, job.name: 1}
        before, after = (useful_work(raised(each, jobs, order, devices, unit), jobs) for each in (flotilla, wider))
        if job.stream in streams:
            continue
        if after >= 0.9 * before:
            flotilla = wider
        else:
            streams.add(job.stream)
    return flotilla


def raised(
    flotilla: dict[str, int], jobs: dict[str, JobState], order: dict[str, int], devices: int, unit: dict[str, float]
) -> dict[str, int]:
    """The slowest gets its next choice, again and again, until there are too few devices for that."""
    counts = dict(flotilla)
    while True:
        further = {name: [k for k in counts_of(jobs[name], False) if m < k <= devices] for name, m in counts.items()}
        open_ = [name for name, choices in further.items() if choices]
        if not open_:
            return counts
        slow = min(open_, key=lambda name: (jobs[name].rate(counts[name]) / unit[name], order[name]))
        if further[slow][0] - counts[slow] > devices - sum(counts.values()):
            return counts
        counts[slow] = further[slow][0]


def useful_work(counts: dict[str, int], jobs: dict[str, JobState]) -> float:
    """In devices: each stream's pace, that of its slowest, times what its members take for a sample on one device."""
    total = 0.0
    for stream in {jobs[name].stream for name in counts}:
        members = [jobs[name] for name in counts if jobs[name].stream == stream]
        pace = min(job.rate(counts[job.name]) for job in members)
        total += pace * sum(1 / job.rate(1) for job in members)
    return total


def assign_rest(
    flotilla: dict[str, int],
    jobs: dict[str, JobState],
    order: dict[str, int],
    devices: int,
    literal: bool,
    unit: dict[str, float],
) -> dict[str, int]:
    """Lines 12-16."""
    while True:
        left = devices - sum(flotilla.values())
        steps = {}
        for name, m in flotilla.items():
            larger = [k for k in counts_of(jobs[name], literal) if k > m]
            if larger and larger[0] - m <= left:
                steps[name] = larger[0]
        if not steps:
            return flotilla
        slow = min(steps, key=lambda name: (jobs[name].rate(flotilla[name]) / unit[name], order[name]))
        flotilla[slow] = steps[slow]


def best_in_a_row(counts: dict[str, int], nodes: list[int]) -> float:
    """The smallest Eq. 4 score of all orders, each job on the devices that follow those of the job before."""
    node_at = [node for node, size in enumerate(nodes) for _ in range(size)]
    best = float("inf")
    for order in set(permutations(counts.values())):
        start, total = 0, 0.0
        for count in order:
            total += len(set(node_at[start : start + count])) / count
            start += count
        best = min(best, total)
    return best


def fewest_nodes(counts: dict[str, int], nodes: list[int]) -> float:
    """The smallest Eq. 4 score that any placement could have: each job alone on the emptiest nodes."""
    total = 0.0
    for count in counts.values():
        sizes, spans = sorted(nodes), 0
        left = count
        while left > 0:
            left -= sizes.pop()
            spans += 1
        total += spans / count
    return total


def can_be_whole(counts: list[int], nodes: list[int]) -> bool:
    """Whether every job fits whole on one node, all at once."""
    if not counts:
        return True
    return any(
        can_be_whole(counts[1:], nodes[:i] + [nodes[i] - counts[0]] + nodes[i + 1 :])
        for i in range(len(nodes))
        if nodes[i] >= counts[0] and nodes[i] not in nodes[:i]
    )


def curve(*rates: float) -> RateCurve:
    """Measured on 1, 2, ... devices."""
    return RateCurve(dict(enumerate(rates, 1)), per_node=4, limit=len(rates))


def job(name: str, *rates: float, stream: str = "s", data: str = "s") -> JobState:
    return JobState(name, curve(*rates), len(rates), 0, stream, data=data)


def cluster_of(*nodes: int) -> Cluster:
    return Cluster(nodes)
