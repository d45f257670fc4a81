"""The ranks of a run, as its coordinator reaches them."""

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
"""Up to so many preprocessors fill each lane together where nobody knows how fast they are; of more, its share does."""
_NOBODY = -1  # has a preprocessor's number that is kept for a trainer


class WorkerChannel:
    """Tells ranks what to do, hears what they say, and knows which of them are lost.

    Args:
        mailbox: the coordinator's.
        cluster: the cluster map.
        failure: what ended a thread of this process; looked at while waiting, and raised.
        now_lost: the ranks that are known to be lost.
        lent: most trainers that are preprocessors at the same time, with the numbers behind those that always are.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        cluster: ClusterMap,
        failure: Callable[[], BaseException | None],
        now_lost: Callable[[], frozenset[int]],
        lent: int = 0,
    ) -> None:
        self._mailbox, self._cluster, self._failure, self._now_lost = mailbox, cluster, failure, now_lost
        self.lost: frozenset[int] = frozenset()  # those that were taken out
        self._keepers = [cluster.lowest_rank(node) for node in cluster.nodes]  # by the node's number
        self._own = len(cluster.preprocessors)
        self._writers = [place.rank for place in cluster.preprocessors] + [_NOBODY] * lent  # by preprocessor's number
        self._filled: dict[int, tuple[int, ...]] = {}  # open lanes -> the numbers of those who fill them
        self._load = Counter[int]()  # number -> lanes that it fills
        self._told: dict[int, list[int]] = {}  # open lanes -> the keepers that know of them
        self._worked: set[int] = set()  # ranks that have ever filled a lane
        self._orphaned: list[int] = []  # writers whose work another rank takes over once nobody reads it

    def ranks_of(self, devices: Iterable[int]) -> tuple[int, ...]:
        """The trainers of these devices."""
        return tuple(self._cluster.rank_of(device) for device in devices)

    def tell(self, trainers: Iterable[int], order: Order) -> None:
        """Send an order to these ranks."""
        self._mailbox.send_all(trainers, TO_TRAINER, order)

    def tell_keepers(self, ranks: Iterable[int], order: ReadEnergy) -> None:
        """Send an order to the keepers that these ranks are."""
        self._mailbox.send_all(ranks, TO_KEEPER, order)

    def makers(self, count: int, lent: Iterable[int] = ()) -> tuple[int, ...]:
        """The numbers of so many preprocessors, 0 for all, that are to fill a lane: those who fill fewest now.

        A rank stands there once, whatever it does for lost ones.

        Args:
            lent: devices whose trainers fill the lane, too, as far as there are numbers for them.
        """
        numbers: dict[int, int] = {}  # by rank
        for number, rank in enumerate(self._writers[: self._own]):
            if rank not in self.lost and number not in self._orphaned:
                numbers.setdefault(rank, number)
        chosen = sorted(numbers.values(), key=lambda number: (self._load[number], number))
        numbered = (self._number_of_lent(rank) for rank in self.ranks_of(lent) if rank not in self.lost)
        return (*sorted(chosen[: count or len(chosen)]), *sorted(each for each in numbered if each is not None))

    def share(self, readers: int) -> int:
        """How many preprocessors fill a lane of so many trainers, where nobody knows how fast they are; 0: all."""
        if self._own <= _FEW:
            return 0
        return max(_FEW // 2, math.ceil(self._own * readers / len(self._cluster.trainers)))

    def _number_of_lent(self, rank: int) -> int | None:
        """The number of a trainer as a preprocessor: its last one, or one with which nobody fills a lane; None: none.

        It is the trainer's from now on.
        """
        if rank in self._writers:
            return self._writers.index(rank)
        taken = {number for makers in self._filled.values() for number in makers}.union(self._orphaned)
        free = [number for number in range(self._own, len(self._writers)) if number not in taken]
        number = min(free, key=lambda each: self._writers[each] != _NOBODY, default=None)
        if number is not None:
            self._writers[number] = rank
        return number

    def tell_of_lane(self, order: OpenLane | CloseLane) -> frozenset[int]:
        """Send it to those who fill the lane, and to the keepers of the rings of their nodes and of those where it is
        read; returns the ranks that fill it.
        """
        if isinstance(order, OpenLane):
            makers = self._filled[order.lane.lane] = order.lane.makers
            keepers = self._told[order.lane.lane] = self._keepers_of(order.lane)
            self._load.update(makers)
        else:
            makers, keepers = self._filled.pop(order.lane), self._told.pop(order.lane)
            self._load.subtract(makers)
        self._mailbox.send_all(keepers, TO_KEEPER, order)
        numbers = {self._writers[maker]: maker for maker in makers if self._writers[maker] != _NOBODY}  # by rank
        self._worked |= numbers.keys()
        told = frozenset(numbers.keys() - self.lost)
        for rank in sorted(told):
            self._tell_maker(rank, numbers[rank], order)
        return told

    def _keepers_of(self, lane: LaneSpec) -> list[int]:
        nodes = {*lane.readers}
        for maker in lane.makers or range(self._own):
            if self._writers[maker] != _NOBODY:
                nodes.add(self._cluster.number_of(self._cluster.places[self._writers[maker]].node))
        return [self._keepers[node] for node in sorted(nodes)]

    def tell_preprocessors(self, ranks: Iterable[int], order: StreamAwaited) -> None:
        """Send an order to those of these ranks that always are preprocessors."""
        told = (rank for rank in sorted(ranks) if rank not in self.lost and not self._cluster.places[rank].is_trainer)
        self._mailbox.send_all(told, TO_PREPROCESSOR, order)

    def _tell_maker(self, rank: int, number: int, order: OpenLane | CloseLane) -> None:
        """Tell who fills a lane with that number: a trainer in its own inbox, so that it ends before it trains."""
        if number < self._own:
            self._mailbox.send(rank, TO_PREPROCESSOR, order)
        elif isinstance(order, OpenLane):
            self._mailbox.send(rank, TO_TRAINER, PrepareLane(number, order.lane))
        else:
            self._mailbox.send(rank, TO_TRAINER, order)

    def next_message(self, timeout: float) -> Message | None:
        """What is said next; None after `timeout` seconds, or as soon as further ranks are lost."""
        message = self._mailbox.receive(max(0.0, timeout), until=self._is_disturbed)
        failure = self._failure()
        if failure is not None:
            raise failure
        return message

    def last_words(self, awaited: Callable[[], frozenset[int]], seconds: float) -> Iterator[Message]:
        """What is said until nobody is awaited but lost ranks, for at most so many seconds; nothing else ends it."""
        end = time.monotonic() + seconds
        while awaited() - self._now_lost() and (left := end - time.monotonic()) > 0:
            message = self._mailbox.receive(left, until=lambda: not awaited() - self._now_lost())
            if message is not None:
                yield message

    def _is_disturbed(self) -> bool:
        return self._failure() is not None or self._now_lost() != self.lost

    def take_out_lost(self) -> list[Place]:
        """Count those who are lost by now as gone; return their places.

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
        """Whether a rank makes samples that somebody reads."""
        return any(self._writers[maker] == place.rank for makers in self._filled.values() for maker in makers)

    def dismiss(self, lost: Place) -> None:
        """Let nobody wait for a lost rank: no lane's writers for a reader, since others may read there too, and no
        reader for a preprocessor, whose work goes to the one that has least, from when all groups have left.
        """
        if lost.is_trainer:
            reader = self._cluster.ranks_of(lost.node).index(lost.rank)
            self._mailbox.send(self._cluster.lowest_rank(lost.node), TO_KEEPER, DismissReader(reader))
        for writer in self._numbers_of(lost.rank) if lost.rank in self._worked else ():
            self._writers[writer] = self._heir() if writer < self._own else _NOBODY
            self._orphaned.append(writer)
            self._mailbox.send(self._keepers[0], TO_KEEPER, DismissWriter(writer))

    def _heir(self) -> int:
        """The preprocessor that takes over: who does least."""
        living = [place.rank for place in self._cluster.preprocessors if place.rank not in self.lost]
        return min(living, key=self._writers.count)

    def _numbers_of(self, rank: int) -> list[int]:
        return [number for number, known in enumerate(self._writers) if known == rank]

    def hand_over(self) -> None:
        """Nobody reads now: those who take over begin."""
        for writer in self._orphaned:
            self._mailbox.send(self._keepers[0], TO_KEEPER, ReplaceWriter(writer))
            if writer < self._own:
                self._mailbox.send(self._writers[writer], TO_PREPROCESSOR, ReplaceWriter(writer))
        self._orphaned.clear()
