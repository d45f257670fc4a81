"""Where the preprocessors and the receivers of a run are."""

from __future__ import annotations

from dataclasses import dataclass

from preprocess.stream import LaneSpec

__all__ = ["NodeMap"]


@dataclass(frozen=True)
class NodeMap:
    """Who makes slots and who receives them; ranks are those of the communicator that carries slots between nodes.

    Attributes:
        makers: the rank of each preprocessor.
        maker_nodes: the node of each preprocessor.
        receivers: for each node, the rank whose `SlotReceiver` opens its lanes and receives there.
    """

    makers: tuple[int, ...]
    maker_nodes: tuple[int, ...]
    receivers: tuple[int, ...]

    def writers(self, node: int, spec: LaneSpec) -> list[int]:
        """Return the writers of a lane on a node: all preprocessors where it is read, else those that live there."""
        return [maker for maker, home in enumerate(self.maker_nodes) if spec.readers[node] or home == node]

    def remote_makers(self, node: int, spec: LaneSpec) -> list[int]:
        """Return the preprocessors of other nodes that send a lane to a node."""
        return [maker for maker in self.writers(node, spec) if self.maker_nodes[maker] != node]

    def destinations(self, maker: int, spec: LaneSpec) -> list[int]:
        """Return the other nodes to which a preprocessor sends a lane."""
        home = self.maker_nodes[maker]
        return [node for node, readers in enumerate(spec.readers) if readers and node != home]
