"""Gavel: shares of time on each kind of device, and rounds that bring jobs to them (Narayanan et al., OSDI'20)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from fleet.scheduling.model.arrays import Counts, Floats
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Plan, Policy, State, check_period
from fleet.scheduling.placing.configurations import may_have
from fleet.scheduling.placing.homes import curve_on
from fleet.scheduling.variable_batch.kind_goodput import kind_goodput

_STEPS = 100  # of Newton's method, at most
_TOLERANCE = 1e-9  # of the gap, and of how far constraints are missed
_RIDGE = 1e-14  # of the diagonal: near the optimum rows may be alike but for rounding
_SHORTER = 0.99  # of the way to the nearest bound


class ShareProgram(NamedTuple):
    """Maximise the sum of shares x rates.

    Attributes:
        rates: of each job on each kind; shape (jobs, kinds).
        devices: of each job; shape (jobs,).
        capacity: devices of each kind; shape (kinds,).
    """

    rates: Floats
    devices: Counts
    capacity: Counts

    def same(self, other: ShareProgram) -> bool:
        """Whether both ask for the same."""
        return all(a.shape == b.shape and np.array_equal(a, b) for a, b in zip(self, other))


def best_shares(program: ShareProgram) -> Floats:
    """The shares of each job on each kind, between 0 and 1; shape (jobs, kinds).

    Of several optima it is the one in their middle, where an interior-point method ends: jobs that are alike get alike
    shares, and those that get next to nothing are told apart by how little they would miss.
    """
    jobs, kinds = program.rates.shape
    variables = np.arange(jobs * kinds)
    matrix = np.zeros((jobs + kinds, jobs * kinds + jobs + kinds))
    matrix[variables // kinds, variables] = 1.0
    matrix[jobs + variables % kinds, variables] = np.repeat(program.devices, kinds)
    matrix[np.arange(jobs + kinds), jobs * kinds + np.arange(jobs + kinds)] = 1.0
    most = np.concatenate((np.ones(jobs), program.capacity)).astype(np.float64)
    scale = float(program.rates.max()) or 1.0
    costs = np.concatenate((-program.rates.ravel() / scale, np.zeros(jobs + kinds)))
    shares: Floats = np.clip(_interior(matrix, most, costs)[: jobs * kinds].reshape(jobs, kinds), 0.0, 1.0)
    return shares


def _interior(matrix: Floats, most: Floats, costs: Floats) -> Floats:
    """The x >= 0 with matrix x = most for which costs x is least (Mehrotra's predictor and corrector)."""
    x, y, z = np.ones(matrix.shape[1]), np.zeros(len(most)), np.ones(matrix.shape[1])
    for _ in range(_STEPS):
        missed, priced, gap = most - matrix @ x, costs - matrix.T @ y - z, float(x @ z) / len(x)
        if gap < _TOLERANCE and max(np.abs(missed).max(), np.abs(priced).max()) < _TOLERANCE:
            break
        weights = x / z
        normal = (matrix * weights) @ matrix.T
        normal[np.diag_indices_from(normal)] += _RIDGE * normal.diagonal() + _RIDGE

        def direction(target: Floats) -> tuple[Floats, Floats, Floats]:
            right = missed + matrix @ (weights * priced - target / z)  # noqa: B023
            dy = np.linalg.solve(normal, right)  # noqa: B023
            dz = priced - matrix.T @ dy  # noqa: B023
            return (target - x * dz) / z, dy, dz  # noqa: B023

        dx, _dy, dz = direction(-x * z)
        ahead = float((x + _reach(x, dx) * dx) @ (z + _reach(z, dz) * dz)) / len(x)
        dx, dy, dz = direction((ahead / gap) ** 3 * gap - x * z - dx * dz)
        first, second = _SHORTER * _reach(x, dx), _SHORTER * _reach(z, dz)
        x, y, z = x + first * dx, y + second * dy, z + second * dz
    return x


def _reach(values: Floats, steps: Floats) -> float:
    """The part of the steps, at most all, after which no value is below 0."""
    falling = steps < 0
    with np.errstate(over="ignore"):  # a step next to nothing may be made any number of times
        return min(1.0, float((-values[falling] / steps[falling]).min())) if falling.any() else 1.0


_SLOWEST = 0.1  # steps/s of a gang that a kind has too few devices for
_DECIMALS = 5  # of shares: jobs that get next to nothing are alike
_FIRST = 1e9  # priority of a share of which a job has had nothing


@dataclass
class _Account:
    """Seconds of the rounds that jobs have had on each kind of device."""

    jobs: dict[str, Floats] = field(default_factory=dict)
    kinds: Floats | None = None
    program: ShareProgram | None = None
    shares: Floats | None = None


class _Entry(NamedTuple):
    priority: float
    share: float
    job: JobState
    kind: int


@dataclass(frozen=True)
class Gavel(Policy):
    """At each interval the jobs that are farthest behind their share of time on a kind of device.

    The shares X make the sum of throughputs largest (max-sum-throughput, 4.1): sum over jobs and kinds of X T, with the
    steps/s T of a job's gang, where no job has more than the whole time and no kind gives more than all its devices.
    The priority of a job on a kind is its share by the part of the kind's time that it has had (Eq. in 5.2); the
    largest go first, as long as their gangs fit.

    Args:
        interval: seconds of a round.

    Raises:
        ValueError: an interval that is not above 0.
    """

    name: ClassVar[str] = "gavel"
    knows_kinds: ClassVar[bool] = True

    interval: float = 360.0

    def __post_init__(self) -> None:
        check_period("interval", self.interval)

    def plan(self, state: State) -> Plan:
        """Shares, then priorities, then devices."""
        if not state.by_name:
            return Plan()
        kinds = list(state.cluster.counts())
        account = state.memo if isinstance(state.memo, _Account) else _Account()
        self._enter(account, state, len(kinds))
        chosen = self._chosen(state, kinds, account)
        allocation = _placed(chosen, kinds, state)
        assert account.kinds is not None
        for job in allocation:
            account.jobs[job][chosen[job]] += self.interval
            account.kinds[chosen[job]] += self.interval
        return Plan(allocation, wake=self.trigger.next_end(state.time), memo=account)

    def _enter(self, account: _Account, state: State, kinds: int) -> None:
        """Newcomers count as if they had had half a round on each kind; who has left is forgotten."""
        if account.kinds is None:
            account.kinds = np.zeros(kinds)
        for name in account.jobs.keys() - state.by_name.keys():
            del account.jobs[name]
        for name in state.by_name:
            if name not in account.jobs:
                account.jobs[name] = np.full(kinds, self.interval / 2)
                account.kinds += self.interval / 2

    def _chosen(self, state: State, kinds: list[str], account: _Account) -> dict[str, int]:
        """Job -> the number of the kind on which it has its round."""
        jobs = state.jobs
        left = np.zeros(len(kinds), dtype=np.int64)
        for device in state.available:
            left[kinds.index(state.cluster.kind_of(device))] += 1
        program = ShareProgram(_steps(jobs, kinds, left), np.array([job.gang for job in jobs]), left.copy())
        if account.program is None or not account.program.same(program):
            account.program, account.shares = program, np.round(best_shares(program), _DECIMALS)
        shares, had = account.shares, np.array([account.jobs[job.name] for job in jobs])
        assert shares is not None and account.kinds is not None
        parts = had / np.maximum(account.kinds, 1e-9)
        priorities = np.where(shares == 0, 0.0, np.where(parts > 0, shares / np.maximum(parts, 1e-12), shares * _FIRST))
        entries = [
            _Entry(float(priorities[row, kind]), float(shares[row, kind]), job, kind)
            for kind in range(len(kinds))
            for row, job in enumerate(jobs)
            if may_have(job, kinds[kind])
        ]
        chosen: dict[str, int] = {}
        for entry in sorted(entries, key=lambda each: each[:2], reverse=True):
            if entry.job.name not in chosen and entry.job.gang <= left[entry.kind]:
                left[entry.kind] -= entry.job.gang
                chosen[entry.job.name] = entry.kind
        return chosen


def _steps(jobs: tuple[JobState, ...], kinds: list[str], most: Counts) -> Floats:
    """Steps/s of each job's gang on each kind; shape (jobs, kinds)."""
    steps = np.full((len(jobs), len(kinds)), _SLOWEST)
    for row, job in enumerate(jobs):
        for column, kind in enumerate(kinds):
            if job.gang <= most[column] and may_have(job, kind):
                known = kind_goodput(job)
                rate = curve_on(job, kind)(job.gang) if known is None else known.own_rate(kind, job.gang)
                steps[row, column] = rate / (job.batch or 1)
    return steps


def _placed(chosen: Mapping[str, int], kinds: list[str], state: State) -> dict[str, tuple[int, ...]]:
    """Devices for the gangs: the largest first, each where it was, where that is still free."""
    free = {kind: _nodes(kind, state) for kind in kinds}
    taken: set[int] = set()
    placed: dict[str, tuple[int, ...]] = {}
    gangs = sorted({state.by_name[job].gang for job in chosen}, reverse=True)
    for kind_number, kind in enumerate(kinds):
        for gang in gangs:
            jobs = [job for job, number in chosen.items() if number == kind_number and state.by_name[job].gang == gang]
            for job in jobs:
                held = state.staying.get(job, ())
                if len(held) == gang and state.cluster.kind_of(held[0]) == kind and taken.isdisjoint(held):
                    placed[job] = held
                    taken.update(held)
            for job in jobs:
                if job not in placed:
                    found = [device for device in free[kind] if device not in taken][:gang]
                    placed[job] = tuple(found)
                    taken.update(found)
    return placed


def _nodes(kind: str, state: State) -> list[int]:
    """Devices of a kind that can be given, node by node."""
    return [device for device in state.available if state.cluster.kind_of(device) == kind]
