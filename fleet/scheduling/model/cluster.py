"""The machine as policies see it: nodes, and devices numbered through."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate


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
