"""Where the preprocessors and the receivers of a run are, and the ways that slots take between nodes."""

from __future__ import annotations

from dataclasses import dataclass

from preprocess.samples.stream import LaneSpec


@dataclass(frozen=True)
class NodeMap:
    """Who makes slots and who receives them; ranks are counted in the communicator that carries slots between nodes.

    Attributes:
        makers: the rank of each preprocessor.
        maker_nodes: the node of each preprocessor.
        receivers: for each node, the rank whose `SlotReceiver` opens its lanes, receives there and passes on.
    """

    makers: tuple[int, ...]
    maker_nodes: tuple[int, ...]
    receivers: tuple[int, ...]

    def writers(self, node: int, spec: LaneSpec) -> list[int]:
        """Return the writers of a lane on a node: all its makers where it is read, else those that live there."""
        makers = [(maker, home) for maker, home in enumerate(self.maker_nodes) if spec.is_made_by(maker)]
        return [maker for maker, home in makers if node in spec.readers or home == node]

    def remote_makers(self, node: int, spec: LaneSpec) -> list[int]:
        """Return the preprocessors of other nodes whose slots of a lane come to a node."""
        return [maker for maker in self.writers(node, spec) if self.maker_nodes[maker] != node]

    def chain(self, maker: int, spec: LaneSpec) -> list[int]:
        """Return the nodes that a preprocessor's slots of a lane pass through, its own first, then all that read it.

        They follow each other in a circle from its own on: the chains of preprocessors on different nodes begin and
        end at different nodes, and every link of the circle carries about as much.
        """
        home, count = self.maker_nodes[maker], len(self.receivers)
        others = sorted(spec.readers.keys() - {home}, key=lambda node: (node - home) % count)
        return [home, *others]

    def next_node(self, maker: int, node: int, spec: LaneSpec) -> int | None:
        """Return the node to which a node of the chain passes the slots on, None at its end."""
        chain = self.chain(maker, spec)
        after = chain.index(node) + 1
        return chain[after] if after < len(chain) else None

    def sender(self, maker: int, node: int, spec: LaneSpec) -> int:
        """Return the rank that sends a preprocessor's slots to a node: itself, or the receiver of the node before."""
        chain = self.chain(maker, spec)
        before = chain[chain.index(node) - 1]
        return self.makers[maker] if before == chain[0] else self.receivers[before]

    def channel(self, maker: int, lane: int) -> int:
        """Return a number for a preprocessor's slots of a lane, unlike any other pair's."""
        return lane * len(self.makers) + maker
