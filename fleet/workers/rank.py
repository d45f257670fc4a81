"""What every rank of a run has, whatever its role."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, cast

from fleet.coordination.failures import abort, abort_because
from fleet.coordination.mailbox import Mailbox
from fleet.coordination.protocol import (
    TO_COORDINATOR,
    TO_KEEPER,
    TO_PREPROCESSOR,
    TO_TRAINER,
    CloseLane,
    DismissReader,
    DismissWriter,
    EnergyRead,
    MakeRing,
    OpenLane,
    ReadEnergy,
    ReplaceWriter,
    Shutdown,
    StopRequested,
)
from fleet.journal.directory import RunDirectory
from fleet.machine.cluster_map import COORDINATOR, ClusterMap
from fleet.machine.launch.launched import FAILED, StopFlag
from fleet.machine.standard_streams import tell
from fleet.spec.resources import Energy
from fleet.workers.runtime import KnownSizes, Runtime
from fleet.workers.watchdog import Board, Watchdog
from preprocess.ring.ring import Ring
from preprocess.ring.shared_memory import SEMAPHORE_BYTES, SemaphoreArray, SharedMemory, forked_memory, node_memory

if TYPE_CHECKING:
    from mpi4py import MPI

    from fleet.machine.energy import Meter
    from preprocess import Dataset
    from preprocess.making.broadcast import NodeMap, SlotReceiver


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
        self,
        directory: RunDirectory,
        ties: Ties,
        cluster: ClusterMap,
        runtime: Runtime,
        stop: StopFlag,
        datasets: dict[str, Dataset],
        warnings: tuple[str, ...] = (),
    ) -> None:
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
            shape = order.lanes, order.lane_bytes, order.slot_samples, order.writers, order.makers
            ring = Ring.create(self.ties.node, *shape)
        if self.seat == 0:
            from preprocess.making.broadcast import SlotReceiver

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
        from preprocess.making.broadcast import NodeMap

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


_PLACES = {inbox: place for place, inbox in enumerate((TO_COORDINATOR, TO_PREPROCESSOR, TO_TRAINER, TO_KEEPER))}


class Bells:
    """A bell for each inbox of each rank of a node; made by `create`, or `alone` for one rank without MPI.

    A message itself goes over MPI, and is looked for there. So a bell that nobody rings costs time, and no message.

    Args:
        memory: shared by the ranks, zeroed.
        ranks: of the node, by seat.
        rank: this one.
        reaches_all: whether all ranks of the run are here.
    """

    def __init__(self, memory: SharedMemory, ranks: Sequence[int], rank: int, reaches_all: bool) -> None:
        self._memory = memory
        self._seats = {each: seat for seat, each in enumerate(ranks)}
        self._own, self.reaches_all = self._seats[rank], reaches_all
        self._bells = SemaphoreArray(memory.bytes, (len(ranks), len(_PLACES)))

    @classmethod
    def create(cls, node_comm: MPI.Intracomm, ranks: Sequence[int], reaches_all: bool) -> Bells:
        """Collective over the ranks of a node.

        Raises:
            SharedMemoryError: too little is free; the same on every rank.
        """
        memory = node_memory(node_comm, _bytes_of(ranks))
        bells = cls(memory, ranks, ranks[node_comm.rank], reaches_all)
        if node_comm.rank == 0:
            bells.initialise()
        node_comm.Barrier()  # nobody rings before
        return bells

    @classmethod
    def alone(cls, ranks: Sequence[int] = (0,), reaches_all: bool = True) -> Bells:
        """Those of the first rank, for threads of this process and those that it forks afterwards."""
        bells = cls(forked_memory(_bytes_of(ranks)), ranks, ranks[0], reaches_all)
        bells.initialise()
        return bells

    def initialise(self) -> None:
        """Silence all; nobody may use them meanwhile."""
        self._bells.initialise()

    def ring(self, rank: int, inbox: int) -> None:
        """Wake who waits at an inbox, if its rank is on this node."""
        if rank in self._seats:
            self._bells.ring(self._seats[rank], _PLACES[inbox])

    def wait(self, inbox: int, seconds: float) -> bool:
        """Wait at an inbox of this rank until somebody rings, for at most so many seconds, and say whether one did."""
        rung = self._bells.wait(self._own, _PLACES[inbox], seconds=seconds)
        if rung:
            self._bells.drain(self._own, _PLACES[inbox])
        return rung


def _bytes_of(ranks: Sequence[int]) -> int:
    return len(ranks) * len(_PLACES) * SEMAPHORE_BYTES


@contextmanager
def time_limit(world: MPI.Intracomm, seconds: float, text: str) -> Iterator[None]:
    """End all ranks of `world`, with `text`, if the block takes longer than `seconds`."""
    timer = threading.Timer(seconds, _end_all, (world, text))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def together(world: MPI.Intracomm, seconds: float, what: str) -> AbstractContextManager[None]:
    """A bound for what all ranks do together: none goes on before every one of them has done `what`."""
    late = f"rank {world.rank}: not every rank has {what} within {seconds:g} s, one is stuck or slow"
    return time_limit(world, seconds, f"{late}; if that really takes so long, raise resources.timeout")


def _end_all(world: MPI.Intracomm, text: str) -> None:
    tell(text)
    abort(world, FAILED)


class GuardedThread(threading.Thread):
    """`failure` holds the error that ended it, and `on_failure` is called."""

    def __init__(self, work: Callable[[], object], name: str, on_failure: Callable[[], None] = lambda: None) -> None:
        super().__init__(name=name, daemon=True)
        self.failure: BaseException | None = None
        self._work, self._on_failure = work, on_failure
        self.start()

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self.failure = error
            self._on_failure()


@dataclass
class RingKeeper:
    """Runs in a thread of the node's lowest rank, whatever that rank does beside it.

    Args:
        mailbox: the mailbox of the keeper's role.
        receiver: this node's.
        energy: reads this host's counters.
    """

    mailbox: Mailbox
    receiver: SlotReceiver
    energy: EnergyReader

    def run(self) -> None:
        """Serve until told to shut down."""
        while True:
            message = self.mailbox.poll()
            if isinstance(message, Shutdown):
                self.energy.end()
                return
            if isinstance(message, OpenLane):
                self.receiver.open_lane(message.lane)
            elif isinstance(message, CloseLane):
                self.receiver.close_lane(message.lane)
            elif isinstance(message, DismissReader):
                self.receiver.dismiss(message.reader)
            elif isinstance(message, DismissWriter):
                self.receiver.dismiss_writer(message.writer)
            elif isinstance(message, ReplaceWriter):
                self.receiver.replace_writer(message.writer)
            elif isinstance(message, ReadEnergy):
                self.energy.ask()
            elif not self.receiver.step():
                self.receiver.wait(self.mailbox.pause, self.mailbox.rest)


class EnergyReader:
    """Looks for the counters at once, and answers each order with what they have counted since the last one.

    Args:
        rank, host: this process has them.
        find: gives the host's counters.
        tell: sends an answer to rank 0.
    """

    def __init__(self, rank: int, host: str, find: Callable[[], Meter], tell: Callable[[EnergyRead], object]) -> None:
        self._rank, self._host, self._find, self._tell = rank, host, find, tell
        self._orders: SimpleQueue[bool] = SimpleQueue()
        GuardedThread(self._serve, "energy")

    def ask(self) -> None:
        """Have the counters read; returns at once."""
        self._orders.put(True)

    def end(self) -> None:
        """Read no more."""
        self._orders.put(False)

    def _serve(self) -> None:
        meter = self._find()
        while self._orders.get():
            read = meter.read()
            devices, joules = tuple(each for each, _ in read.joules), tuple(each for _, each in read.joules)
            self._tell(EnergyRead(self._rank, self._host, read.seconds, devices, joules, meter.sources, read.gone))


def meter_of(cluster: ClusterMap, node: int, asked: Energy) -> Meter:
    """The counters of a node's host; none if nobody wants them read, or they cannot be.

    It runs on one rank of a node, which alone loads what reads them.
    """
    from fleet.machine.energy import Meter, find_counters

    if not asked.read:
        return Meter(())
    here = [place for place in cluster.trainers if place.node == node]
    accelerators: dict[str, tuple[int, ...]] = {}
    for place in here:
        if place.pci and place.device is not None:
            accelerators[place.pci] = (*accelerators.get(place.pci, ()), place.device)
    devices = tuple(place.device for place in here if place.device is not None)
    try:
        return Meter(find_counters(devices, accelerators, Path(asked.powercap), Path(asked.hwmon)))
    except Exception:  # whatever a broken driver does, the run goes on without its figures
        return Meter(())
