"""A lower bound on the mean completion time of a workload: what no plan in this simulator can go below.

At given prices of a device of each kind in each slot of time, every job by itself chooses the end, and the path of
configurations until then, that cost it least: the seconds until its end and the price of its devices, those that it
holds while it restarts too (`least_paths`). Every plan gives each job a path, and no more devices than there are. So
the sum over jobs, less the price of all devices, bounds the sum of completion times, whatever the prices (weak
duality); a subgradient method makes it large. With prices of 0 each job is alone on the cluster.

What the bound leaves out: prices let jobs share devices more finely than whole configurations fit on nodes; a job's
work may be done in the mean of several paths to one end; and all arrivals are known in advance.

A job's epochs are one amount of work. In configuration c its pace is at most the largest of phi_e / t_e(c) over epochs
e, with the seconds t_e(c) of an epoch at its best batch, in whole seconds as the simulator has them, and any shares phi
that add up to 1. Those that tell most are taken, of what epochs cost at several prices of a device.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from benchmarks.heterogeneous.least_paths import GRID, LeastPaths, Prices, Work
from benchmarks.heterogeneous.workloads import HOUR, MIXED, rates, trace_of
from benchmarks.papers.sia_machine import Placement, SiaAgent
from fleet.scheduling.model.arrays import Floats
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.placing.configurations import configurations_of
from fleet.simulator.comparing.settings import read_cluster

STEPS = 60  # of the subgradient method
SLOT, MOST_SLOTS = 50.0, 1600
"""Seconds at one price, at least; and how many times prices may change."""
_PRICES = (0.0, 0.01, 0.05, 0.25, 100.0)  # of a device of the fastest kind, in seconds a second, for shares phi
_SHORTEST = 1e-3  # seconds of an epoch
_FIRST, _LAST = 0.02, 0.001  # steps of prices, in job seconds a device second
_MEMORY, _SQUARES, _LEAST = 0.8, 0.95, 1e-12  # of the means of subgradients and of their squares (Adam)


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
        self._slot = max(SLOT, float(np.ceil(horizon / MOST_SLOTS / GRID)) * GRID)
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
        rents = Prices.of(self._slot, prices @ self._usage.T)
        slope, total = -self._slot * np.tile(self._capacity, (len(prices), 1)), 0.0
        for model, work in self._works.items():
            paths = LeastPaths(work, np.array([arrival for name, arrival in self._jobs if name == model]), rents)
            least = paths.least()
            total += float(least.cost.sum())
            slope += paths.used(least) @ self._usage
        total -= self._slot * float((prices @ self._capacity).sum())
        return total / len(self._jobs), slope


@cache
def _agent(model: str) -> SiaAgent:
    return SiaAgent(rates().application(model))


def _work(model: str, cluster: Cluster) -> Work:
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
    return Work(agent.application.restart, whole, np.array(paces))


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
