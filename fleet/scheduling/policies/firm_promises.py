"""Deadlines that `goodput` promises: reservations, the devices on which they lie, and who moves for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from fleet.scheduling.model.arrays import Counts, Flags, Floats
from fleet.scheduling.model.cluster import FreeDevices
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import State
from fleet.scheduling.placing.configurations import (
    Configuration,
    configuration_of,
    configurations_of,
    may_have,
    take_configuration,
)
from fleet.scheduling.placing.homes import AtHome
from fleet.scheduling.reservations.placed_guarantees import Nodes, Placed, PlacedGuarantees
from fleet.scheduling.reservations.reservation import (
    MARGIN,
    Demand,
    Reservation,
    SpeedLevels,
    can_wait,
    next_bound,
    next_rise,
    reserved_at,
)


def nodes_of(devices: tuple[int, ...], state: State) -> Nodes:
    """The nodes on which these lie."""
    return tuple(sorted({state.cluster.node_of(device) for device in devices}))


class PromisedDevices:
    """Gives promised jobs what they shall have from now on; who has what is reserved for it comes first.

    Args:
        state: the jobs and devices.
        guarantees: promised job -> those of the kind on which it was promised. Where a reservation lies is changed to
            where its job is, if there is room for it.
        wanted: job -> its configuration, of promised jobs and others.
        least: jobs that want what is reserved for them now, and have to have it where that lies.

    Attributes:
        devices: job -> those that it gets. Left out: who wants none, or wants so many that they have no place.
        home: job that gets some -> until when it need not move for its reservation; -infinite: it must do so.
    """

    def __init__(
        self,
        state: State,
        guarantees: Mapping[str, PlacedGuarantees],
        wanted: Mapping[str, Configuration],
        least: Container[str] = (),
    ) -> None:
        self._state, self._guarantees, self._wanted, self._least = state, guarantees, wanted, least
        self._same = {
            name: devices
            for name, devices in state.staying.items()
            if name in wanted and configuration_of(devices, state.cluster) == wanted[name]
        }
        self._taken = set(state.unavailable)
        self.devices: dict[str, tuple[int, ...]] = {}
        self.home: dict[str, float] = {}
        names = [name for name in guarantees if name in wanted]
        reserved = [name for name in names if self._is_reserved(name)]
        for name in reserved:
            self._stay(name)
        for name in reserved:
            if name not in self._same or name in least:
                self._come(name)
        for name in names:
            self._stay(name)
            self._stay_away(name)
            self._come(name)
            self._go_anywhere(name)

    def _is_reserved(self, name: str) -> bool:
        reservation = self._guarantees[name].reservations[name]
        return reserved_at(reservation, self._state.time) == self._wanted[name].devices

    def _stay(self, name: str) -> None:
        """Keep the devices, if the reservation may lie there."""
        held, guarantees = self._untaken(name), self._guarantees[name]
        if held is not None:
            nodes = nodes_of(held, self._state)
            if nodes in guarantees.homes(name, len(held)):
                self._take(name, held, guarantees.settle(name, nodes))

    def _come(self, name: str) -> None:
        """Get devices where the reservation may lie, those first that nobody else would keep."""
        if name in self.devices:
            return
        count, guarantees = self._wanted[name].devices, self._guarantees[name]
        found = [(self._on(nodes, count, name), nodes) for nodes in guarantees.homes(name, count)]
        fitting = [(devices, nodes) for devices, nodes in found if devices is not None]
        if fitting:
            others = self._others(name)
            devices, nodes = min(fitting, key=lambda each: len(others.intersection(each[0])))
            self._take(name, devices, guarantees.settle(name, nodes))

    def _stay_away(self, name: str) -> None:
        held = self._untaken(name)
        if held is not None and name not in self._least:
            self._take(name, held, -math.inf)

    def _untaken(self, name: str) -> tuple[int, ...] | None:
        """The devices that a job has, if they are of its configuration, and nobody has been given them."""
        held = self._same.get(name)
        return held if held is not None and self._taken.isdisjoint(held) else None

    def _take(self, name: str, devices: tuple[int, ...], home: float) -> None:
        self.devices[name], self.home[name] = devices, home
        self._taken.update(devices)

    def _others(self, name: str) -> set[int]:
        """Devices that others would keep."""
        return {device for other, held in self._same.items() if other != name for device in held}

    def _on(self, nodes: Nodes, count: int, name: str) -> tuple[int, ...] | None:
        """So many devices of these nodes, of those first that nobody would keep; None: too many are taken."""
        others, chosen = self._others(name), list[int]()
        for node in nodes:
            left = [device for device in self._state.cluster.devices_of(node) if device not in self._taken]
            chosen += sorted(left, key=others.__contains__)[: count // len(nodes)]
        return tuple(sorted(chosen)) if len(chosen) == count else None

    def _go_anywhere(self, name: str) -> None:
        for avoided in (self._others(name), set[int]()):
            if name not in self.devices:
                free = FreeDevices(self._state.cluster)
                free.remove(self._taken | avoided)
                devices = take_configuration(self._wanted[name], free)
                if devices is not None:
                    self._take(name, devices, -math.inf)


Rates = Callable[[JobState, tuple[Configuration, ...]], Floats]
"""Samples/s of a job in each configuration, 0 where it cannot run."""


class FirmPromises:
    """Keeps the promises that were made, and promises newcomers their deadlines where reservations for all fit.

    A promise is a reservation of devices of one kind (`PlacedGuarantees`), in counts that divide each other and the
    nodes; where moves cost anything, on nodes that are told when it is given, so that no promise moves another. It is
    sought where it costs least, by the prices of the kinds. Where it cannot be kept there any more it is sought on the
    other kinds that the job may have.

    Args:
        state: the jobs and devices.
        rates: of a job by configuration.
        prices: of a device of each kind.
        places: job -> its reservation and where that lies, as the last plan left it; empty: nobody knows.

    Attributes:
        state: the same without the jobs that are dropped.
        admitted: jobs that are promised their deadline now.
        dropped: job -> why its deadline cannot be promised.
        late: job whose promise cannot be kept -> when it can be done at the earliest, seconds since the run began.
    """

    def __init__(
        self,
        state: State,
        rates: Rates,
        prices: Mapping[str, float],
        places: Mapping[str, Placed] = MappingProxyType({}),
    ) -> None:
        self.state, self._now, self._rates, self._prices = state, state.time, rates, prices
        self._found, self._staying = configurations_of(state.cluster), state.staying
        self._margin, self._known = max(MARGIN, state.margin), places
        self._pinned = any(job.restart for job in state.jobs if job.deadline < math.inf)
        asked = any(job.admitted or state.is_new(job) for job in state.jobs)
        self._running = {
            name: nodes_of(devices, state)
            for name, devices in self._staying.items()
            if asked and configuration_of(devices, state.cluster) in self._found
        }
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

    def settle(self, wanted: dict[str, Configuration], wake: float) -> tuple[float, dict[str, tuple[int, ...]]]:
        """Give a job no more than is reserved for it, where it could not take that up in time with what is wanted.

        Args:
            wanted: job -> its configuration; may lose some devices.
            wake: seconds since the run began at which the policy plans anew.

        Returns:
            When it has to plan anew, so that all promises are kept; and the devices of promised jobs that may not be
            moved from there.
        """
        counts = {name: wanted[name].devices if name in wanted else 0 for _, name, _ in self._reservations()}
        rises = (next_rise(reservation, self._now, counts[name]) for _, name, reservation in self._reservations())
        wake, least = min([wake, *rises]), set[str]()
        self._promised = {name: (kind, self._guarantees[kind]) for kind, name, _ in self._reservations()}
        by_name = {name: guarantees for name, (_, guarantees) in self._promised.items()}
        while True:
            given = PromisedDevices(self.state, by_name, wanted, least) if self._pinned else None
            short = [name for name in by_name if name not in least and not self._may_have(name, wanted, given, wake)]
            if not short:
                return wake, given.devices if given is not None else {}
            for name in short:
                wake = min(wake, self._reduce(name, wanted))
            least.update(short)

    def _may_have(
        self, name: str, wanted: Mapping[str, Configuration], given: PromisedDevices | None, wake: float
    ) -> bool:
        """Whether the job can take up its reservation in time after what it would have until then, or keep that."""
        kind, guarantees = self._promised[name]
        demand, count = self._demands[name, kind], wanted[name].devices if name in wanted else 0
        assert demand is not None, "it was promised something"
        if given is not None and count and name not in given.devices:
            return False
        home = math.inf if given is None else given.home.get(name, -math.inf)
        if not demand.restart or can_wait(guarantees.reservations[name], demand, count, self._now, wake, home):
            return True
        nodes = () if given is None or not count else nodes_of(given.devices[name], self.state)
        return count in self._sizes[kind] and guarantees.hold(name, count, nodes)

    def _reduce(self, name: str, wanted: dict[str, Configuration]) -> float:
        """Let a job have no more than is reserved for it now; until when that is so."""
        kind, guarantees = self._promised[name]
        reserved = reserved_at(guarantees.reservations[name], self._now)
        wanted.pop(name, None)
        if reserved:
            wanted[name] = self._found[self._sizes[kind][reserved]]
        return next_bound(guarantees.reservations[name], self._now)

    @property
    def places(self) -> dict[str, Placed]:
        """Job -> its reservation and where that lies, for the next plan."""
        return {name: placed for each in self._guarantees.values() for name, placed in each.places.items()}

    def _kept(self) -> dict[str, PlacedGuarantees]:
        """Kind -> what was promised there, as far as it can be kept."""
        demands: dict[str, list[Demand]] = {kind: [] for kind in self._sizes}
        promised: dict[str, dict[str, Placed]] = {kind: {} for kind in self._sizes}
        for job in self.state.jobs:
            promise = self.state.promises.get(job.name)
            demand = self._demand(job, promise.kind) if job.admitted and isinstance(promise, AtHome) else None
            if demand is not None and promise is not None and job.deadline > self._now:
                demands[promise.kind].append(demand)
                if all(count in self._sizes[promise.kind] for _, _, count in promise.inner):
                    known = self._known.get(job.name, Placed((), ()))
                    lies = known.reservation == promise.inner
                    promised[promise.kind][job.name] = known if lies else Placed(promise.inner, ())
        return {
            kind: PlacedGuarantees(
                each, promised[kind], self._running, self._now, *_available(kind, self.state), self._pinned
            )
            for kind, each in demands.items()
        }

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
        stays = self.state.cluster.kind_of(self._staying[job.name][0]) == kind if job.name in self._running else False
        return demand if stays and not self._is_away(job.name) else replace(demand, held=0)

    def _is_away(self, name: str) -> bool:
        """Whether a job has as many devices as are reserved for it now, but elsewhere."""
        known = self._known.get(name, Placed((), ()))
        now = (
            nodes
            for (begin, end, count), nodes in zip(*known)
            if begin <= self._now < end and count == len(self._staying[name])
        )
        return next(now, self._running[name]) != self._running[name]


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


def _available(kind: str, state: State) -> tuple[dict[int, int], int]:
    """Node -> its devices that can be given, and how many a whole node has, of that kind."""
    cluster = state.cluster
    nodes = [node for node in range(cluster.nodes) if cluster.kind_of(cluster.devices_of(node)[0]) == kind]
    sizes = {node: sum(device not in state.unavailable for device in cluster.devices_of(node)) for node in nodes}
    return sizes, cluster.per_node(kind)


def _is_there(configuration: Configuration, free: FreeDevices) -> bool:
    """Whether so many of these devices, which are all free, have a place."""
    devices = take_configuration(configuration, free)
    free.give(devices or ())
    return devices is not None
