"""Sia: kind, count and batch of every job by one integer program (Jayaram Subramanya et al., SOSP'23)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from fleet.scheduling.model.arrays import Counts, Flags, Floats
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Plan, Policy, State, check_period
from fleet.scheduling.placing.configurations import Configuration, configuration_of, configurations_of, may_have, placed
from fleet.scheduling.placing.homes import curve_on
from fleet.scheduling.variable_batch.kind_goodput import KindGoodput, Shapes, kind_goodput

NONE = -1
"""The choice of a job that gets nothing."""


class ChoiceProgram(NamedTuple):
    """Minimise the sum of the costs of what is chosen, at most one configuration a job.

    Attributes:
        costs: of each job in each configuration; inf where it may not have it; shape (jobs, configurations). Choosing
            nothing costs 0.
        devices: of each configuration; shape (configurations,).
        kinds: the number of each configuration's kind of device; shape (configurations,).
        capacity: devices of each kind; shape (kinds,).
        fixed: the configuration that a job has to keep, or NONE; shape (jobs,).
    """

    costs: Floats
    devices: Counts
    kinds: Counts
    capacity: Counts
    fixed: Counts


class Solver(Protocol):
    """What solves such a program."""

    def __call__(self, program: ChoiceProgram, gap: float) -> Counts:
        """The configuration of each job, or NONE; shape (jobs,).

        Args:
            gap: part of the optimum by which the sum may miss it.
        """
        ...


class Highs:
    """HiGHS' branch and bound, as scipy has it."""

    def __call__(self, program: ChoiceProgram, gap: float) -> Counts:
        """As `Solver.__call__`.

        Raises:
            ValueError: scipy is not installed, or the program has no solution.
        """
        optimize, sparse = scipy_parts()
        chosen = program.fixed.copy()
        left = program.capacity - np.bincount(
            program.kinds[chosen[chosen >= 0]], program.devices[chosen[chosen >= 0]], len(program.capacity)
        )
        jobs, configurations = np.nonzero(_worth(program))
        if not len(jobs):
            return chosen
        rows = np.concatenate((jobs, len(chosen) + program.kinds[configurations]))
        columns = np.tile(np.arange(len(jobs)), 2)
        values = np.concatenate((np.ones(len(jobs)), program.devices[configurations]))
        matrix = sparse.csc_array((values, (rows, columns)), (len(chosen) + len(left), len(jobs)))
        most = np.concatenate((np.ones(len(chosen)), left))
        found = optimize.milp(
            program.costs[jobs, configurations],
            integrality=np.ones(len(jobs)),
            bounds=optimize.Bounds(0, 1),
            constraints=optimize.LinearConstraint(matrix, -np.inf, most),
            options={"mip_rel_gap": gap},
        )
        if found.x is None:
            raise ValueError(f"the integer program of {len(chosen)} jobs was not solved: {found.message}")
        taken = found.x > 0.5
        chosen[jobs[taken]] = configurations[taken]
        return chosen


def _worth(program: ChoiceProgram) -> Flags:
    """Which choices are better than none, for jobs that may choose."""
    better: Flags = (program.costs < 0) & (program.fixed == NONE)[:, np.newaxis]
    return better


def scipy_parts() -> tuple[Any, Any]:
    try:
        from scipy import optimize, sparse
    except ImportError:
        raise ValueError(
            "this policy solves an integer program with scipy, which is missing; pip install 'fleet-hpc[programs]'"
        ) from None
    return optimize, sparse


_NOTHING = 1e-4  # goodput of a configuration that a job may not have
_DECIMALS = 2  # to which costs are rounded
_MOST = 3000.0  # that a cost is at most


class _Memo(NamedTuple):
    program: ChoiceProgram
    chosen: tuple[int, ...]


@dataclass(frozen=True)
class Sia(Policy):
    """At each interval the configurations that make the sum of the jobs' costs least.

    A configuration is a kind of device and a count on as few nodes as hold it. With the goodput G of a job in it,
    relative to the least that the job has anywhere, it costs (r G)^p, and a job without devices costs `waiting` (3.4,
    Eq. 3 and 4). r is 1 for the configuration that a job has, and (T - R d) / (T + d) for others, with its age T, its
    restarts R and the seconds d of one (Eq. 2). A job gets at most twice as many devices as it has tried (3.2). One
    that is restarting keeps what it has.

    What a job has not measured on a kind follows from another kind, by the ratio of their speeds on one device.

    Costs are rounded to hundredths, as the authors' simulator rounds them, so that several plans often cost the same;
    which of them it is to be the `solver` decides.

    Args:
        interval: seconds between two plans.
        power: p; below 0; the lower, the fairer.
        waiting: lambda, what a job without devices costs; above 1.
        gap: part of the optimum by which the sum may miss it.

    Raises:
        ValueError: a parameter out of its range.
    """

    name: ClassVar[str] = "sia"
    knows_kinds: ClassVar[bool] = True
    tunes_batches: ClassVar[bool] = True
    learns_rates: ClassVar[bool] = True
    solver: ClassVar[Solver] = Highs()

    interval: float = 60.0
    power: float = -0.5
    waiting: float = 1.1
    gap: float = 1e-4

    def __post_init__(self) -> None:
        check_period("interval", self.interval)
        if not -math.inf < self.power < 0:
            raise ValueError(f"power is {self.power}; it must be below 0, and finite")
        if not 1 < self.waiting < math.inf:
            raise ValueError(f"waiting is {self.waiting}; it must be above 1, and finite")
        if not 0 <= self.gap < 1:
            raise ValueError(f"gap is {self.gap}; it must be 0 or more, and below 1")

    def plan(self, state: State) -> Plan:
        """Configurations by the program, then devices."""
        if not state.by_name:
            return Plan()
        found = configurations_of(state.cluster)
        program = self._program(state, found)
        known = state.memo if isinstance(state.memo, _Memo) else None
        if known is not None and _same(known.program, program):
            chosen = known.chosen
        else:
            chosen = tuple(self.solver(program, self.gap).tolist())
        wanted = {job: found[index] for job, index in zip(state.by_name, chosen) if index != NONE}
        return Plan(placed(wanted, state), wake=self.trigger.next_end(state.time), memo=_Memo(program, chosen))

    def _program(self, state: State, found: tuple[Configuration, ...]) -> ChoiceProgram:
        kinds = list(state.cluster.counts())
        capacity = dict.fromkeys(kinds, 0)
        for device in state.available:
            capacity[state.cluster.kind_of(device)] += 1
        index = {configuration: number for number, configuration in enumerate(found)}
        held = {
            job: index.get(configuration_of(devices, state.cluster), NONE) for job, devices in state.staying.items()
        }
        fixed = [
            held.get(job.name, NONE) if job.ready > state.time and job.held else NONE for job in state.by_name.values()
        ]
        costs = [self._costs(job, state.time, found, held.get(job.name, NONE)) for job in state.by_name.values()]
        return ChoiceProgram(
            np.array(costs) - self.waiting,
            np.array([configuration.devices for configuration in found]),
            np.array([kinds.index(configuration.kind) for configuration in found]),
            np.array(list(capacity.values())),
            np.array(fixed),
        )

    def _costs(self, job: JobState, now: float, found: tuple[Configuration, ...], held: int) -> Floats:
        """What each configuration costs for a job."""
        gains = _relative(job, found)
        if held != NONE:
            scaling = kind_goodput(job)
            penalty = job.restart if scaling is None else scaling.penalty
            age = now - job.arrival
            factor = 1.0 if age < penalty else max(age - job.restarts * penalty, 0.0) / max(age + penalty, 1e-9)
            gains = np.where(np.arange(len(found)) == held, gains, gains * factor)
        with np.errstate(divide="ignore"):
            costs: Floats = np.minimum(np.round(gains**self.power, _DECIMALS), _MOST)
        return costs


def _relative(job: JobState, found: tuple[Configuration, ...]) -> Floats:
    """Goodput in each configuration, in units of the least that the job has anywhere."""
    scaling = kind_goodput(job)
    gains = np.full(len(found), _NOTHING)
    sizes = np.array([configuration.devices for configuration in found])
    if scaling is None:
        for number, configuration in enumerate(found):
            if configuration.devices <= job.limit and may_have(job, configuration.kind):
                gains[number] = curve_on(job, configuration.kind)(configuration.devices)
        return np.maximum(gains / gains.min(initial=np.inf, where=gains > _NOTHING), _NOTHING)
    most = min(max(2 * scaling.tried, 1), scaling.most, job.limit)
    if not scaling.tried:
        gains[sizes == 1] = 1.0
        return gains
    kinds = dict.fromkeys(configuration.kind for configuration in found)
    rows = {kind: np.flatnonzero([c.kind == kind and c.devices <= most for c in found]) for kind in kinds}
    for kind, row in rows.items():
        gains[row] = _known(scaling, kind, {other: _shapes(found, row, other) for other in (kind, *kinds)})
    return np.maximum(gains / gains[gains > _NOTHING].min(), _NOTHING)


def _known(scaling: KindGoodput, kind: str, shapes: Mapping[str, Shapes]) -> Floats:
    """Goodput on a kind, from another where the job has measured nothing there.

    Args:
        shapes: the configurations, and as many devices on as few nodes of each other kind; the kind itself comes first.
    """
    for other, configurations in shapes.items():
        goodput = scaling.goodputs(other, configurations)
        if goodput is not None:
            return goodput * scaling.ratio(kind, other)
    return np.zeros(len(shapes[kind]))


def _shapes(found: tuple[Configuration, ...], rows: Counts, kind: str) -> Shapes:
    """As many devices as in these configurations, on as few nodes of a kind as hold them."""
    each = max(one.devices for one in found if (one.kind, one.nodes) == (kind, 1))
    return tuple((-(-found[row].devices // each), found[row].devices) for row in rows.tolist())


def _same(one: ChoiceProgram, other: ChoiceProgram) -> bool:
    return all(a.shape == b.shape and np.array_equal(a, b) for a, b in zip(one, other))
