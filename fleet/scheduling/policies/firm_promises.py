"""Deadlines that are promised on kinds of device, beside jobs that are promised nothing: who has how much at least."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from fleet.scheduling.model.arrays import Counts, Flags, Floats
from fleet.scheduling.model.free_devices import FreeDevices
from fleet.scheduling.model.job_state import JobState
from fleet.scheduling.model.state import State
from fleet.scheduling.placing.configurations import Configuration, configurations_of, may_have, take_configuration
from fleet.scheduling.placing.homes import available
from fleet.scheduling.placing.machine_of_kind import AtHome
from fleet.scheduling.reservations.guarantees import Guarantees
from fleet.scheduling.reservations.reservation import (
    MARGIN,
    Demand,
    Reservation,
    can_wait,
    next_bound,
    next_rise,
    reserved_at,
)
from fleet.scheduling.reservations.speed_levels import SpeedLevels

Rates = Callable[[JobState, tuple[Configuration, ...]], Floats]
"""Samples/s of a job in each configuration, 0 where it cannot run."""


class FirmPromises:
    """Keeps the promises that were made, and promises newcomers their deadlines where reservations for all fit.

    A promise is a reservation of devices of one kind (`Guarantees`), in counts that divide each other and the nodes, so
    that reservations that fit by number have their places, too. It is sought where it costs least, by the prices of the
    kinds. Where it cannot be kept there any more it is sought on the other kinds that the job may have.

    Args:
        state: the jobs and devices.
        rates: of a job by configuration.
        prices: of a device of each kind.

    Attributes:
        state: the same without the jobs that are dropped.
        admitted: jobs that are promised their deadline now.
        dropped: job -> why its deadline cannot be promised.
        late: job whose promise cannot be kept -> when it can be done at the earliest, seconds since the run began.
    """

    def __init__(self, state: State, rates: Rates, prices: Mapping[str, float]) -> None:
        self.state, self._now, self._rates, self._prices = state, state.time, rates, prices
        self._found, self._staying = configurations_of(state.cluster), state.staying
        self._margin = max(MARGIN, state.margin)
        asked = any(job.admitted or state.is_new(job) for job in state.jobs)
        self._sizes = {kind: _sizes(self._found, kind, state) for kind in state.cluster.counts()} if asked else {}
        self._demands: dict[tuple[str, str], Demand | None] = {}
        self._refused: list[str] = []
        self.admitted: list[str] = []
        self.dropped: dict[str, str] = {}
        self.late: dict[str, float] = {}
        self._guarantees = self._kept()
        for job in state.jobs:
            if job.admitted and not self._reserved(job):
                self.late[job.name] = max(self._earliest_end(job), job.deadline)
        for job in sorted(filter(state.is_new, state.jobs), key=self._cheapest):
            self._decide(job)
        if self.dropped:
            left = {name: job for name, job in state.by_name.items() if name not in self.dropped}
            self.state = replace(state, by_name=left)

    @property
    def promises(self) -> dict[str, AtHome | None]:
        """What is new of them, for `Plan.promises`."""
        now: dict[str, AtHome | None] = {
            name: AtHome(kind, reservation) for kind, name, reservation in self._reservations()
        }
        known = self.state.promises
        return {name: each for name, each in now.items() if known.get(name) != each} | dict.fromkeys(self._refused)

    def allowed(self) -> Flags:
        """The configurations with which each job's promise can be kept; shape (jobs, configurations)."""
        flags = np.ones((len(self.state.by_name), len(self._found)), np.bool_)
        for row, kind, least in self._least():
            flags[row] = [each.kind == kind and each.devices >= least for each in self._found]
        return flags

    def least(self, none: int) -> Counts:
        """The number of the configuration that is reserved for each job now, or `none`; shape (jobs,)."""
        numbers = np.full(len(self.state.by_name), none)
        for row, kind, least in self._least():
            if least:
                numbers[row] = self._sizes[kind][least]
        return numbers

    def settle(self, wanted: dict[str, Configuration], wake: float) -> float:
        """Give a job no more than is reserved for it, where it could not take that up in time with what is wanted.

        Args:
            wanted: job -> its configuration; may lose some devices.
            wake: seconds since the run began at which the policy plans anew.

        Returns:
            When it has to plan anew, so that all promises are kept.
        """
        whole = list(self._reservations())
        counts = {name: wanted[name].devices if name in wanted else 0 for _, name, _ in whole}
        wake = min([wake, *(next_rise(reservation, self._now, counts[name]) for _, name, reservation in whole)])
        for kind, name, reservation in whole:
            demand, count = self._demands[name, kind], counts[name]
            assert demand is not None, "it was promised something"
            if not demand.restart or can_wait(reservation, demand, count, self._now, wake):
                continue
            if count in self._sizes[kind] and self._guarantees[kind].hold(name, count):
                continue
            reserved = reserved_at(reservation, self._now)
            wanted.pop(name, None)
            if reserved:
                wanted[name] = self._found[self._sizes[kind][reserved]]
            wake = min(wake, next_bound(reservation, self._now))
        return wake

    def _kept(self) -> dict[str, Guarantees]:
        """Kind -> what was promised there, as far as it can be kept."""
        demands: dict[str, list[Demand]] = {kind: [] for kind in self._sizes}
        promised: dict[str, Reservation] = {}
        for job in self.state.jobs:
            promise = self.state.promises.get(job.name)
            demand = self._demand(job, promise.kind) if job.admitted and isinstance(promise, AtHome) else None
            if demand is not None and promise is not None and job.deadline > self._now:
                demands[promise.kind].append(demand)
                if all(count in self._sizes[promise.kind] for _, _, count in promise.inner):
                    promised[job.name] = promise.inner
        devices = available(self.state.cluster, self.state.unavailable)
        return {kind: Guarantees(each, promised, self._now, devices[kind], False) for kind, each in demands.items()}

    def _reservations(self) -> Iterator[tuple[str, str, Reservation]]:
        for kind, guarantees in self._guarantees.items():
            for name, reservation in guarantees.reservations.items():
                yield kind, name, reservation

    def _least(self) -> Iterator[tuple[int, str, int]]:
        """The row of each promised job, its kind, and the devices of it that are reserved now."""
        rows = {name: row for row, name in enumerate(self.state.by_name)}
        for kind, name, reservation in self._reservations():
            yield rows[name], kind, reserved_at(reservation, self._now)

    def _reserved(self, job: JobState) -> bool:
        """Whether there is a reservation for a job, or one is found on any kind."""
        if any(job.name in each.reservations for each in self._guarantees.values()):
            return True
        return any(
            demand.possible(self._now) and self._guarantees[kind].admit(demand) for kind, demand in self._by_cost(job)
        )

    def _decide(self, job: JobState) -> None:
        if self._reserved(job):
            self.admitted.append(job.name)
        elif job.soft or job.remaining == math.inf:
            self._refused.append(job.name)
        else:
            possible = any(demand.possible(self._now) for _, demand in self._by_cost(job))
            why = "beside the deadlines that are promised already" if possible else "even with the machine for itself"
            self.dropped[job.name] = f"its deadline, {job.deadline:g} s, cannot be met {why}"

    def _earliest_end(self, job: JobState) -> float:
        ends = (self._guarantees[kind].earliest_end(demand) for kind, demand in self._by_cost(job))
        return min(ends, default=math.inf)

    def _cheapest(self, job: JobState) -> tuple[float, str]:
        costs = [demand.least_device_seconds(self._now) * self._prices[kind] for kind, demand in self._by_cost(job)]
        return min(costs, default=math.inf), job.name

    def _by_cost(self, job: JobState) -> list[tuple[str, Demand]]:
        """The kinds that the job may have, that on which its promise costs least first, and what it needs there."""
        known = [(kind, demand) for kind in self._sizes if (demand := self._demand(job, kind)) is not None]
        return sorted(known, key=lambda each: each[1].least_device_seconds(self._now) * self._prices[each[0]])

    def _demand(self, job: JobState, kind: str) -> Demand | None:
        """What the job needs on a kind; None: it may not have it, or cannot run there."""
        if (job.name, kind) not in self._demands:
            self._demands[job.name, kind] = self._demand_on(job, kind)
        return self._demands[job.name, kind]

    def _demand_on(self, job: JobState, kind: str) -> Demand | None:
        if not may_have(job, kind) or kind not in self._sizes:
            return None
        rates, levels = self._rates(job, self._found), dict[int, float]()
        for count, number in self._sizes[kind].items():
            if count <= job.limit and rates[number] > max(levels.values(), default=0.0):
                levels[count] = float(rates[number])
        if not levels:
            return None
        speeds = SpeedLevels.among(np.array(list(levels)), np.array(list(levels.values())))
        demand = Demand.of(job, speeds, self._now, self._margin)
        held = self._staying.get(job.name)
        stays = held is not None and self.state.cluster.kind_of(held[0]) == kind
        return demand if stays else replace(demand, held=0)


def _sizes(found: tuple[Configuration, ...], kind: str, state: State) -> dict[int, int]:
    """Devices -> configuration, of the sizes in which promises are made on a kind: each is a part of the next, too."""
    free = FreeDevices(state.cluster)
    free.remove(state.unavailable)
    here = [number for number, each in enumerate(found) if each.kind == kind and _is_there(each, free)]
    inside = [number for number in here if found[number].nodes == 1]
    chain: list[int] = []
    for number in reversed(inside):
        if not chain or found[chain[-1]].devices % found[number].devices == 0:
            chain.append(number)
    whole = [number for number in here if found[number].nodes > 1]
    return {found[number].devices: number for number in (*reversed(chain), *whole)}


def _is_there(configuration: Configuration, free: FreeDevices) -> bool:
    """Whether so many of these devices, which are all free, have a place."""
    devices = take_configuration(configuration, free)
    free.give(devices or ())
    return devices is not None
