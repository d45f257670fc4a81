"""What every rank of a run has, whatever its role."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from fleet.coordination.lost_ranks import abort_because
from fleet.coordination.protocol import TO_COORDINATOR, TO_KEEPER, TO_TRAINER, Mailbox, MakeRing, StopRequested
from fleet.machine.cluster_map import COORDINATOR, ClusterMap
from fleet.machine.signals import StopFlag
from fleet.run.ranks.guarded_thread import GuardedThread
from fleet.run.ranks.options import RunOptions
from fleet.run.ranks.ring_keeper import Keeper
from fleet.run.ranks.runtime import Runtime
from fleet.run.ranks.stack_board import Board
from fleet.run.ranks.watchdog import Watchdog
from fleet.run_directory.directory import RunDirectory
from preprocess import Dataset, NodeMap, Ring, SlotReceiver

if TYPE_CHECKING:
    from mpi4py import MPI


@dataclass
class Rank:
    """This rank, from inside."""

    options: RunOptions
    world: MPI.Intracomm
    node_comm: MPI.Intracomm
    cluster: ClusterMap
    runtime: Runtime
    stop: StopFlag
    slots: MPI.Intracomm  # for samples between nodes, and nothing else
    datasets: dict[str, Dataset] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()  # of how the ranks were put
    threads: list[GuardedThread] = field(default_factory=list)
    board: Board = field(default_factory=Board.alone)  # of the node, once `_play_role` has made it
    _told: bool = False

    @property
    def number(self) -> int:
        return int(self.world.rank)

    @property
    def node(self) -> int:
        """This rank's node among all, counted from 0."""
        return self.cluster.nodes.index(self.cluster.places[self.number].node)

    def mailbox(self, inbox: int) -> Mailbox:
        return Mailbox(self.world, inbox)

    def make_ring(self, order: MakeRing) -> Ring:
        """Allocate the node's ring, together with its other ranks; the lowest of them keeps it, in a thread."""
        ring = Ring.create(self.node_comm, order.lanes, order.lane_bytes, order.slot_samples, order.writers)
        if self.node_comm.rank == 0:
            receiver = SlotReceiver(ring, self.node, self.nodes(order), self.slots, self.runtime.timeout)
            keeper = Keeper(self.mailbox(TO_KEEPER), receiver)
            self.threads.append(GuardedThread(keeper.run, "keeper", partial(abort_because, self.world)))
        return ring

    def nodes(self, order: MakeRing) -> NodeMap:
        """Who makes samples, where, and who receives them on each node."""
        makers = self.cluster.preprocessors[: order.writers]
        places = tuple(self.cluster.nodes.index(place.node) for place in makers)
        receivers = tuple(self.cluster.lowest_rank(node) for node in self.cluster.nodes)
        return NodeMap(tuple(place.rank for place in makers), places, receivers)

    @property
    def directory(self) -> RunDirectory:
        return RunDirectory(self.options.directory(self.runtime.spec))

    def watchdog(self) -> Watchdog:
        """Of the thread that enters it."""
        seat = self.board.seat(self.node_comm.rank, self.number)
        return Watchdog(self.number, self.directory.stacks, self.runtime.timeout, seat)

    def report_signal(self) -> None:
        """Tell the coordinator, once, that this rank got a signal."""
        if self.stop.raised and not self._told and self.number != COORDINATOR:
            self._told = True
            self.mailbox(TO_TRAINER).send(COORDINATOR, TO_COORDINATOR, StopRequested(self.number))
