"""Rank 0's orders to the other ranks, and what ends its waiting for their answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fleet.coordination.failures import RanksLost, lost_ranks
from fleet.coordination.mailbox import Mailbox
from fleet.coordination.protocol import TO_PREPROCESSOR, TO_TRAINER, Order
from fleet.machine.cluster_map import ClusterMap
from fleet.workers.agreement import BadInput

TAG_STEP = 2  # a group's tags are its own and the next
_FIRST_TAG = 1000
_LEAST_TAGS = 32767  # what every MPI has (MPI 4.1, 9.1.2)
_TAGS_A_CHANNEL = 3  # of a lane's samples from one preprocessor: inputs, targets, and that there are enough


class Broadcast:
    """What the coordinator says to all ranks of a role.

    Args:
        mailbox: the coordinator's.
        cluster: the cluster map.
        failure: what ended a thread of this rank; None as long as there is none.
    """

    def __init__(self, mailbox: Mailbox, cluster: ClusterMap, failure: Callable[[], BaseException | None]) -> None:
        self.mailbox, self.cluster, self.failure = mailbox, cluster, failure
        self._tags = self._fresh_tags()

    def also_fails(self, failure: Callable[[], BaseException | None]) -> None:
        """Let the failure of one thread more end the waiting."""
        before = self.failure
        self.failure = lambda: before() or failure()

    def next_tag(self) -> int:
        """A tag for a group, unlike those of all groups that may yet have messages under way.

        Once all have had their turn, the first comes again: a rank trains in one group at a time.
        """
        return next(self._tags)

    def _fresh_tags(self) -> Iterator[int]:
        last = largest_tag() - 2 * TAG_STEP  # moves take as many again
        while True:
            yield from range(_FIRST_TAG, last, TAG_STEP)

    def check_lanes(self, lanes: int) -> None:
        """See that messages can carry samples for so many lanes from each preprocessor.

        Raises:
            BadInput: they cannot.
        """
        makers, most = len(self.cluster.preprocessors), largest_tag()
        if len(self.cluster.nodes) > 1 and _TAGS_A_CHANNEL * lanes * makers > most:
            raise BadInput(
                f"{lanes:,} networks that read by themselves and {makers:,} preprocessors need "
                f"{_TAGS_A_CHANNEL * lanes * makers:,} tags of messages between nodes, and this MPI has "
                f"{most:,}; start at most {most // (_TAGS_A_CHANNEL * lanes):,} preprocessors, or "
                "run the networks in several runs"
            )

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


def largest_tag() -> int:
    """The largest tag that messages of this MPI may have; MPI.COMM_WORLD alone has to tell it."""
    from mpi4py import MPI

    return int(MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or _LEAST_TAGS)
