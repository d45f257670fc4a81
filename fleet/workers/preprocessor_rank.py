"""A preprocessor rank's life: fill the lanes that it is told of, answer in between."""

from __future__ import annotations

from collections.abc import Callable

from fleet.coordination.protocol import (
    TO_COORDINATOR,
    TO_PREPROCESSOR,
    CloseLane,
    MakeRing,
    MeasureThroughput,
    Message,
    OpenLane,
    ReplaceWriter,
    SampleRate,
    Shutdown,
    SkipSamples,
    StreamAwaited,
)
from fleet.workers.kept_samples import kept_part
from fleet.workers.rank import Rank
from fleet.workers.sample_maker import SampleMaker, skip, tell_of_skips, tell_of_torn
from preprocess import CorruptLimitError, SampleError, made_rates
from preprocess.ring.process import use_one_thread

_IDLE_SECONDS = 0.2


class PreprocessorRank:
    """Serves the coordinator's orders and makes samples in between.

    Args:
        rank: this rank.
        moves: called now and then: this rank is not stuck.
    """

    def __init__(self, rank: Rank, moves: Callable[[], None] = lambda: None) -> None:
        self._rank, self._moves = rank, moves
        self._mailbox = rank.mailbox(TO_PREPROCESSOR)
        self._number = [place.rank for place in rank.cluster.preprocessors].index(rank.number)  # among all
        self._maker: SampleMaker | None = None  # once there is a ring: this one, and lost ones that it is now
        tell_of_skips(rank, self._mailbox)

    def run(self) -> int:
        """Serve until told to shut down; returns the exit code."""
        use_one_thread()
        while True:
            self._moves()
            busy = self._maker is not None and self._maker.is_busy
            message = self._mailbox.receive(0.0 if busy else _IDLE_SECONDS)
            if isinstance(message, Shutdown):
                return message.code
            if message is not None:
                self._obey(message)
            elif self._maker is not None and busy:
                self._maker.work()
            self._rank.report_signal()

    def _obey(self, message: Message) -> None:
        if isinstance(message, SkipSamples):
            skip(self._rank, message)
        elif isinstance(message, MakeRing):
            self._maker = SampleMaker(self._rank, self._mailbox, self._rank.make_ring(message), message)
            self._maker.become(self._number)
        elif isinstance(message, MeasureThroughput):
            self._measure(message)
        elif self._maker is not None:  # what follows comes once there is a ring
            self._fill(self._maker, message)

    def _fill(self, maker: SampleMaker, message: Message) -> None:
        if isinstance(message, ReplaceWriter):
            maker.become(message.writer)
        elif isinstance(message, OpenLane):
            maker.open_lane(message.lane)
        elif isinstance(message, CloseLane):
            maker.close_lane(message.lane)
        elif isinstance(message, StreamAwaited):
            maker.keep_awaited(message)

    def _measure(self, order: MeasureThroughput) -> None:
        kept = kept_part(self._rank, order.data)
        try:
            made = made_rates(self._rank.datasets[order.data], order.seconds, kept=kept)
        except CorruptLimitError:
            return  # the coordinator has heard of as many samples, and ends the session
        except SampleError as error:
            tell_of_torn(self._rank, self._mailbox, error)
            return
        self._mailbox.send(0, TO_COORDINATOR, SampleRate(self._rank.number, made.later, made.first))
