"""The ranks of a run, as rank 0 reaches them: orders go out, messages come in, and lost ranks are taken out."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from fleet.coordination.failures import RanksLost
from fleet.coordination.mailbox import Mailbox
from fleet.coordination.protocol import (
    TO_KEEPER,
    TO_PREPROCESSOR,
    TO_TRAINER,
    CloseLane,
    DismissReader,
    DismissWriter,
    Message,
    OpenLane,
    Order,
    PrepareLane,
    ReadEnergy,
    ReplaceWriter,
    StreamAwaited,
)
from fleet.machine.cluster_map import ClusterMap, Place
from preprocess.samples.stream import LaneSpec

_FEW = 16
"""Up to so many preprocessors, all fill each lane where nobody knows how fast they are; of more, a share of them does.
"""
_NOBODY = -1  # has a preprocessor's number that is kept for a trainer


class WorkerChannel:
    """Sends orders to ranks, receives their messages, and knows which of them are lost.

    Args:
        mailbox: the coordinator's.
        cluster: the cluster map.
        failure: returns what ended a thread of this process; it is raised while this waits.
        now_lost: returns the ranks that are known to be lost.
        helpers: most trainers that are preprocessors at the same time; their numbers follow those of the preprocessors.

    Attributes:
        lost: ranks that were taken out.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        cluster: ClusterMap,
        failure: Callable[[], BaseException | None],
        now_lost: Callable[[], frozenset[int]],
        helpers: int = 0,
    ) -> None:
        self._mailbox, self._cluster, self._failure, self._now_lost = mailbox, cluster, failure, now_lost
        self.lost: frozenset[int] = frozenset()
        self._keepers = [cluster.lowest_rank(node) for node in cluster.nodes]  # rank by node's number
        self._own = len(cluster.preprocessors)
        # By number: the preprocessors' ranks, then places for trainers that help.
        self._writers = [place.rank for place in cluster.preprocessors] + [_NOBODY] * helpers
        self._filled: dict[int, tuple[int, ...]] = {}  # open lane -> the numbers of those who fill it
        self._load = Counter[int]()  # number -> lanes that it fills
        self._opened: dict[int, list[int]] = {}  # open lane -> the keepers that have it
        self._worked: set[int] = set()  # ranks that have ever filled a lane
        self._orphaned: list[int] = []  # writers whose work another rank takes over once nobody reads it

    def ranks_of(self, devices: Iterable[int]) -> tuple[int, ...]:
        """Return the ranks of the trainers of these devices."""
        return tuple(self._cluster.rank_of(device) for device in devices)

    def send(self, trainers: Iterable[int], order: Order) -> None:
        """Send an order to these trainers."""
        self._mailbox.send_all(trainers, TO_TRAINER, order)

    def send_to_keepers(self, ranks: Iterable[int], order: ReadEnergy) -> None:
        """Send an order to the keepers that these ranks are."""
        self._mailbox.send_all(ranks, TO_KEEPER, order)

    def makers(self, count: int, helpers: Iterable[int] = ()) -> tuple[int, ...]:
        """Return the numbers of so many preprocessors, 0 for all, that are to fill a lane: those who fill fewest now.

        Args:
            helpers: devices whose trainers fill the lane, too, as far as there are numbers for them.
        """
        numbers: dict[int, int] = {}  # rank -> its first number, whatever it does for lost ones
        for number, rank in enumerate(self._writers[: self._own]):
            if rank not in self.lost and number not in self._orphaned:
                numbers.setdefault(rank, number)
        chosen = sorted(numbers.values(), key=lambda number: (self._load[number], number))
        numbered = (self._number_of_helper(rank) for rank in self.ranks_of(helpers) if rank not in self.lost)
        return (*sorted(chosen[: count or len(chosen)]), *sorted(each for each in numbered if each is not None))

    def share(self, readers: int) -> int:
        """Return how many preprocessors fill a lane of so many trainers where their speed is unknown; 0: all."""
        if self._own <= _FEW:
            return 0
        return max(_FEW // 2, math.ceil(self._own * readers / len(self._cluster.trainers)))

    def _number_of_helper(self, rank: int) -> int | None:
        """Give a trainer a preprocessor's number: its last one, or one with which nobody fills a lane; None: there is
        none.
        """
        if rank in self._writers:
            return self._writers.index(rank)
        taken = {number for makers in self._filled.values() for number in makers}.union(self._orphaned)
        free = [number for number in range(self._own, len(self._writers)) if number not in taken]
        number = min(free, key=lambda each: self._writers[each] != _NOBODY, default=None)
        if number is not None:
            self._writers[number] = rank
        return number

    def send_for_lane(self, order: OpenLane | CloseLane) -> frozenset[int]:
        """Send an order to those who fill a lane, and to the ring keepers of the nodes that fill or read it.

        Returns:
            The ranks that fill it.
        """
        if isinstance(order, OpenLane):
            makers = self._filled[order.lane.lane] = order.lane.makers
            keepers = self._opened[order.lane.lane] = self._keepers_of(order.lane)
            self._load.update(makers)
        else:
            makers, keepers = self._filled.pop(order.lane), self._opened.pop(order.lane)
            self._load.subtract(makers)
        self._mailbox.send_all(keepers, TO_KEEPER, order)
        numbers = {self._writers[maker]: maker for maker in makers if self._writers[maker] != _NOBODY}  # by rank
        self._worked |= numbers.keys()
        told = frozenset(numbers.keys() - self.lost)
        for rank in sorted(told):
            self._send_to_maker(rank, numbers[rank], order)
        return told

    def _keepers_of(self, lane: LaneSpec) -> list[int]:
        nodes = {*lane.readers}
        for maker in lane.makers or range(self._own):
            if self._writers[maker] != _NOBODY:
                nodes.add(self._cluster.number_of(self._cluster.places[self._writers[maker]].node))
        return [self._keepers[node] for node in sorted(nodes)]

    def send_to_preprocessors(self, ranks: Iterable[int], order: StreamAwaited) -> None:
        """Send an order to those of these ranks that are preprocessors by role."""
        told = (rank for rank in sorted(ranks) if rank not in self.lost and not self._cluster.places[rank].is_trainer)
        self._mailbox.send_all(told, TO_PREPROCESSOR, order)

    def _send_to_maker(self, rank: int, number: int, order: OpenLane | CloseLane) -> None:
        """Send an order to a lane's maker: to a trainer into its own inbox, so that it ends before it trains."""
        if number < self._own:
            self._mailbox.send(rank, TO_PREPROCESSOR, order)
        elif isinstance(order, OpenLane):
            self._mailbox.send(rank, TO_TRAINER, PrepareLane(number, order.lane))
        else:
            self._mailbox.send(rank, TO_TRAINER, order)

    def next_message(self, timeout: float) -> Message | None:
        """Return the next message; None after `timeout` seconds, or as soon as further ranks are lost."""
        message = self._mailbox.receive(max(0.0, timeout), until=self._is_disturbed)
        failure = self._failure()
        if failure is not None:
            raise failure
        return message

    def last_words(self, awaited: Callable[[], frozenset[int]], seconds: float) -> Iterator[Message]:
        """Yield messages until no living rank is awaited, for at most so many seconds."""
        end = time.monotonic() + seconds
        while awaited() - self._now_lost() and (left := end - time.monotonic()) > 0:
            message = self._mailbox.receive(left, until=lambda: not awaited() - self._now_lost())
            if message is not None:
                yield message

    def _is_disturbed(self) -> bool:
        return self._failure() is not None or self._now_lost() != self.lost

    def take_out_lost(self) -> list[Place]:
        """Take out the ranks that are lost by now; return their places.

        Raises:
            RanksLost: if the others cannot go on without one of them.
        """
        new = self._now_lost() - self.lost
        self.lost |= new
        places = [place for place in self._cluster.places if place.rank in new]
        again = "the run is started again from its checkpoints"
        several = len(self._cluster.nodes) > 1
        for place in places:
            if place.rank in self._keepers or (place.rank in self._worked and several):
                raise RanksLost(f"rank {place.rank} on {place.host}, a {place.role}, was lost: {again}")
        if places and self.lost.issuperset(place.rank for place in self._cluster.trainers):
            raise RanksLost(f"all trainers were lost: {again}")
        return places

    def fills(self, place: Place) -> bool:
        """Return whether a rank makes samples that somebody reads."""
        return any(self._writers[maker] == place.rank for makers in self._filled.values() for maker in makers)

    def dismiss(self, lost: Place) -> None:
        """Let nobody wait for a lost rank: no writer for a reader, and no reader for a preprocessor.

        A preprocessor's work goes to the one that does least, once all groups have left.
        """
        if lost.is_trainer:
            reader = self._cluster.ranks_of(lost.node).index(lost.rank)
            self._mailbox.send(self._cluster.lowest_rank(lost.node), TO_KEEPER, DismissReader(reader))
        writers = [number for number, rank in enumerate(self._writers) if rank == lost.rank]
        for writer in writers if lost.rank in self._worked else ():
            living = [place.rank for place in self._cluster.preprocessors if place.rank not in self.lost]
            self._writers[writer] = min(living, key=self._writers.count) if writer < self._own else _NOBODY
            self._orphaned.append(writer)
            self._mailbox.send(self._keepers[0], TO_KEEPER, DismissWriter(writer))

    def hand_over(self) -> None:
        """Let those who take over for lost preprocessors begin: nobody reads now."""
        for writer in self._orphaned:
            self._mailbox.send(self._keepers[0], TO_KEEPER, ReplaceWriter(writer))
            if writer < self._own:
                self._mailbox.send(self._writers[writer], TO_PREPROCESSOR, ReplaceWriter(writer))
        self._orphaned.clear()
