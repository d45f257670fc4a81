"""Whether networks at unlike places share a lane: what `preprocess.sharing.joining` loses against the better choice.

Both choices of each drawn case are rehearsed in small steps of time, until both networks are done. The rehearsal knows
samples, cores and devices, and nothing of the rule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.bars import Bar, at_most
from preprocess.sharing.joining import PreparingCosts, Reader, joins

CASES, SAMPLES, EPOCHS = 20, 20_000, 5
SUFFIX, PREFIX = 85e-6, 355e-6  # core-seconds a sample: what a kept one takes, and what keeping it saves
STEPS = 4000  # in which a network alone would train all that it has left
MOST_LOST = 1.01


@dataclass(frozen=True)
class Network:
    """Where it stands and ends, in samples of its stream; its devices, and the samples/s that they train."""

    place: float
    end: float
    devices: float
    rate: float


@dataclass(frozen=True)
class Case:
    """Two networks of one stream, the foremost first.

    Attributes:
        first, second: the networks.
        kept: whether what the first has prepared is kept for the second.
        cores: of preprocessors.
    """

    first: Network
    second: Network
    kept: bool
    cores: float

    def seconds(self, place: float, made_until: float) -> float:
        """Core-seconds of the sample at a place of the stream that was made before up to another one."""
        return SUFFIX + (0.0 if self.kept and place < made_until else PREFIX)


def main(repetitions: int = 0) -> dict[str, Any]:
    """Rehearse drawn cases, 20 or so many; returns {"bars": [...], "tables": [...]}."""
    draw = np.random.default_rng(11)
    cases = [_drawn(draw) for _ in range(repetitions or CASES)]
    costs = np.array([[_together(case), _apart(case)] for case in cases])
    better = costs.min(axis=1)
    rows, lost, worst = [], {}, {}
    for name, shares in _choices(cases).items():
        chosen = np.where(shares, costs[:, 0], costs[:, 1])
        lost[name] = float(chosen.sum() / better.sum())
        worst[name] = float((chosen / better).max())
        rows.append([name, lost[name], worst[name], int((chosen > better * 1.001).sum())])
    bars: list[Bar] = [
        at_most("joined by cost: device-seconds, in multiples of the better choice's", lost["by cost"], MOST_LOST),
        at_most("the same in the worst case", worst["by cost"], MOST_LOST),
    ]
    title = f"device-seconds in multiples of the better choice's, in {len(cases)} drawn cases"
    columns = ["rule", "all cases", "the worst", "cases in which it takes the worse"]
    return {"bars": bars, "tables": [{"title": title, "columns": columns, "rows": rows}]}


def _drawn(draw: np.random.Generator) -> Case:
    """Loads of the first network alone are 0.2 to 2 times what the preprocessors make."""
    front = draw.uniform(0, SAMPLES)
    rate = draw.uniform(500, 5000)
    epochs = draw.integers(1, EPOCHS + 1, size=2) * SAMPLES
    devices = draw.choice([1.0, 2.0, 4.0], size=2)
    first = Network(front, float(epochs[0]), float(devices[0]), rate)
    slower = rate * draw.uniform(0.8, 1.25)
    second = Network(draw.uniform(0, front), float(epochs[1]), float(devices[1]), slower)
    return Case(first, second, bool(draw.random() < 0.5), rate * (SUFFIX + PREFIX) / draw.uniform(0.2, 2.0))


def _choices(cases: list[Case]) -> dict[str, list[bool]]:
    """Which cases share a lane, by rule."""
    return {
        "by cost": [_by_cost(case) for case in cases],
        "if the foremost loses nothing in this epoch": [
            case.first.place - case.second.place <= SAMPLES - case.first.place for case in cases
        ],
        "always": [True for _ in cases],
        "never": [False for _ in cases],
    }


def _by_cost(case: Case) -> bool:
    first, second = (Reader(each.place, each.end, each.devices, each.rate) for each in (case.first, case.second))
    whole = SUFFIX + PREFIX
    return joins(first, second, PreparingCosts(whole, SUFFIX if case.kept else whole, case.cores))


def _together(case: Case) -> float:
    """Device-seconds until both are done, in one lane that begins where the rearmost stands."""
    networks, now, cost = (case.first, case.second), 0.0, 0.0
    at, step = case.second.place, _step(case)
    while reading := [network for network in networks if network.end > at]:
        there = [network for network in reading if network.place <= at]
        pace = min(case.cores / case.seconds(at, case.first.place), *(network.rate for network in there), math.inf)
        stops = [place for each in networks for place in (each.place, each.end) if place > at]
        until = min(at + pace * step, *stops)
        now += (until - at) / pace
        at = until
        cost += sum(network.devices * now for network in reading if network.end <= at)
    return cost


def _apart(case: Case) -> float:
    """Device-seconds until both are done, in a lane each."""
    networks, now, cost = (case.first, case.second), 0.0, 0.0
    places, step = [network.place for network in networks], _step(case)
    while reading := [index for index, network in enumerate(networks) if places[index] < network.end]:
        wanted = {index: networks[index].rate * step for index in reading}
        seconds = {index: case.seconds(places[index], max(places)) for index in reading}
        now += step
        for index, count in _dealt(wanted, seconds, case.cores * step).items():
            places[index] += count
            cost += networks[index].devices * now if places[index] >= networks[index].end else 0.0
    return cost


def _dealt(wanted: dict[int, float], seconds: dict[int, float], left: float) -> dict[int, float]:
    """Samples that each lane gets: preprocessors fill them in turn, and pass by the one that is full."""
    dealt, hungry = {}, sorted(wanted, key=lambda lane: wanted[lane])
    while hungry:
        lane = hungry[0]
        dealt[lane] = min(wanted[lane], left / sum(seconds[each] for each in hungry))
        left -= dealt[lane] * seconds[hungry.pop(0)]
    return dealt


def _step(case: Case) -> float:
    networks = (case.first, case.second)
    return max((network.end - network.place) / network.rate for network in networks) / STEPS
