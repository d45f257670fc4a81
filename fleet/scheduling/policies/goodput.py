"""Goodput: kind, count and batch of every job, whenever something happens, and moves that pay for themselves."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from fleet.scheduling.model.arrays import Counts, Floats
from fleet.scheduling.model.job_state import JobState
from fleet.scheduling.model.plan import Plan
from fleet.scheduling.model.state import State
from fleet.scheduling.placing.configurations import Configuration, configuration_of, configurations_of, may_have, placed
from fleet.scheduling.placing.homes import curve_on
from fleet.scheduling.policies.checks import check_flag, check_period
from fleet.scheduling.policies.usual_policy import UsualPolicy
from fleet.scheduling.variable_batch.kind_goodput import Shapes, kind_goodput
from fleet.scheduling.variable_batch.priced_choices import NONE, best_choices

_SHORTEST = 60.0  # seconds that a job is taken to stay at least
_UNTOLD = 600.0  # seconds on one device that a job is taken to have left at least, where nobody tells
_AS_MUCH = 0.5  # part of what a job has trained that it is taken to have left yet, where nobody tells
_SIZES = 0.2  # power with which jobs that have less left count more, where that is known


@dataclass(frozen=True)
class Goodput(UsualPolicy):
    """At each event the configurations of greatest worth.

    A configuration is a kind of device, and a count on as few nodes as hold it. That of c for job j is worth

        W_j(c) = w_j (waiting - (E_j(c) / g_j)^power),    E_j(c) = G_j(c) / (1 + d_j(c) / H_j(c)),

    with its goodput G_j(c), the least g_j that it has anywhere, and the seconds d_j(c) until it trains there: those
    that are left of a restart where it is now, those of a restart elsewhere. H_j(c) is for how long a move has to pay:
    as long as the job has left there and, for one that has devices, no longer than it has stayed so far between moves,
    its age by 1 + its restarts. A job that loses its devices loses what its next restart will cost.

    Of what is left nobody tells the policy, unless `known`: it takes a job to have half as much before it as behind it,
    and all count alike (w = 1). Where it is known w is the work that is left to the power of -0.2.

    The choice is by prices of the kinds (`best_choices`), whose dual bounds the worth of every plan: each plan tells
    its worth and that bound.

    Args:
        known: whether what is left of jobs may be read.
        power: below 0; the lower, the fairer.
        waiting: more than a job's worth of having its slowest configuration, 1; the more, the less jobs wait.
        again: seconds after which it plans anew though nothing has happened: jobs' goodput changes as they train.

    Raises:
        ValueError: a parameter out of its range.
    """

    name: ClassVar[str] = "goodput"
    knows_kinds: ClassVar[bool] = True
    tunes_batches: ClassVar[bool] = True

    known: bool = False
    power: float = -0.5
    waiting: float = 1.1
    again: float = 120.0

    def __post_init__(self) -> None:
        check_flag("known", self.known)
        check_period("again", self.again)
        if not -math.inf < self.power < 0:
            raise ValueError(f"power is {self.power}; it must be below 0, and finite")
        if not 1 < self.waiting < math.inf:
            raise ValueError(f"waiting is {self.waiting}; it must be above 1, and finite")

    def plan(self, state: State) -> Plan:
        """Configurations by their worth, then devices."""
        if not state.by_name:
            return Plan()
        table = _Table(state)
        worth, none = self._worth(table)
        choices = best_choices(worth, none, table.devices, table.kinds, table.capacity)
        found = configurations_of(state.cluster)
        wanted = {name: found[index] for name, index in zip(state.by_name, choices.chosen.tolist()) if index != NONE}
        allocation, wake = placed(wanted, state), state.time + self.again
        return Plan(allocation, wake=wake, worth=choices.worth, worth_bound=choices.bound)

    def _worth(self, table: _Table) -> tuple[Floats, Floats]:
        """W_j(c), and what a job loses that gets nothing; shapes (jobs, configurations) and (jobs,)."""
        left = table.left if self.known else np.maximum(_AS_MUCH * table.trained, _UNTOLD * table.unit)
        weight = (left / table.unit) ** -_SIZES if self.known else np.ones(len(left))
        least = np.where(table.possible, table.goodput, np.inf).min(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            horizon = np.minimum(left[:, np.newaxis] / table.goodput, table.stays[:, np.newaxis])
            counted = table.goodput / (1 + table.delay / horizon) / least[:, np.newaxis]
            gained = weight[:, np.newaxis] * (self.waiting - counted**self.power)
        worth = np.where(table.possible, gained, -np.inf)
        rows = np.flatnonzero(table.held != NONE)
        now = table.goodput[rows, table.held[rows]]
        again = now / (1 + table.restart[rows] / np.minimum(left[rows] / now, table.stays[rows]))
        none = np.zeros(len(left))
        none[rows] = weight[rows] * ((now / least[rows]) ** self.power - (again / least[rows]) ** self.power)
        return worth, none


class _Table:
    """The jobs of a state in numbers.

    Attributes:
        devices, kinds: of each configuration, as `best_choices` has them; `capacity` of each kind.
        goodput: of each job in each configuration, and where that is `possible`; shape (jobs, configurations).
        unit: goodput of a job on one device, in the mean of all devices; shape (jobs,), as all that follows.
        trained, left: samples.
        restart, ready: seconds that a restart takes, and until the job trains where it is.
        held: the configuration that a job has, or NONE.
        delay: seconds until it trains in each configuration; shape (jobs, configurations).
        stays: seconds for which it stays where it is put, going by how often it was moved; infinite if it waits.
    """

    def __init__(self, state: State) -> None:
        found, jobs, now = configurations_of(state.cluster), state.jobs, state.time
        names = list(state.cluster.counts())
        self.devices: Counts = np.array([each.devices for each in found])
        self.kinds: Counts = np.array([names.index(each.kind) for each in found])
        self.capacity: Counts = np.array(list(state.cluster.counts().values()), dtype=np.int64)
        for device in state.unavailable:
            self.capacity[names.index(state.cluster.kind_of(device))] -= 1
        self.goodput = np.array([goodputs(job, found) for job in jobs])
        limits = np.array([job.limit for job in jobs])
        allowed = np.array([[may_have(job, name) for name in names] for job in jobs])[:, self.kinds]
        self.possible = (self.goodput > 0) & (self.devices <= limits[:, np.newaxis]) & allowed
        single = [int(np.flatnonzero((self.kinds == kind) & (self.devices == 1))[0]) for kind in range(len(names))]
        self.unit: Floats = self.goodput[:, single] @ (self.capacity / max(1, self.capacity.sum()))
        self.trained = _column(job.trained_at(now) for job in jobs)
        self.left = np.maximum(_column(job.remaining_at(now) for job in jobs), 1.0)
        self.restart = _column(job.restart for job in jobs)
        self.ready = _column(max(0.0, job.ready - now) for job in jobs)
        self.held = _held(state, found)
        runs = self.held != NONE
        self.delay = np.repeat(self.restart[:, np.newaxis], len(found), axis=1)
        self.delay[np.flatnonzero(runs), self.held[runs]] = self.ready[runs]
        period = _column((now - job.arrival) / (1 + job.restarts) for job in jobs)
        self.stays = np.where(runs, np.maximum(_SHORTEST, period), np.inf)


def goodputs(job: JobState, found: tuple[Configuration, ...]) -> Floats:
    """Goodput of a job in each configuration, 0 where it cannot run; of one without, its samples/s."""
    rates, scaling = np.zeros(len(found)), kind_goodput(job)
    for kind, rows, shapes in _by_kind(found):
        if scaling is not None:
            known = scaling.goodputs(kind, shapes)
            if known is not None:
                rates[rows] = known
        else:
            curve = curve_on(job, kind)
            rates[rows] = [curve(devices) for _, devices in shapes]
    return rates


@cache
def _by_kind(found: tuple[Configuration, ...]) -> tuple[tuple[str, npt.NDArray[np.int64], Shapes], ...]:
    """Kind -> the configurations' numbers, and their nodes and devices."""
    kinds = dict.fromkeys(each.kind for each in found)
    return tuple(
        (
            kind,
            np.array([number for number, each in enumerate(found) if each.kind == kind]),
            tuple((each.nodes, each.devices) for each in found if each.kind == kind),
        )
        for kind in kinds
    )


def _held(state: State, found: tuple[Configuration, ...]) -> Counts:
    """The number of the configuration that each job has, or NONE."""
    index = {configuration: number for number, configuration in enumerate(found)}
    staying, cluster = state.staying, state.cluster
    return np.array(
        [
            index.get(configuration_of(staying[name], cluster), NONE) if name in staying else NONE
            for name in state.by_name
        ]
    )


def _column(values: object) -> Floats:
    return np.fromiter(values, dtype=np.float64)  # type: ignore[call-overload, no-any-return]
