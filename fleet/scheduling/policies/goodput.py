"""Goodput: kind, count and batch of every job, whenever something happens, and moves that pay for themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from fleet.scheduling.model.arrays import Counts, Floats
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Plan, Policy, State, check_flag, check_period
from fleet.scheduling.placing.configurations import (
    Configuration,
    configuration_of,
    configurations_of,
    may_have,
    placed_with_least_moves,
)
from fleet.scheduling.placing.homes import curve_on
from fleet.scheduling.policies.firm_promises import FirmPromises
from fleet.scheduling.reservations.placed_guarantees import Placed
from fleet.scheduling.variable_batch.kind_goodput import (
    EarlierJobs,
    EvenShares,
    Outlook,
    Shapes,
    by_application,
    kind_goodput,
)
from fleet.scheduling.variable_batch.priced_choices import NONE, best_choices

_SHORTEST = 60.0  # seconds that a job is taken to stay at least
_UNTOLD = 600.0  # seconds on one device that a job is taken to have left at least, where nobody tells
_AS_MUCH = 0.5  # part of what a job has trained that it is taken to have left yet, where nobody tells
_SOONER = 0.5  # part of the time that a job has stayed so far between moves, for which a move has to pay
_PRIOR = 300.0  # seconds that are added to a job's age for that: the first move is not a hasty one
_LEAST = 0.05  # least price of a device, where it may be wanted later
_TO_DATE = 3600.0  # seconds that the mean of the prices goes back
_LASTING = 1800.0  # seconds that prices above their mean last
_NEAR = 0.85  # finish-time fairness at which a second of a job counts twice
_FAIRER = 2.0  # power of finish-time fairness with which it counts more
_HOPELESS = 1.125  # finish-time fairness beyond which it counts no more


@dataclass
class _Past:
    """What the policy has seen: its jobs; the prices since its last plan, their mean before that, and when it was;
    and where reservations lie."""

    jobs: EarlierJobs
    shares: EvenShares
    prices: Floats
    mean: Floats
    time: float
    places: dict[str, Placed] = field(default_factory=dict)

    def priced(self, prices: Floats, now: float) -> None:
        part = math.exp((self.time - now) / _TO_DATE)
        self.mean = np.maximum(part * self.mean + (1 - part) * self.prices, _LEAST)
        self.prices, self.time = prices, now


@dataclass(frozen=True)
class Goodput(Policy):
    """At each event the configurations that save the jobs most time: the least sum of completion times is sought.

    A configuration is a kind of device, and a count n(c) on as few nodes as hold it. A job in it gets on at goodput
    G_j(c), and costs v_j + p n(c) each second: the second itself, and the devices, which cost p = p_j(c) each. So m_j
    is what it costs to bring job j on by one sample, and a configuration saves, each second,

        W_j(c) = m_j E_j(c),    m_j = min over c of (v_j + p_j(c) n(c)) / G_j(c),
                                E_j(c) = G_j(c) / (1 + d_j(c) / H_j(c)),

    with the seconds d_j(c) until it trains there: those that are left of a restart where it is now, those of a restart
    elsewhere. H_j(c) is for how long a move has to pay: as long as the job has left there and, for one that has
    devices, no longer than half of what it has stayed so far between moves, its age and five minutes by 1 + its
    restarts. A job that loses its devices loses what its next restart will cost. The plan makes the sum of W_j largest.

    A second of a job counts more, the later the job will be done by the time that it would have taken on an even share
    of the devices: v_j = 1 + (f_j / 0.85)^2, with f_j its finish-time fairness (Themis, NSDI'20, section 3) if it goes
    on where that is cheapest, of which no more than 1.125 counts.

    Where preprocessors are known to feed a job at F_j samples/s if they make nothing else, it takes R_j(c) / F_j of the
    data path, with the samples/s R_j(c) that it trains, and all jobs together should take no more than 1. So jobs that
    ask for much train beside others that ask for little. The prices of the kinds and of the data path are those at
    which these suffice (`best_choices`), whose dual bounds the worth of every plan: each plan tells its worth and that
    bound. p_j(c) is what the kind will cost when the job is done: its price in the mean of the last hour, times the
    part of all present jobs' work that is left when those are done that have less than it; and what it costs more than
    that mean now, fading by e each half hour. So where devices are short those go first that are soon done.

    What is left of a job, and its goodput until its end, is what jobs of its application had that are done by now. As
    long as none is, it is taken to be half of what the farthest of them has trained, and what the others are behind it.

    A deadline is promised only where a reservation for it fits beside those that stand (`FirmPromises`). A promised job
    has what is reserved for it now, and more of the same kind where that is worth it; the others have the rest.

    Args:
        known: whether what is left of jobs may be read.
        again: seconds after which it plans anew though nothing has happened: jobs' goodput changes as they train.

    Raises:
        ValueError: a parameter out of its range.
    """

    name: ClassVar[str] = "goodput"
    knows_kinds: ClassVar[bool] = True
    tunes_batches: ClassVar[bool] = True
    weighs_data_path: ClassVar[bool] = True

    known: bool = False
    again: float = 120.0

    def __post_init__(self) -> None:
        check_flag("known", self.known)
        check_period("again", self.again)

    def plan(self, state: State) -> Plan:
        """Configurations by their worth, then devices."""
        past = _past(state)
        prices = dict(zip(state.cluster.counts(), np.maximum(past.mean, past.prices).tolist()))
        firm = FirmPromises(state, goodputs, prices, past.places)
        state = firm.state
        if not state.by_name:
            past.jobs.see((), np.zeros((0, 0)), state.time)
            past.shares.see((), state.time)
            return Plan(dropped=firm.dropped, memo=past)
        table = _Table(state)
        past.jobs.see(state.jobs, table.goodput, state.time)
        past.shares.see(state.jobs, state.time)
        outlook = self._outlook(table, state.jobs, past)
        even = past.shares.seconds(state.jobs, table.trained + outlook.left, int(table.capacity.sum()))
        worth, none = _worth(table, outlook, past, even)
        worth[~firm.allowed()] = -np.inf
        least = firm.least(NONE)
        choices = best_choices(
            worth, none, table.devices, table.kinds, table.capacity, table.held, least, fed=table.fed()
        )
        past.priced(choices.prices, state.time)
        found = configurations_of(state.cluster)
        wanted = {name: found[index] for name, index in zip(state.by_name, choices.chosen.tolist()) if index != NONE}
        wake, given = firm.settle(wanted, state.time + self.again)
        past.places = firm.places
        devices = placed_with_least_moves(wanted, state, given)
        return Plan(
            devices,
            wake=wake,
            worth=choices.worth,
            worth_bound=choices.bound,
            memo=past,
            admitted=tuple(firm.admitted),
            dropped=firm.dropped,
            late=firm.late,
            promises=firm.promises,
        )

    def _outlook(self, table: _Table, jobs: Sequence[JobState], past: _Past) -> Outlook:
        """What is to come of the jobs: read, told by earlier ones, or guessed."""
        told = past.jobs.outlook(jobs, table.goodput, table.trained)
        if self.known:
            return told._replace(left=table.left)
        guessed = np.maximum(_AS_MUCH * table.trained, np.maximum(_UNTOLD * table.unit, 1.0))
        for rows in by_application(jobs).values():
            farthest = table.trained[rows].max()
            guessed[rows] = np.maximum(guessed[rows], (1 + _AS_MUCH) * farthest - table.trained[rows])
        return told._replace(left=np.where(np.isnan(told.left), guessed, told.left))


def _past(state: State) -> _Past:
    if isinstance(state.memo, _Past):
        return state.memo
    least = np.full(len(state.cluster.counts()), _LEAST)
    return _Past(EarlierJobs(), EvenShares(), least, least, state.time)


def _worth(table: _Table, outlook: Outlook, past: _Past, even: Floats) -> tuple[Floats, Floats]:
    """W_j(c), and what a job loses that gets nothing; shapes (jobs, configurations) and (jobs,).

    even: seconds that each job takes on an even share, as a whole; shape (jobs,).
    """
    (left, pace), stays = outlook, _SOONER * table.stays
    mean, more = past.mean[table.kinds], np.maximum(past.prices - past.mean, 0.0)[table.kinds]
    with np.errstate(divide="ignore", invalid="ignore"):
        lasts = left[:, np.newaxis] / pace
        foretold = np.maximum(mean * _left_then(left, table.unit)[:, np.newaxis], _LEAST)
        rent = (foretold + more * np.exp(-lasts / _LASTING)) * table.devices
        second = _second(table, lasts, rent, even)
        horizon = np.minimum(lasts, stays[:, np.newaxis])
        cost = np.where(table.possible, (second[:, np.newaxis] + rent) / pace, np.inf).min(axis=1)
        saved = cost[:, np.newaxis] * pace / (1 + table.delay / horizon)
    worth = np.where(table.possible, saved, -np.inf)
    rows = np.flatnonzero(table.held != NONE)
    now = pace[rows, table.held[rows]]
    with np.errstate(divide="ignore", invalid="ignore"):
        again = now / (1 + table.restart[rows] / np.minimum(left[rows] / now, stays[rows]))
    none = np.zeros(len(left))
    none[rows] = np.where(now > 0, cost[rows] * (again - now), 0.0)
    return worth, none


def _left_then(left: Floats, unit: Floats) -> Floats:
    """The part of the work of all jobs that is left when those with less are done; shape (jobs,).

    Args:
        left: samples that each has left; shape (jobs,).
        unit: goodput of each on one device; likewise.
    """
    work = np.divide(left, unit, out=np.zeros(len(left)), where=unit > 0)
    order = np.argsort(work, kind="stable")
    part = np.empty(len(work))
    part[order] = np.cumsum(work[order][::-1])[::-1] / max(work.sum(), 1.0)
    return part


def _second(table: _Table, lasts: Floats, rent: Floats, even: Floats) -> Floats:
    """v_j, what a second of each job counts; shape (jobs,).

    Args:
        lasts: seconds that it has left in each configuration; shape (jobs, configurations).
        rent: what the devices of each cost a second; likewise.
        even: seconds that the whole job takes on an even share; shape (jobs,).
    """
    rows = np.arange(len(even))
    cheapest = np.where(table.possible, (1 + rent) * lasts, np.inf).argmin(axis=1)
    fairness = (table.age + table.delay[rows, cheapest] + lasts[rows, cheapest]) / even
    counted: Floats = 1 + (np.minimum(fairness, _HOPELESS) / _NEAR) ** _FAIRER
    return counted


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
        age: seconds since it came.
        stays: seconds for which it stays where it is put, going by how often it was moved; infinite if it waits.
    """

    def __init__(self, state: State) -> None:
        found, jobs, now = configurations_of(state.cluster), state.jobs, state.time
        self._found, self._jobs = found, jobs
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
        self.age = _column(now - job.arrival for job in jobs)
        period = (self.age + _PRIOR) / _column(1 + job.restarts for job in jobs)
        self.stays = np.where(runs, np.maximum(_SHORTEST, period), np.inf)

    def fed(self) -> Floats | None:
        """The part of the data path that each job takes; shape (jobs, configurations). None: nobody knows of any."""
        feeds = _column(job.fed for job in self._jobs)
        if np.isinf(feeds).all():
            return None
        rates = np.array([_samples(job, self._found, own) for job, own in zip(self._jobs, self.goodput)])
        return np.minimum(1.0, rates / feeds[:, np.newaxis])


def _samples(job: JobState, found: tuple[Configuration, ...], goodput: Floats) -> Floats:
    """Samples/s that a job trains in each configuration; its goodput where nobody knows how it is fed."""
    scaling = kind_goodput(job)
    if scaling is None or job.fed == math.inf:
        return goodput
    rates = [scaling.own_rate(each.kind, each.devices) for each in found]
    return np.where(goodput > 0, rates, 0.0)


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
