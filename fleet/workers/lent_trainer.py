"""A trainer that has no network, and prepares samples for others until it gets one."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from fleet.coordination.errors import CannotGoOnError
from fleet.coordination.mailbox import Mailbox
from fleet.coordination.protocol import CloseLane, MakeRing, PrepareLane, SkipSamples
from fleet.workers.like_preprocessors import like_preprocessors
from fleet.workers.rank import Rank
from fleet.workers.time_limit import time_limit
from preprocess import Ring

if TYPE_CHECKING:
    from fleet.workers.sample_maker import SampleMaker


class LentTrainer:
    """The preprocessor that a trainer is meanwhile. It opens its data sets, and loads what makes samples, at first use.

    Args:
        rank: this rank.
        mailbox: the trainer's.
        moves: called now and then: this rank is not stuck.

    Attributes:
        skips: what earlier sessions found corrupt.
    """

    def __init__(self, rank: Rank, mailbox: Mailbox, moves: Callable[[], None]) -> None:
        self._rank, self._mailbox, self._moves = rank, mailbox, moves
        self._ring: tuple[Ring, MakeRing] | None = None
        self.skips: list[SkipSamples] = []
        self._maker: SampleMaker | None = None  # from the first lane on
        self._role: ExitStack | None = None  # while it computes as preprocessors do

    def learn(self, ring: Ring, order: MakeRing) -> None:
        """Know the node's ring."""
        self._ring = ring, order

    def obey(self, order: SkipSamples | PrepareLane | CloseLane) -> None:
        """Carry out an order of those that preprocessors get."""
        if isinstance(order, SkipSamples):
            self.skips.append(order)
        elif isinstance(order, PrepareLane):
            self._begin(order)
        elif self._maker is not None:
            self._maker.close_lane(order.lane)
            self._end_if_over()

    @property
    def is_busy(self) -> bool:
        """Whether it has lanes to fill, or to close."""
        return self._maker is not None and self._maker.is_busy

    def work(self) -> None:
        """Make a slot, or wait shortly for room for one."""
        assert self._maker is not None
        self._maker.work()
        self._end_if_over()

    def give_back(self) -> None:
        """See that nothing is left of the lanes that it was told to close, nor of what it has kept, before it trains.

        Raises:
            CannotGoOnError: that took too long.
        """
        timeout = self._rank.runtime.timeout
        deadline = time.monotonic() + timeout
        while self.is_busy:
            self._moves()
            self.work()
            if time.monotonic() > deadline:
                raise CannotGoOnError(
                    f"rank {self._rank.number} waited {timeout:g} s for rank 0 to open and close the lanes that this "
                    "trainer has prepared samples for"
                )
        if self._maker is not None:
            self._maker.keep_nothing()  # the memory is the network's now

    def _begin(self, order: PrepareLane) -> None:
        if self._maker is None:
            assert self._ring is not None, "lanes are opened after rings are made"
            from fleet.workers.sample_maker import SampleMaker

            self._open_data()
            self._maker = SampleMaker(self._rank, self._mailbox, *self._ring)
        self._be_like_preprocessors()
        self._maker.become(order.writer).open_lane(order.lane)  # its earlier numbers may be others' by now

    def _open_data(self) -> None:
        from fleet.workers.datasets import open_datasets
        from fleet.workers.same_samples import hold_alike
        from fleet.workers.sample_maker import skip, tell_of_skips

        rank, seconds = self._rank, self._rank.runtime.timeout
        late = (
            f"rank {rank.number} has been opening the data for {seconds:g} s to prepare samples, a source has not come "
            f"back; if that really takes so long, raise resources.timeout (now {seconds:g} s)"
        )
        with time_limit(rank.world, seconds, late):
            rank.datasets = open_datasets(rank.runtime.spec)
            hold_alike(rank.runtime, rank.datasets, rank.number)
        tell_of_skips(rank, self._mailbox)
        for order in self.skips:
            skip(rank, order)

    def _be_like_preprocessors(self) -> None:
        """Samples shall have the bits that preprocessors give them, also where transforms compute with torch."""
        if self._role is None:
            self._role = ExitStack()
            self._role.enter_context(like_preprocessors())

    def _end_if_over(self) -> None:
        """Once nothing is left to do, let torch compute as training had it, on which that has its bits."""
        if self._role is not None and not self.is_busy:
            self._role.close()
            self._role = None
