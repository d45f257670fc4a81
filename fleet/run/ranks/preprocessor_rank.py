"""A preprocessor rank's life: fill the lanes that it is told of, answer in between."""

from __future__ import annotations

from collections import Counter
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
    SampleSkipped,
    SamplesMade,
    Shutdown,
    SkipSamples,
)
from fleet.run.ranks.kept_samples import kept_part, stores_of
from fleet.run.ranks.rank import Rank
from preprocess import HELD_OUT, TRAIN, CorruptLimitError, Preprocessor, SkippedSample, made_rates
from preprocess.ring.process import use_one_thread

_NAP_SECONDS = 0.005  # between looks for room in the lanes of several makers
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
        self._making: list[Preprocessor] = []  # its own, if needed, and lost ones' that it is now
        self._made: Callable[[int], Preprocessor] | None = None  # by number, once there is a ring
        for dataset in rank.datasets.values():
            dataset.report_skips(self._tell_of)

    def run(self) -> int:
        """Serve until told to shut down; returns the exit code."""
        use_one_thread()
        while True:
            self._moves()
            busy = [each for each in self._making if not each.rests]
            message = self._mailbox.receive(0.0 if busy else _IDLE_SECONDS)
            if isinstance(message, Shutdown):
                return message.code
            try:
                if message is not None:
                    self._obey(message)
                elif busy and not self._step(busy):
                    busy[0].wait(self._mailbox.pause if len(busy) == 1 else _NAP_SECONDS)
            except CorruptLimitError:
                self._making = []  # the coordinator has heard of as many samples, and ends the run
            self._rank.report_signal()

    def _make_ring(self, order: MakeRing) -> Callable[[int], Preprocessor]:
        """Make the node's ring, with its other ranks; returns what makes the preprocessor of a number."""
        ring, nodes, patience = self._rank.make_ring(order), self._rank.nodes(order), self._rank.runtime.timeout
        datasets, slots = self._rank.datasets, self._rank.ties.slots
        return lambda number: Preprocessor(
            ring, number, datasets, nodes, slots, patience, stores_of(self._rank, ring, number)
        )

    def _step(self, busy: list[Preprocessor]) -> bool:
        """Let each make a slot, where there is room; whether one was made."""
        made = [each.step() for each in busy]
        return any(made)

    def _tell_of(self, sample: SkippedSample) -> None:
        self._mailbox.send(0, TO_COORDINATOR, SampleSkipped(self._rank.number, sample))

    def _tell_made(self) -> None:
        laid, made = Counter[str](), Counter[str]()
        for each in self._making:
            statistics = each.statistics
            laid.update(statistics.samples_of_data)
            made.update(statistics.prepared)
        self._mailbox.send(0, TO_COORDINATOR, SamplesMade(self._rank.number, dict(laid), dict(made)))

    def _obey(self, message: Message) -> None:
        if isinstance(message, SkipSamples):
            self._rank.datasets[message.data].skip_always(TRAIN, message.train)
            self._rank.datasets[message.data].skip_always(HELD_OUT, message.held_out)
        elif isinstance(message, MakeRing):
            self._made = self._make_ring(message)
            self._making = [self._made(self._number)]
        elif isinstance(message, ReplaceWriter):
            assert self._made is not None, "writers are lost once there is a ring"
            self._making.append(self._made(message.writer))
        elif isinstance(message, MeasureThroughput):
            kept = kept_part(self._rank, message.data)
            made = made_rates(self._rank.datasets[message.data], message.seconds, kept=kept)
            self._mailbox.send(0, TO_COORDINATOR, SampleRate(self._rank.number, made.later, made.first))
        elif isinstance(message, OpenLane):
            for each in self._making:
                if message.lane.is_made_by(each.index):
                    each.open_lane(message.lane)
        elif isinstance(message, CloseLane):
            for each in self._making:
                each.close_lane(message.lane)
            self._tell_made()
