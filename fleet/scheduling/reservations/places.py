"""Nodes for reservations: each piece lies where as many devices are left for all of its time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from types import MappingProxyType
from typing import NamedTuple

from fleet.scheduling.reservations.free_profile import FreeProfile
from fleet.scheduling.reservations.reservation import Reservation

Nodes = tuple[int, ...]
"""Those on which the devices of a job lie: one, or several whole ones; ascending."""


class Placed(NamedTuple):
    """A reservation, and the nodes of each of its pieces."""

    reservation: Reservation
    nodes: tuple[Nodes, ...]


_NONE: Mapping[str, Placed] = MappingProxyType({})


class Places:
    """Where the pieces of reservations lie, so that a job moves where its own reservation changes, and for nobody else.

    That enough devices of a kind are free all the time does not tell that they are so on one node: who is on a node
    may have to leave it. So each piece is given its nodes before it is promised.

    Args:
        sizes: node -> its devices that can be given.
        whole: devices of a whole node.
        now: where time begins, seconds since the run began.
        known: job -> its reservation and where that lies.

    Attributes:
        of: job -> its reservation and where that lies.
    """

    def __init__(self, sizes: Mapping[int, int], whole: int, now: float, known: Mapping[str, Placed] = _NONE) -> None:
        self._whole, self._now, self.of = whole, now, dict(known)
        pieces: dict[int, list[Reservation]] = {node: [] for node in sizes}
        for placed in known.values():
            for (begin, end, count), nodes in zip(*placed):
                for node in nodes:
                    pieces.setdefault(node, []).append(((begin, end, count // len(nodes)),))
        self._profiles = {node: FreeProfile.beside(now, sizes.get(node, 0), each) for node, each in pieces.items()}

    @property
    def least(self) -> int:
        """The fewest devices that are left on any node at any time; below 0 where too many were known to lie there."""
        return min(profile.least for profile in self._profiles.values())

    def copy(self) -> Places:
        """The same, so that what is placed leaves no trace here."""
        other = copy(self)
        other.of, other._profiles = self.of.copy(), {node: copy(each) for node, each in self._profiles.items()}
        return other

    def put(self, name: str, placed: Placed) -> None:
        """Take these nodes, which have room, for the pieces that are not over."""
        self.of[name] = placed
        for (begin, end, count), nodes in zip(*placed):
            self._change(begin, end, count, nodes)

    def lift(self, name: str) -> Placed:
        """Give back what a job's reservation has taken."""
        placed = self.of.pop(name)
        for (begin, end, count), nodes in zip(*placed):
            self._change(begin, end, -count, nodes)
        return placed

    def fits(self, placed: Placed) -> bool:
        """Whether all of it has room there; pieces of one reservation are never at once."""
        return all(
            end <= self._now or self.has_room(begin, end, count, nodes) for (begin, end, count), nodes in zip(*placed)
        )

    def has_room(self, begin: float, end: float, count: int, nodes: Nodes) -> bool:
        """Whether so many devices are left on these nodes together, for all of that time."""
        share = count // len(nodes)
        return all(node in self._profiles and self._profiles[node].least_between(begin, end) >= share for node in nodes)

    def room(self, begin: float, end: float, count: int) -> Iterator[Nodes]:
        """Nodes on which so many devices are left for all of that time, those first on which they leave the fewest."""
        left = {node: profile.least_between(begin, end) for node, profile in self._profiles.items()}
        if count <= self._whole:
            yield from ((node,) for node in sorted(left, key=left.__getitem__) if left[node] >= count)
            return
        empty, needed = [node for node, number in left.items() if number >= self._whole], -(-count // self._whole)
        if len(empty) >= needed:
            yield tuple(empty[:needed])

    def place(self, reservations: Mapping[str, Reservation], fixed: Mapping[str, Nodes]) -> bool:
        """Place all of these, the largest pieces first; false, and some not placed, where one finds no room.

        Args:
            reservations: those of jobs that have no place.
            fixed: job -> the nodes on which its piece of now lies in any case.
        """
        found: dict[str, list[Nodes]] = {name: [()] * len(reservation) for name, reservation in reservations.items()}
        pieces = [
            (not (name in fixed and begin <= self._now), -count, begin, end, name, number)
            for name, reservation in reservations.items()
            for number, (begin, end, count) in enumerate(reservation)
            if end > self._now
        ]
        for anywhere, negative, begin, end, name, number in sorted(pieces):
            room = self.room(begin, end, -negative)
            nodes = next(room, None) if anywhere else fixed[name]
            if nodes is None or not (anywhere or self.has_room(begin, end, -negative, nodes)):
                return False
            self._change(begin, end, -negative, nodes)
            found[name][number] = nodes
        self.of |= {name: Placed(reservations[name], tuple(nodes)) for name, nodes in found.items()}
        return True

    def _change(self, begin: float, end: float, count: int, nodes: Nodes) -> None:
        if end > self._now:
            for node in nodes:
                self._profiles[node].remove(((begin, end, count // len(nodes)),))
