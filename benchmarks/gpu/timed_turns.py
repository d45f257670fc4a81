"""Ways to step take turns in one process on one device; their seconds, and ratios of runs that stand side by side."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

import torch

from benchmarks.gpu.arithmetic import Arithmetic
from benchmarks.ways_to_step import Step

WARM_UP = 3
LEAST, MOST = 3, 30
"""Runs of each way."""
RUN_SECONDS = 0.1
"""A run has as many steps as take about so long, at most MOST_STEPS."""
MOST_STEPS = 20


@dataclass(frozen=True)
class TimedWay:
    """A way to step, and how the process computes meanwhile."""

    step: Step
    arithmetic: Arithmetic

    def warm(self) -> float:
        """Step until memory and kernels are laid out; return the seconds of the last step."""
        for _ in range(WARM_UP):
            seconds = self.run(1)
        return seconds

    def run(self, steps: int) -> float:
        """Return the seconds of a step, until the device has done all."""
        self.arithmetic.apply()
        torch.accelerator.synchronize()
        begin = time.perf_counter()
        for _ in range(steps):
            self.step()
        torch.accelerator.synchronize()
        return (time.perf_counter() - begin) / steps


def in_timed_turns(ways: Mapping[str, TimedWay], seconds: float, tried: bool = False) -> dict[str, list[float]]:
    """Return the seconds of a step in each run of each way; the order alternates.

    seconds: for all, warming included. tried: to see whether it works, with LEAST runs of a step each.
    """
    until = time.monotonic() + seconds
    slowest = max(way.warm() for way in ways.values())
    steps = 1 if tried else min(MOST_STEPS, max(1, math.ceil(RUN_SECONDS / slowest)))
    told: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(LEAST if tried else MOST):
        if turn >= LEAST and time.monotonic() > until:
            break
        for name in list(ways) if turn % 2 else reversed(list(ways)):
            told[name].append(ways[name].run(steps))
    return told


def over(ours: list[float], theirs: list[float]) -> str:
    """Return the median of ratios of runs side by side, with the least and the most."""
    ratios = [one / other for one, other in zip(ours, theirs)]
    return f"{median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"


def part_of(ours: list[float], theirs: list[float]) -> float:
    """Return the median of our speeds in parts of theirs, of runs side by side."""
    return median(other / one for one, other in zip(ours, theirs))
