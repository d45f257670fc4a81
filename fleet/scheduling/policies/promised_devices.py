"""Devices for promised jobs: where their reservations lie, so that none has to leave them for another."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping

from fleet.scheduling.model.free_devices import FreeDevices
from fleet.scheduling.model.state import State
from fleet.scheduling.placing.configurations import Configuration, configuration_of, take_configuration
from fleet.scheduling.reservations.placed_guarantees import PlacedGuarantees
from fleet.scheduling.reservations.places import Nodes
from fleet.scheduling.reservations.reservation import reserved_at


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
