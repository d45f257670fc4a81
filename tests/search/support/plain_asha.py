"""Asynchronous successive halving as its paper writes it, on devices that take exactly as long as they should."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable


def plain_asha(
    trials: int, rungs: tuple[int, ...], eta: int, devices: int, value: Callable[[int, int], float | None]
) -> list[tuple[int, int, int, int]]:
    """The segments that begin, in order: (time, trial, start, end); an epoch of trial i takes 1 + i % 3.

    Algorithm 2 of Li et al. (2020): a free device takes the best trial of the highest rung that is among the best 1/eta
    of it and has not been promoted, otherwise a new one. A trial that failed is the last of its rung.
    """
    results: list[dict[int, float]] = [{} for _ in rungs]
    promoted: list[set[int]] = [set() for _ in rungs]
    begun: list[tuple[int, int, int, int]] = []
    running: list[tuple[int, int, int]] = []
    fresh = 0
    time, free = 0, devices
    while True:
        while free:
            job = _job(results, promoted, eta)
            if job is None and fresh < trials:
                job, fresh = (fresh, -1), fresh + 1
            if job is None:
                break
            trial, level = job
            start, end = (0 if level < 0 else rungs[level]), rungs[level + 1]
            begun.append((time, trial, start, end))
            heapq.heappush(running, (time + (1 + trial % 3) * (end - start), trial, level + 1))
            free -= 1
        if not running:
            return begun
        time, trial, level = heapq.heappop(running)
        told = value(trial, rungs[level])
        results[level][trial] = math.inf if told is None or not math.isfinite(told) else told
        free += 1


def _job(results: list[dict[int, float]], promoted: list[set[int]], eta: int) -> tuple[int, int] | None:
    for level in reversed(range(len(results) - 1)):
        ranked = sorted(results[level], key=lambda trial: (results[level][trial], trial))
        for trial in ranked[: len(ranked) // eta]:
            if trial not in promoted[level] and math.isfinite(results[level][trial]):
                promoted[level].add(trial)
                return trial, level
    return None
