"""Devices for promised jobs: where their reservations lie, so that none has to leave them for another."""

from __future__ import annotations

import math
from collections.abc import Mapping

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

    Attributes:
        devices: job -> those that it gets. Left out: who wants none, or wants so many that they have no place.
        home: job that gets some -> until when it need not move for its reservation; -infinite: it must do so.
    """

    def __init__(
        self, state: State, guarantees: Mapping[str, PlacedGuarantees], wanted: Mapping[str, Configuration]
    ) -> None:
        self._state, self._guarantees, self._wanted = state, guarantees, wanted
        self._same = {
            name: devices
            for name, devices in state.staying.items()
            if name in wanted and configuration_of(devices, state.cluster) == wanted[name]
        }
        self._taken = set(state.unavailable)
        self.devices: dict[str, tuple[int, ...]] = {}
        self.home: dict[str, float] = {}
        for name in sorted((name for name in guarantees if name in wanted), key=self._order):
            self._give(name)

    def _order(self, name: str) -> tuple[bool, bool, bool]:
        reserved = reserved_at(self._guarantees[name].reservations[name], self._state.time)
        held = self._same.get(name)
        own = next(self._guarantees[name].homes(name, self._wanted[name].devices), None)
        return reserved != self._wanted[name].devices, held is None or nodes_of(held, self._state) != own, held is None

    def _give(self, name: str) -> None:
        guarantees, count = self._guarantees[name], self._wanted[name].devices
        held, homes = self._same.get(name), list(guarantees.homes(name, count))
        if held is not None and not self._taken.isdisjoint(held):
            held = None
        if held is not None:
            at_home = nodes_of(held, self._state) in homes
            self._take(name, held, guarantees.settle(name, nodes_of(held, self._state)) if at_home else -math.inf)
            return
        found = ((self._on(nodes, count, name), nodes) for nodes in homes)
        fitting = [(devices, nodes) for devices, nodes in found if devices is not None]
        if fitting:
            devices, nodes = min(fitting, key=lambda each: len(self._others(name).intersection(each[0])))
            self._take(name, devices, guarantees.settle(name, nodes))
        elif (anywhere := self._anywhere(name)) is not None:
            self._take(name, anywhere, -math.inf)

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

    def _anywhere(self, name: str) -> tuple[int, ...] | None:
        for avoided in (self._others(name), set[int]()):
            free = FreeDevices(self._state.cluster)
            free.remove(self._taken | avoided)
            devices = take_configuration(self._wanted[name], free)
            if devices is not None:
                return devices
        return None
