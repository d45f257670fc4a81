"""The preprocessors that a rank is: they fill the lanes that they are told of, slot by slot."""

from __future__ import annotations

import time
from collections import Counter

from fleet.coordination.mailbox import Mailbox
from fleet.coordination.protocol import (
    TO_COORDINATOR,
    MakeRing,
    SampleSkipped,
    SamplesMade,
    SampleTorn,
    SkipSamples,
    StreamAwaited,
)
from fleet.workers.kept_samples import kept_of
from fleet.workers.rank import Rank
from fleet.workers.torn_samples import lines_of, sentence_of
from preprocess import HELD_OUT, TRAIN, CorruptLimitError, LaneSpec, Preprocessor, Ring, SampleError, SkippedSample

_WORK_SECONDS = 0.005  # between looks for messages, each of which lets busy ranks of the host go first
_NAP_SECONDS = 0.005  # between looks for room in the lanes of several makers


class SampleMaker:
    """Makes samples between two messages, as one preprocessor or as several.

    Args:
        rank: this rank, whose data sets are open.
        mailbox: of the thread that makes them.
        ring: the node's.
        order: by which that was made.
    """

    def __init__(self, rank: Rank, mailbox: Mailbox, ring: Ring, order: MakeRing) -> None:
        self._rank, self._mailbox, self._ring, self._nodes = rank, mailbox, ring, rank.nodes(order)
        self._making: list[Preprocessor] = []

    @property
    def is_busy(self) -> bool:
        """Whether a lane is to be filled, or something of one is under way."""
        return any(not each.rests for each in self._making)

    def become(self, number: int) -> Preprocessor:
        """Be the preprocessor of that number, too, for good: what it has made counts as long as the run goes on."""
        known = next((each for each in self._making if each.index == number), None)
        if known is None:
            kept = kept_of(self._rank, self._ring, number)
            patience, slots = self._rank.runtime.timeout, self._rank.ties.slots
            known = Preprocessor(
                self._ring, number, self._rank.datasets, self._nodes, slots, patience, kept.stores, kept.finished
            )
            self._making.append(known)
        return known

    def open_lane(self, lane: LaneSpec) -> None:
        """Fill the lane as all those of its makers that this rank is."""
        for each in self._making:
            if lane.is_made_by(each.index):
                each.open_lane(lane)

    def close_lane(self, lane: int) -> None:
        """Fill the lane no more, and tell what was made so far."""
        for each in self._making:
            each.close_lane(lane)
        laid, made = Counter[str](), Counter[str]()
        for each in self._making:
            statistics = each.statistics
            laid.update(statistics.samples_of_data)
            made.update(statistics.prepared)
        self._mailbox.send(0, TO_COORDINATOR, SamplesMade(self._rank.number, dict(laid), dict(made)))

    def keep_awaited(self, news: StreamAwaited) -> None:
        """Keep finished samples of a stream that are read again, and no others."""
        for each in self._making:
            each.keep_awaited(news.data, news.seed, news.waiting, news.reading)

    def keep_nothing(self) -> None:
        """Drop all finished samples."""
        for each in self._making:
            each.keep_nothing()

    def work(self) -> None:
        """Let each make slots where there is room, for some milliseconds; where nobody can, sleep until somebody may.

        Raises:
            RingTimeout: see `Preprocessor.step`.
        """
        end = time.monotonic() + _WORK_SECONDS
        while busy := [each for each in self._making if not each.rests]:
            try:
                made = [each.step() for each in busy]
            except CorruptLimitError:
                self.give_up()
                return
            except SampleError as error:
                tell_of_torn(self._rank, self._mailbox, error)
                self.give_up()
                return
            if not any(made):
                busy[0].wait(self._mailbox.pause if len(busy) == 1 else _NAP_SECONDS, self._mailbox.rest)
                return
            if time.monotonic() > end:
                return

    def give_up(self) -> None:
        """Make no more: samples are corrupt, of which the coordinator has heard, and ends the session."""
        self._making = []


def tell_of_torn(rank: Rank, mailbox: Mailbox, error: SampleError) -> None:
    """Let the coordinator hear of a sample that cannot be made."""
    mailbox.send(0, TO_COORDINATOR, SampleTorn(rank.number, error.data, sentence_of(error), lines_of(error)))


def tell_of_skips(rank: Rank, mailbox: Mailbox) -> None:
    """Let the coordinator hear of each sample that this rank's data sets skip."""

    def tell(sample: SkippedSample) -> None:
        mailbox.send(0, TO_COORDINATOR, SampleSkipped(rank.number, sample))

    for dataset in rank.datasets.values():
        dataset.report_skips(tell)


def skip(rank: Rank, order: SkipSamples) -> None:
    """Take samples as corrupt, as an earlier session found them."""
    rank.datasets[order.data].skip_always(TRAIN, order.train)
    rank.datasets[order.data].skip_always(HELD_OUT, order.held_out)
