"""A lower bound on the mean completion time of a workload: what no plan in this simulator can go below.

Jobs are fluid: a job may have any share of any configuration at any second, and restarts after its first cost nothing.
At given prices of a device of each kind in each minute, every job by itself chooses the end, and the configurations
until then, that cost it least: the seconds until its end and the price of its devices. The sum over jobs, less the
price of all devices, bounds the sum of completion times, whatever the prices (weak duality); a subgradient method makes
it large. With prices of 0 each job is alone on the cluster.

A job's epochs are one amount of work. In configuration c its pace is at most the largest of phi_e / t_e(c) over epochs
e, with the seconds t_e(c) of an epoch at its best batch, in whole seconds as the simulator has them, and any shares phi
that add up to 1. Those that tell most are taken, of what epochs cost at several prices of a device.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from benchmarks.heterogeneous.workloads import HOUR, MIXED, rates, trace_of
from fleet.scheduling.model.arrays import Counts, Floats
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.placing.configurations import configurations_of
from fleet.simulator.comparing.cluster_shape import read_cluster
from fleet.simulator.machines.sia_agent import Placement, SiaAgent

STEPS = 60  # of the subgradient method
SLOT, MOST_SLOTS = 60.0, 1500
"""Seconds at one price, at least; and how many times prices may change."""
_VALUES = np.concatenate(([0.0], np.geomspace(0.8, 30.0, 32)))  # of a job's work, in times that it takes alone
_PRICES = (0.0, 0.01, 0.05, 0.25, 100.0)  # of a device of the fastest kind, in seconds a second, for shares phi
_SHORTEST = 1e-3  # seconds of an epoch
_FIRST, _LAST = 0.02, 0.001  # steps of prices, in job seconds a device second
_MEMORY, _SQUARES, _LEAST = 0.8, 0.95, 1e-12  # of the means of subgradients and of their squares (Adam)


@dataclass(frozen=True, eq=False)
class _Work:
    """An application's whole training.

    Attributes:
        restart: seconds until its first step.
        alone: seconds of all epochs, each in the configuration that is best for it.
        paces: parts of the whole a second in each configuration, by shares phi; shape (shares, configurations).
    """

    restart: float
    alone: float
    paces: Floats


@dataclass(frozen=True, eq=False)
class _Chosen:
    """What the jobs of an application choose at given prices.

    Attributes:
        best: the configuration, or -1, by shares, value of the work and slot; shape (shares, values, slots).
        gained: what it brings until the begin of each slot; shape (shares, values, slots + 1).
    """

    best: Counts
    gained: Floats


class LeastTimes:
    """The bound for one workload on one cluster.

    Args:
        workload: its name.
        shape: of the cluster.
    """

    def __init__(self, workload: str, shape: str = MIXED) -> None:
        jobs, cluster = list(trace_of(workload)), read_cluster(shape)
        found = configurations_of(cluster)
        kinds = list(cluster.counts())
        self._capacity = np.array(list(cluster.counts().values()), dtype=np.float64)
        self._usage = np.zeros((len(found), len(kinds)))
        for row, each in enumerate(found):
            self._usage[row, kinds.index(each.kind)] = each.devices
        self._works = {model: _work(model, cluster) for model in dict.fromkeys(job.model for job in jobs)}
        self._jobs = [(job.model, job.arrival) for job in jobs]
        longest = max(work.alone + work.restart for work in self._works.values())
        horizon = max(job.arrival for job in jobs) + 3 * longest
        self._slot = max(SLOT, horizon / MOST_SLOTS)
        self._slots = int(horizon / self._slot) + 2

    def alone(self) -> float:
        """Mean of the seconds that each job would take with the whole cluster for itself."""
        return float(np.mean([self._works[model].restart + self._works[model].alone for model, _ in self._jobs]))

    def bound(self, steps: int = STEPS) -> float:
        """The mean completion time that no plan goes below, seconds."""
        prices = np.zeros((self._slots, len(self._capacity)))
        mean, square, best = np.zeros_like(prices), np.zeros_like(prices), self.alone()
        for step in range(1, steps + 1):
            told, slope = self._at(prices)
            best = max(best, told)
            mean = _MEMORY * mean + (1 - _MEMORY) * slope
            square = _SQUARES * square + (1 - _SQUARES) * slope**2
            rate = _FIRST * (_LAST / _FIRST) ** (step / steps)
            ahead = mean / (1 - _MEMORY**step) / (np.sqrt(square / (1 - _SQUARES**step)) + _LEAST)
            prices = np.maximum(0.0, prices + rate * ahead)
        return best

    def _at(self, prices: Floats) -> tuple[float, Floats]:
        """The bound at these prices, and how it changes with each; shape (slots, kinds)."""
        chosen = {model: self._choose(work, prices) for model, work in self._works.items()}
        slope, total = -self._slot * np.tile(self._capacity, (len(prices), 1)), 0.0
        for model, arrival in self._jobs:
            begin = arrival + self._works[model].restart
            least, (share, value, end) = self._least(self._works[model], chosen[model], begin)
            total += least + self._works[model].restart
            first = int(begin / self._slot)
            best = chosen[model].best[share, value, first:end]
            seconds = np.full(len(best), self._slot)
            if len(best):
                seconds[0] -= begin - first * self._slot
            slope[first:end] += np.where((best >= 0)[:, None], self._usage[best], 0.0) * seconds[:, None]
        total -= self._slot * float((prices @ self._capacity).sum())
        return total / len(self._jobs), slope

    def _choose(self, work: _Work, prices: Floats) -> _Chosen:
        cost = prices @ self._usage.T
        values = _VALUES * work.alone
        best = np.empty((len(work.paces), len(values), len(prices)), dtype=np.int64)
        gained = np.zeros((len(work.paces), len(values), len(prices) + 1))
        for share, paces in enumerate(work.paces):
            for number, value in enumerate(values):
                gain = value * paces - cost
                top = gain.argmax(axis=1)
                most = gain[np.arange(len(top)), top]
                best[share, number] = np.where(most > 0, top, -1)
                gained[share, number, 1:] = np.maximum(most, 0.0).cumsum() * self._slot
        return _Chosen(best, gained)

    def _least(self, work: _Work, chosen: _Chosen, begin: float) -> tuple[float, tuple[int, int, int]]:
        """Seconds from the first step to the end, and the price until then, that are least together.

        By each value of the work it is the seconds, and the value, less what the configurations bring: of all values
        that which tells most counts, and of all ends that which costs least. Between two slots' begins it is linear,
        so that the lower of both bounds it there. An end after the last slot costs at least the seconds until then.
        """
        first, last = int(begin / self._slot), min(self._slots, int((begin + 40 * work.alone) / self._slot) + 2)
        part = begin / self._slot - first
        gained = chosen.gained[:, :, first : last + 1]
        before = gained[:, :, 0] + part * (gained[:, :, 1] - gained[:, :, 0])
        ends = np.arange(first, last + 1) * self._slot - begin
        ends[0] = 0.0
        gained = gained - before[:, :, None]
        gained[:, :, 0] = 0.0
        whole = ends + (_VALUES * work.alone)[:, None] - gained
        lower = np.minimum(whole[:, :, 1:], whole[:, :, :-1]).reshape(-1, len(ends) - 1)
        by_end = lower.argmax(axis=0)
        least = lower[by_end, np.arange(lower.shape[1])]
        end = int(least.argmin())
        share, value = divmod(int(by_end[end]), len(_VALUES))
        return min(float(least[end]), last * self._slot - begin), (share, value, first + end + 1)


@cache
def _agent(model: str) -> SiaAgent:
    return SiaAgent(rates().application(model))


def _work(model: str, cluster: Cluster) -> _Work:
    agent, found = _agent(model), configurations_of(cluster)
    seconds = np.array([_seconds(agent, each.kind, _even(each.nodes, each.devices)) for each in found])
    possible = np.isfinite(seconds).all(axis=1)
    devices, single = np.array([each.devices for each in found]), seconds[:, 0] * 0.0
    for row, each in enumerate(found):
        alone = next(number for number, one in enumerate(found) if one.kind == each.kind and one.devices == 1)
        single[row] = seconds[alone].sum()
    paces = []
    for price in _PRICES:
        charge = 1.0 + price * devices * single.min() / single
        shares = (seconds[possible] * charge[possible, None]).min(axis=0)
        most = (shares / shares.sum() / np.maximum(seconds, _SHORTEST)).max(axis=1)
        paces.append(np.where(possible, most, 0.0))
    whole = float(seconds[possible].min(axis=0).sum())
    return _Work(agent.application.restart, whole, np.array(paces))


def _seconds(agent: SiaAgent, kind: str, placement: Placement) -> Floats:
    """Whole seconds of each epoch with the best batch; infinite where no batch is possible; shape (epochs,)."""
    application, devices = agent.application, sum(placement)
    work = np.diff(application.ends, prepend=0.0) * agent.first
    best = np.zeros(len(work))
    for split in agent.splits(kind, placement):
        if agent.first <= split.batch(devices) <= agent.largest and split.local > 0:
            paces = [agent.goodput(kind, placement, split, epoch) for epoch in range(application.epochs)]
            best = np.maximum(best, paces)
    with np.errstate(divide="ignore"):
        return np.round(work / best)


def _even(nodes: int, devices: int) -> Placement:
    return (devices // nodes,) * nodes


def bound_hours(workload: str, shape: str = MIXED) -> float:
    """The bound of a workload, hours."""
    return LeastTimes(workload, shape).bound() / HOUR
