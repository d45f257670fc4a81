"""Which devices are free, node by node: found, taken and given back in a time that does not grow with the machine."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from fleet.scheduling.model.cluster import Cluster

_MOST_KNOWN = 4096


class FreeDevices:
    """The free devices of a cluster; a set of nodes or devices is the bits of a number.

    Args:
        cluster: the machine.
        free: devices that are free; None: all.
    """

    def __init__(self, cluster: Cluster, free: Iterable[int] | None = None) -> None:
        self._cluster = cluster
        self._starts, self._where = cluster.starts, cluster.places
        self._kinds: dict[str, int] = {}  # kind -> its nodes
        for node, kind in enumerate(cluster.kinds):
            self._kinds[kind] = self._kinds.get(kind, 0) | 1 << node
        self._known: dict[tuple[int, ...], dict[int, int]] = {}  # devices by node; the same blocks come again and again
        self._nodes = [0] * cluster.nodes  # node -> its free devices
        self._having = [0] * (max(cluster.devices_per_node) + 1)  # number of free devices -> nodes that have so many
        self._having[0] = (1 << cluster.nodes) - 1
        self.count = 0
        if free is None:
            self._give_all()
        else:
            self.give(free)

    def __len__(self) -> int:
        return self.count

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FreeDevices) and self._nodes == other._nodes

    def __contains__(self, device: int) -> bool:
        node = self._cluster.node_of(device)
        return bool(self._nodes[node] >> device - self._starts[node] & 1)

    def copy(self) -> FreeDevices:
        """Copy the free devices, so that what is taken leaves no trace here."""
        other = FreeDevices.__new__(FreeDevices)
        other._cluster, other._starts, other._kinds = self._cluster, self._starts, self._kinds
        other._where, other._known = self._where, self._known
        other._nodes, other._having, other.count = self._nodes.copy(), self._having.copy(), self.count
        return other

    def devices(self) -> list[int]:
        """All of them, ascending."""
        found: list[int] = []
        for start, free in zip(self._starts, self._nodes):
            found += _taken(free, start, free.bit_count())
        return found

    def bits(self, width: int) -> int:
        """All of them as bits of one number; node n's begin at bit n x `width`, which no node exceeds."""
        if width % 8 == 0:
            return int.from_bytes(b"".join([bits.to_bytes(width // 8, "little") for bits in self._nodes]), "little")
        return sum(bits << node * width for node, bits in enumerate(self._nodes))

    def on(self, node: int) -> int:
        """How many are free on `node`."""
        return self._nodes[node].bit_count()

    def of_kind(self, kind: str) -> int:
        """How many of that kind are free."""
        nodes = self._kinds.get(kind, 0)
        return sum(number * (having & nodes).bit_count() for number, having in enumerate(self._having))

    def largest(self, kind: str = "") -> int:
        """The most that are free on one node."""
        nodes = self._allowed(kind)
        return next((number for number in range(len(self._having) - 1, 0, -1) if self._having[number] & nodes), 0)

    def take(self, count: int, kind: str = "") -> tuple[int, ...] | None:
        """Take so many on as few nodes as possible, where they fit best; None, and nothing taken, if they are too few.

        Ties go to the first node.

        Args:
            count: one or more.
            kind: the kind of devices that will do; empty: any.
        """
        nodes = self._allowed(kind)
        if count > (self.of_kind(kind) if kind else self.count):
            return None
        devices: list[int] = []
        while len(devices) < count:
            missing = count - len(devices)
            node = self._best_fit(missing, nodes)
            start, free = self._starts[node], self._nodes[node]
            taken = _taken(free, start, min(missing, free.bit_count()))
            devices += taken
            self._change(node, free & ~_bits(taken, start))
        return tuple(sorted(devices))

    def spread(self, devices: Iterable[int]) -> int:
        """On how many nodes these lie."""
        return len({self._where[device][0] for device in devices})

    def remove(self, devices: Iterable[int]) -> None:
        """These are free no longer; those that were not stay so."""
        for node, bits in self._by_node(devices).items():
            self._change(node, self._nodes[node] & ~bits)

    def give(self, devices: Iterable[int]) -> None:
        """These are free from now on."""
        for node, bits in self._by_node(devices).items():
            self._change(node, self._nodes[node] | bits)

    def _give_all(self) -> None:
        sizes = self._cluster.devices_per_node
        self._nodes = [(1 << size) - 1 for size in sizes]
        self._having[0] = 0
        for size in set(sizes):
            self._having[size] = int("".join("1" if size == own else "0" for own in reversed(sizes)), 2)
        self.count = self._cluster.size

    def _allowed(self, kind: str) -> int:
        return self._kinds.get(kind, 0) if kind else -1

    def _best_fit(self, count: int, nodes: int) -> int:
        """The first of those nodes with the fewest free devices among those with `count`, or else with the most."""
        having = self._having
        for size in chain(range(count, len(having)), range(min(count, len(having)) - 1, 0, -1)):
            fitting = having[size] & nodes
            if fitting:
                return (fitting & -fitting).bit_length() - 1
        raise ValueError(f"{count} devices were to be taken, but none is free")

    def _change(self, node: int, free: int) -> None:
        before, after, bit = self._nodes[node].bit_count(), free.bit_count(), 1 << node
        self._nodes[node] = free
        if before != after:
            self._having[before] ^= bit
            self._having[after] ^= bit
            self.count += after - before

    def _by_node(self, devices: Iterable[int]) -> dict[int, int]:
        if not isinstance(devices, tuple):
            return self._counted(devices)
        known = self._known.get(devices)
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[devices] = self._counted(devices)
        return known

    def _counted(self, devices: Iterable[int]) -> dict[int, int]:
        bits: dict[int, int] = {}
        where, size = self._where, self._cluster.size
        for device in devices:
            if not 0 <= device < size:
                self._cluster.node_of(device)  # says what is wrong
            node, bit = where[device]
            bits[node] = bits.get(node, 0) | bit
        return bits


def _taken(free: int, start: int, count: int) -> list[int]:
    """The first `count` devices of a node's free ones."""
    found = []
    for _ in range(count):
        lowest = free & -free
        found.append(start + lowest.bit_length() - 1)
        free ^= lowest
    return found


def _bits(devices: Iterable[int], start: int) -> int:
    bits = 0
    for device in devices:
        bits |= 1 << device - start
    return bits
