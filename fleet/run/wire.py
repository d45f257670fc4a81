"""Rank 0's wire to the other ranks: orders go out, and what ends the waiting for their words is known here."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from fleet.coordination.lost_ranks import RanksLost, lost_ranks
from fleet.coordination.mailbox import Mailbox
from fleet.coordination.protocol import TO_PREPROCESSOR, TO_TRAINER, Order
from fleet.machine.cluster_map import ClusterMap

TAG_STEP = 2  # a group's tags are its own and the next


class Wire:
    """What the coordinator says to all ranks of a role.

    Args:
        mailbox: the coordinator's.
        cluster: the cluster map.
        failure: what ended a thread of this rank; None as long as there is none.
    """

    def __init__(self, mailbox: Mailbox, cluster: ClusterMap, failure: Callable[[], BaseException | None]) -> None:
        self.mailbox, self.cluster, self.failure = mailbox, cluster, failure
        self._tags = count(1000, TAG_STEP)

    def also_fails(self, failure: Callable[[], BaseException | None]) -> None:
        """Let the failure of one thread more end the waiting."""
        before = self.failure
        self.failure = lambda: before() or failure()

    def next_tag(self) -> int:
        """A fresh tag for a group."""
        return next(self._tags)

    def to_trainers(self, order: Order) -> None:
        for place in self.cluster.trainers:
            self.mailbox.send(place.rank, TO_TRAINER, order)

    def to_preprocessors(self, order: Order) -> None:
        for place in self.cluster.preprocessors:
            self.mailbox.send(place.rank, TO_PREPROCESSOR, order)

    def lost(self) -> frozenset[int]:
        """The ranks that are known to be lost."""
        return lost_ranks(self.mailbox.comm)

    def failure_or_loss(self) -> BaseException | None:
        """What ends the run while nothing is trained yet."""
        lost = self.lost()
        ranks = ", ".join(map(str, sorted(lost)))
        return RanksLost(f"lost before training began: rank {ranks}") if lost else self.failure()
