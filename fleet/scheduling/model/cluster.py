"""The machine as policies see it: nodes and devices numbered through, which of them are free, and what they cost."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, chain


@dataclass(frozen=True)
class Cluster:
    """The devices of a machine, numbered 0 .. M-1 node by node.

    Args:
        devices_per_node: number of devices of each node.
        kinds: the kind of each node's devices, such as "v100"; empty: all devices are alike.
        sharing: where devices are trainers of which several share an accelerator: those of each accelerator.

    Raises:
        ValueError: no node, a node without a device, kinds for other than all nodes, or `sharing` of other devices.
    """

    devices_per_node: tuple[int, ...]
    kinds: tuple[str, ...] = ()
    sharing: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "devices_per_node", tuple(self.devices_per_node))
        object.__setattr__(self, "kinds", tuple(self.kinds))
        if not self.devices_per_node or min(self.devices_per_node) < 1:
            raise ValueError(
                f"devices_per_node is {self.devices_per_node}; name at least one node, each with one device or more"
            )
        if self.kinds and len(self.kinds) != len(self.devices_per_node):
            raise ValueError(f"{len(self.kinds)} kinds for {len(self.devices_per_node)} nodes; name one for each node")
        if self.sharing and sorted(device for devices in self.sharing for device in devices) != list(range(self.size)):
            raise ValueError(f"sharing is {self.sharing}; name each of the {self.size} devices once")

    @property
    def size(self) -> int:
        """M, the number of devices."""
        return self.ends[-1]

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return len(self.devices_per_node)

    def node_of(self, device: int) -> int:
        """The node that holds `device`."""
        if not 0 <= device < self.size:
            raise ValueError(f"device {device} is not among the cluster's 0 .. {self.size - 1}")
        return bisect_right(self.ends, device)

    def devices_of(self, node: int) -> range:
        """The devices of `node`."""
        return range(self.ends[node] - self.devices_per_node[node], self.ends[node])

    def kind_of(self, device: int) -> str:
        """The kind of `device`; empty where all are alike."""
        return self.kinds[self.node_of(device)] if self.kinds else ""

    def counts(self) -> dict[str, int]:
        """Kind -> how many devices of it there are, in the order of the nodes."""
        counts: dict[str, int] = {}
        for kind, devices in zip(self.kinds or ("",) * self.nodes, self.devices_per_node):
            counts[kind] = counts.get(kind, 0) + devices
        return counts

    def per_node(self, kind: str) -> int:
        """Most devices of that kind on a node; of any kind where it is empty, or the cluster has none of it."""
        kinds = self.kinds or ("",) * self.nodes
        alike = [count for each, count in zip(kinds, self.devices_per_node) if each == kind]
        return max(alike or self.devices_per_node)

    @cached_property
    def places(self) -> tuple[tuple[int, int], ...]:
        """For each device its node, and its bit among the node's devices."""
        return tuple((node, 1 << bit) for node, size in enumerate(self.devices_per_node) for bit in range(size))

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """For each node the number of its first device."""
        return tuple(end - size for end, size in zip(self.ends, self.devices_per_node))

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """For each node the number after its last device."""
        return tuple(accumulate(self.devices_per_node))


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


Course = tuple[tuple[float, float], ...]
"""(second of the run, price of a device-hour from then on), by second; the first is at 0."""


@dataclass(frozen=True)
class Prices:
    """The prices of a machine's devices, and what makes them worth it.

    Attributes:
        by_kind: kind of device -> its price in the course of the run; "" where all are alike.
        worth: what an hour of a device of the kind on which a job trains fastest is worth, in the prices' unit;
            infinite: devices are used whatever they cost.

    Raises:
        ValueError: a course that does not begin at 0 or does not ascend, or a negative price or worth.
    """

    by_kind: Mapping[str, Course] = field(default_factory=dict)
    worth: float = math.inf

    def __post_init__(self) -> None:
        for kind, course in self.by_kind.items():
            seconds = [second for second, _ in course]
            if not seconds or seconds[0] != 0 or any(b <= a for a, b in zip(seconds, seconds[1:])):
                raise ValueError(f"the prices of {kind!r} are told for {seconds} s; begin at 0, and ascend")
            if not all(math.isfinite(price) and price >= 0 for _, price in course):
                raise ValueError(f"the prices of {kind!r} are {[price for _, price in course]}; none may be below 0")
        if not self.worth > 0:
            raise ValueError(f"worth is {self.worth}; it must be above 0")

    def at(self, kind: str, now: float) -> float:
        """The price of a device-hour; 0 where none is told."""
        course = self.by_kind.get(kind, ((0.0, 0.0),))
        return course[max(0, bisect_right(course, (now, math.inf)) - 1)][1]

    def next_change(self, now: float) -> float:
        """When the next price changes; infinite: none does any more."""
        return min(
            (second for course in self.by_kind.values() for second, _ in course if second > now), default=math.inf
        )
