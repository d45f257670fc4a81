"""What every rank of a run has, whatever its role."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

from fleet.coordination.lost_ranks import abort_because
from fleet.coordination.mailbox import Mailbox
from fleet.coordination.protocol import TO_COORDINATOR, TO_KEEPER, TO_PREPROCESSOR, TO_TRAINER, MakeRing, StopRequested
from fleet.journal.directory import RunDirectory
from fleet.machine.cluster_map import COORDINATOR, ClusterMap
from fleet.machine.signals import StopFlag
from fleet.workers.bells import Bells
from fleet.workers.energy_reader import EnergyReader, meter_of
from fleet.workers.guarded_thread import GuardedThread
from fleet.workers.known_sizes import KnownSizes
from fleet.workers.runtime import Runtime
from fleet.workers.stack_board import Board
from fleet.workers.time_limit import together
from fleet.workers.watchdog import Watchdog
from preprocess import NodeMap, Ring

if TYPE_CHECKING:
    from mpi4py import MPI

    from preprocess import Dataset


@dataclass(frozen=True)
class Ties:
    """How a rank reaches the others.

    Attributes:
        world: all ranks of the run.
        node: who shares its node's memory.
        slots: all ranks, for samples between nodes and nothing else.
        board: the node's.
        bells: the node's; None: there are none.
    """

    world: MPI.Intracomm
    node: MPI.Intracomm
    slots: MPI.Intracomm
    board: Board
    bells: Bells | None = None

    @classmethod
    def tie(cls, world: MPI.Intracomm, cluster: ClusterMap) -> Ties:
        """Collective over all ranks.

        Raises:
            SharedMemoryError: too little is free for the board; on the ranks of that node alone.
        """
        here = cluster.places[world.rank].node
        node = cast("MPI.Intracomm", world.Split(color=cluster.nodes.index(here), key=world.rank))
        bells = Bells.create(node, cluster.ranks_of(here), len(cluster.nodes) == 1)
        return cls(world, node, world.Dup(), Board.create(node), bells)


class Rank:
    """This rank, from inside.

    Args:
        directory: the run's.
        ties: to the other ranks.
        cluster: the cluster map.
        runtime: the jobs and data; replaced where jobs are added or get other batches.
        stop: raised by signals.
        datasets: opened, where this rank makes samples.
        warnings: warnings about where the ranks were put.
    """

    def __init__(
        self, directory: RunDirectory, ties: Ties, cluster: ClusterMap, runtime: Runtime, stop: StopFlag,
        datasets: dict[str, Dataset], warnings: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self.directory, self.ties, self.cluster, self.runtime, self.stop = directory, ties, cluster, runtime, stop
        self.datasets, self.warnings = datasets, warnings
        self.threads: list[GuardedThread] = []
        self.sizes = KnownSizes()
        self._mailboxes: list[Mailbox] = []
        self._told = False

    @property
    def world(self) -> MPI.Intracomm:
        return self.ties.world

    @property
    def number(self) -> int:
        return int(self.world.rank)

    @property
    def seat(self) -> int:
        """This rank's number among its node's ranks."""
        return int(self.ties.node.rank)

    def mailbox(self, inbox: int) -> Mailbox:
        """A new one, for one thread. It is kept until `flush`, with all that was sent through it."""
        self._mailboxes.append(Mailbox(self.world, inbox, self.ties.bells))
        return self._mailboxes[-1]

    def flush(self) -> None:
        """Wait until what this rank has sent has gone. Call it once no other thread sends."""
        for mailbox in self._mailboxes:
            mailbox.flush()

    def make_ring(self, order: MakeRing) -> Ring:
        """Allocate the node's ring, together with its other ranks; the lowest of them keeps it, in a thread."""
        with together(self.world, self.runtime.timeout, "come to make its node's ring"):
            ring = Ring.create(self.ties.node, order.lanes, order.lane_bytes, order.slot_samples, order.writers)
        if self.seat == 0:
            from fleet.workers.ring_keeper import RingKeeper
            from preprocess import SlotReceiver

            node = self.cluster.nodes.index(self.cluster.places[self.number].node)
            receiver = SlotReceiver(ring, node, self.nodes(order), self.ties.slots, self.runtime.timeout)
            keeper = RingKeeper(self.mailbox(TO_KEEPER), receiver, self._energy_reader())
            self.threads.append(GuardedThread(keeper.run, "keeper", partial(abort_because, self.world)))
        return ring

    def _energy_reader(self) -> EnergyReader:
        place, mailbox = self.cluster.places[self.number], self.mailbox(TO_KEEPER)
        asked = self.runtime.spec.resources.energy
        find = partial(meter_of, self.cluster, place.node, asked)
        return EnergyReader(self.number, place.host, find, partial(mailbox.send, COORDINATOR, TO_COORDINATOR))

    def wake_preprocessors(self) -> None:
        """Let those of this node see at once that a lane is empty."""
        if self.ties.bells is not None:
            for place in self.cluster.preprocessors:
                self.ties.bells.ring(place.rank, TO_PREPROCESSOR)

    def nodes(self, order: MakeRing) -> NodeMap:
        """Who makes samples, where, and who receives them on each node."""
        makers = self.cluster.preprocessors[: order.writers]
        places = [self.cluster.nodes.index(place.node) for place in makers]
        places += [0] * (order.writers - len(makers))  # trainers that prepare, on the only node: nothing is sent there
        ranks = [place.rank for place in makers] + [COORDINATOR] * (order.writers - len(makers))
        receivers = tuple(self.cluster.lowest_rank(node) for node in self.cluster.nodes)
        return NodeMap(tuple(ranks), tuple(places), receivers)

    def watchdog(self) -> Watchdog:
        """Returns what watches the thread that enters it."""
        seat = self.ties.board.seat(self.seat, self.number)
        return Watchdog(self.number, self.directory.stacks, self.runtime.timeout, seat)

    def report_signal(self) -> None:
        """Tell the coordinator, once, that this rank got a signal."""
        if self.stop.raised and not self._told and self.number != COORDINATOR:
            self._told = True
            self.mailbox(TO_TRAINER).send(COORDINATOR, TO_COORDINATOR, StopRequested(self.number))
