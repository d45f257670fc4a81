"""A preprocessor rank's life: fill the lanes that it is told of, answer in between."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fleet.protocol import (
    TO_COORDINATOR,
    CloseLane,
    Mailbox,
    MakeRing,
    MeasureThroughput,
    Message,
    OpenLane,
    SampleSkipped,
    Shutdown,
    SkipSamples,
    Throughput,
)
from preprocess import HELD_OUT, TRAIN, CorruptLimitError, Dataset, Preprocessor, SkippedSample, throughput
from preprocess.process import use_one_thread

NAP_SECONDS = 0.005  # between looks at the mailbox while nothing can be made
IDLE_SECONDS = 0.2


@dataclass
class PreprocessorRank:
    """Serves the coordinator's orders and makes samples in between.

    Args:
        rank: this rank.
        mailbox: of the preprocessor's role.
        make_ring: makes the node's ring, with its other ranks; gives this rank's preprocessor, None if it is not
        needed.
        datasets: the opened data sets.
        report_signal: tells the coordinator if this rank got a signal.
        moves: called now and then: this rank is not stuck.
    """

    rank: int
    mailbox: Mailbox
    make_ring: Callable[[MakeRing], Preprocessor | None]
    datasets: Mapping[str, Dataset]
    report_signal: Callable[[], None] = lambda: None
    moves: Callable[[], None] = lambda: None
    preprocessor: Preprocessor | None = None

    def __post_init__(self) -> None:
        for dataset in self.datasets.values():
            dataset.report_skips(self._tell_of)

    def run(self) -> int:
        """Serve until told to shut down; returns the exit code."""
        use_one_thread()
        while True:
            self.moves()
            message = self.mailbox.receive(IDLE_SECONDS if self.preprocessor is None else 0.0)
            if isinstance(message, Shutdown):
                return message.code
            try:
                if message is not None:
                    self._obey(message)
                elif self.preprocessor is not None and not self.preprocessor.step():
                    self.preprocessor.wait(NAP_SECONDS)
            except CorruptLimitError:
                self.preprocessor = None  # the coordinator has heard of as many samples, and ends the run
            self.report_signal()

    def _tell_of(self, sample: SkippedSample) -> None:
        self.mailbox.send(0, TO_COORDINATOR, SampleSkipped(self.rank, sample))

    def _obey(self, message: Message) -> None:
        if isinstance(message, SkipSamples):
            self.datasets[message.data].skip_always(TRAIN, message.train)
            self.datasets[message.data].skip_always(HELD_OUT, message.held_out)
        elif isinstance(message, MakeRing):
            self.preprocessor = self.make_ring(message)
        elif isinstance(message, MeasureThroughput):
            made = throughput(self.datasets[message.data], message.seconds)
            self.mailbox.send(0, TO_COORDINATOR, Throughput(self.rank, made))
        elif self.preprocessor is not None and isinstance(message, OpenLane):
            self.preprocessor.open_lane(message.lane)
        elif self.preprocessor is not None and isinstance(message, CloseLane):
            self.preprocessor.close_lane(message.lane)
