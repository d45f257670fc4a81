"""Which devices each job gets (FLEET, MLSys'20, Algorithms 3 and 4, Eq. 4)."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain, islice, permutations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fleet.scheduling.model.arrays import Counts
from fleet.scheduling.model.cluster import Cluster, FreeDevices
from fleet.scheduling.model.policy import Allocation, State

MAX_PERMUTATIONS = 1024  # of Algorithm 3
_PERMUTED = 7  # 1,024 permutations in lexicographic order change the last 7 places only, as 6! < 1024 < 7!
_EQUAL = 1e-9  # scores that differ by less are equal

PlacingOrder = list[tuple[str, int]]


class _Attempt(NamedTuple):
    placed: dict[str, tuple[int, ...]]
    score: float  # Eq. 4


def place(
    counts: Mapping[str, int], cluster: Cluster, free: Collection[int] | None = None
) -> dict[str, tuple[int, ...]]:
    """Give each job its count of devices on as few nodes as possible.

    Algorithm 3 on the nodes that have free devices, if these have equally many: (1) jobs whose count is a multiple of
    a node's devices, (2) pairs whose sum is one, (3) the others in the one of at most 1,024 orders whose Eq. 4 score is
    smallest, each job taking the next devices after the job before it (Algorithm 4). Where nodes differ, or
    where that leaves a job on more nodes than it needs, (3) is tried on all jobs. Algorithm 4 cannot leave a gap, and
    1,024 orders may be few; so (3) also tries best fit, largest job first. The smallest score wins, the first on ties.

    Args:
        counts: job -> devices it needs, one or more.
        cluster: the machine.
        free: devices that may be given; None: all.

    Returns:
        Job -> its devices, ascending, in the order of `counts`.

    Raises:
        ValueError: more devices are needed than are free.
    """
    nodes = _free_nodes(cluster, range(cluster.size) if free is None else free)
    needed, there = sum(counts.values()), sum(map(len, nodes))
    if needed > there:
        raise ValueError(f"{len(counts)} jobs need {needed} devices together, but {there} are free")
    jobs: PlacingOrder = list(counts.items())
    if not jobs:
        return {}
    equal = len(set(map(len, nodes))) == 1
    attempts = [_pruned(jobs, nodes)] if equal else []
    if not equal or attempts[0].score > _least(jobs, len(nodes[0])) + _EQUAL:
        attempts.append(_searched(jobs, nodes))
    placed = _best(attempts).placed
    return {job: placed[job] for job in counts}


def place_changed(state: State, counts: Mapping[str, int], stopped: Iterable[str] = ()) -> dict[str, tuple[int, ...]]:
    """Devices for jobs that start or move, the largest first, each where it fits best (`FreeDevices.take`).

    Args:
        counts: job -> devices that it needs, one or more. What it holds is free for all.
        stopped: jobs that stop, whose devices are free, too.

    Returns:
        Job -> its devices; without the jobs for which too few were left.
    """
    free = state.free_devices()
    for job in (*counts, *stopped):
        free.give(device for device in state.running.get(job, ()) if device not in state.unavailable)
    placed = ((job, free.take(count)) for job, count in sorted(counts.items(), key=lambda item: -item[1]))
    return {job: devices for job, devices in placed if devices}


def score(allocation: Allocation, cluster: Cluster) -> float:
    """Eq. 4: the sum over jobs of the nodes that a job spans, over its count of devices."""
    return sum(len({cluster.node_of(device) for device in devices}) / len(devices) for devices in allocation.values())


def _free_nodes(cluster: Cluster, free: Collection[int]) -> list[list[int]]:
    """The free devices of each node that has any."""
    nodes: dict[int, list[int]] = {}
    devices, ends, node = sorted(free), cluster.ends, 0
    for device in devices[:1] + devices[-1:]:
        cluster.node_of(device)  # it is there
    for device in devices:
        while device >= ends[node]:
            node += 1
        nodes.setdefault(node, []).append(device)
    return list(nodes.values())


def _least(jobs: PlacingOrder, per_node: int) -> float:
    """What Eq. 4 is at least: each job on no more nodes than it must."""
    return sum(-(-count // per_node) / count for _, count in jobs)


def _best(attempts: Sequence[_Attempt]) -> _Attempt:
    """The first of those with the smallest score."""
    least = min(attempt.score for attempt in attempts)
    return next(attempt for attempt in attempts if attempt.score <= least + _EQUAL)


def _pruned(jobs: PlacingOrder, nodes: list[list[int]]) -> _Attempt:
    """Algorithm 3, on nodes with equally many free devices."""
    per_node = len(nodes[0])
    filling, rest = _filling(jobs, per_node)
    used = sum(count for _, count in filling) // per_node
    placed = _in_a_row(filling, nodes[:used])
    total = _least(
        filling, per_node
    )  # alone, or in a pair that begins and ends with a node, a job spans no node too many
    if rest:
        others = _searched(rest, nodes[used:])
        placed, total = placed | others.placed, total + others.score
    return _Attempt(placed, total)


def _filling(jobs: PlacingOrder, per_node: int) -> tuple[PlacingOrder, PlacingOrder]:
    """Lines 3-24: the jobs that fill nodes to the last device, alone or in pairs, in their order; and the others."""
    alone = [(job, count) for job, count in jobs if count % per_node == 0]
    pairs: PlacingOrder = []
    memo: dict[int, PlacingOrder] = {}  # remainder -> jobs that wait for their complement, the first one first
    for job, count in jobs:
        if count % per_node == 0:
            continue
        complements = memo.get(-count % per_node)
        if complements:
            pairs += [(job, count), complements.pop(0)]
        else:
            memo.setdefault(count % per_node, []).append((job, count))
    waiting = {job for jobs_ in memo.values() for job, _ in jobs_}
    return alone + pairs, [(job, count) for job, count in jobs if job in waiting]


def _in_a_row(jobs: PlacingOrder, nodes: list[list[int]]) -> dict[str, tuple[int, ...]]:
    """Algorithm 4 for one job after the other."""
    line = list(chain.from_iterable(nodes))
    placed, start = {}, 0
    for job, count in jobs:
        placed[job] = tuple(sorted(line[start : start + count]))
        start += count
    return placed


def _searched(jobs: PlacingOrder, nodes: list[list[int]]) -> _Attempt:
    """Lines 25-41, or best fit where that is better."""
    largest_first = sorted(jobs, key=lambda job: -job[1])
    nodes = sorted(nodes, key=lambda node: -len(node))
    order, total = _best_order(largest_first, [len(node) for node in nodes])
    return _best((_Attempt(_in_a_row(order, nodes), total), _best_fit(largest_first, nodes)))


def _best_order(jobs: PlacingOrder, sizes: list[int]) -> tuple[PlacingOrder, float]:
    """The first of the best orders of `jobs` on nodes of these sizes, placed in a row; and its Eq. 4 score."""
    node_at = np.repeat(np.arange(len(sizes)), sizes)
    counts = np.array([count for _, count in jobs])
    fixed = max(0, len(jobs) - _PERMUTED)
    start = int(counts[:fixed].sum())
    orders = _orders(counts[fixed:])
    scores = _row_scores(counts[:fixed][np.newaxis], node_at, 0) + _row_scores(counts[fixed:][orders], node_at, start)
    best = int(np.argmax(scores <= scores.min() + _EQUAL))
    return jobs[:fixed] + [jobs[fixed + place_] for place_ in orders[best]], float(scores[best])


def _orders(counts: Counts) -> Counts:
    """The orders to try, one a row; a single one where all counts are alike."""
    if (counts == counts[0]).all():
        return np.arange(len(counts))[np.newaxis]
    return _permutations(len(counts))


@lru_cache
def _permutations(length: int) -> Counts:
    """The first 1,024 permutations in lexicographic order, one a row; read-only."""
    rows = np.array(list(islice(permutations(range(length)), MAX_PERMUTATIONS)))
    rows.flags.writeable = False
    return rows


def _row_scores(counts: Counts, node_at: Counts, start: int) -> npt.NDArray[np.float64]:
    """Eq. 4 for each row of `counts`, its jobs placed one after the other from position `start` on; shape (rows,)."""
    ends = start + np.cumsum(counts, axis=1)
    spans = node_at[ends - 1] - node_at[ends - counts] + 1
    scores: npt.NDArray[np.float64] = (spans / counts).sum(axis=1)
    return scores


def _best_fit(jobs: PlacingOrder, nodes: list[list[int]]) -> _Attempt:
    """Each job on the node that it fills best, else on the emptiest nodes."""
    left = [list(node) for node in nodes]
    sizes = sorted((len(node), index) for index, node in enumerate(nodes))
    placed, total = {}, 0.0
    for job, count in jobs:
        devices: list[int] = []
        spans = 0
        while len(devices) < count:
            missing = count - len(devices)
            fitting = bisect_left(sizes, (missing, -1))
            emptiest = bisect_left(sizes, (sizes[-1][0], -1))
            _, node = sizes.pop(min(fitting, emptiest))
            devices += left[node][:missing]
            del left[node][:missing]
            if left[node]:
                insort(sizes, (len(left[node]), node))
            spans += 1
        placed[job] = tuple(sorted(devices))
        total += spans / count
    return _Attempt(placed, total)


def staying(counts: Mapping[str, int], state: State) -> tuple[dict[str, tuple[int, ...]], FreeDevices]:
    """The running jobs whose number is right, on the devices that they have; and the devices free for the others."""
    free = state.free_devices()
    placed: dict[str, tuple[int, ...]] = {}
    for name, devices in state.running.items():
        if counts.get(name) == len(devices) and state.unavailable.isdisjoint(devices):
            placed[name] = devices
        else:
            free.give(device for device in devices if device not in state.unavailable)
    return placed, free


def placed_or_staying(counts: Mapping[str, int], state: State) -> dict[str, tuple[int, ...]]:
    """Devices for each job: those that it has, where their number is right; for the others, the largest job first.

    A job that fits on a node is not spread over several: it gets what one node has, or nothing.

    Args:
        counts: job -> devices, one or more; together no more than are available.
    """
    placed, free = staying(counts, state)
    coming = [state.by_name[name] for name in counts if name not in placed]
    for job in sorted(coming, key=lambda job: (-counts[job.name], job.arrival, job.name)):
        count = counts[job.name]
        if count <= max(state.cluster.devices_per_node):
            count = min(count, free.largest())
        taken = free.take(count) if count else None
        if taken is not None:
            placed[job.name] = taken
    return placed


def resized(counts: Mapping[str, int], state: State) -> dict[str, tuple[int, ...]]:
    """Job -> its devices: those that it has where their number is right, else on as few nodes as possible.

    Args:
        counts: job -> how many it should have, together no more than are available; 0: none.
        state: who has what now.
    """
    placed, free = staying(counts, state)
    for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if count and name not in placed:
            taken = free.take(count)
            if taken is None:
                raise ValueError(f"job {name} should have {count} devices, but {len(free)} are left")
            placed[name] = taken
    return placed
