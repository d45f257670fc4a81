"""A preprocessor rank's life: fill the lanes that it is told of, answer in between."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fleet.coordination.protocol import (
    TO_COORDINATOR,
    CloseLane,
    Mailbox,
    MakeRing,
    MeasureThroughput,
    Message,
    OpenLane,
    ReplaceWriter,
    SampleSkipped,
    Shutdown,
    SkipSamples,
    Throughput,
)
from preprocess import HELD_OUT, TRAIN, CorruptLimitError, Dataset, Preprocessor, SkippedSample, throughput
from preprocess.ring.process import use_one_thread

NAP_SECONDS = 0.005  # between looks at the mailbox while nothing can be made
IDLE_SECONDS = 0.2


@dataclass
class PreprocessorRank:
    """Serves the coordinator's orders and makes samples in between.

    Args:
        rank: this rank.
        mailbox: of the preprocessor's role.
        number: of this preprocessor among all.
        make_ring: makes the node's ring, with its other ranks; gives what makes the preprocessor of a number.
        datasets: the opened data sets.
        report_signal: tells the coordinator if this rank got a signal.
        moves: called now and then: this rank is not stuck.
    """

    rank: int
    mailbox: Mailbox
    number: int
    make_ring: Callable[[MakeRing], Callable[[int], Preprocessor]]
    datasets: Mapping[str, Dataset]
    report_signal: Callable[[], None] = lambda: None
    moves: Callable[[], None] = lambda: None
    preprocessors: list[Preprocessor] = field(default_factory=list)  # its own, if needed, and lost ones' that it is now
    _made: Callable[[int], Preprocessor] | None = None

    def __post_init__(self) -> None:
        for dataset in self.datasets.values():
            dataset.report_skips(self._tell_of)

    def run(self) -> int:
        """Serve until told to shut down; returns the exit code."""
        use_one_thread()
        while True:
            self.moves()
            message = self.mailbox.receive(0.0 if self.preprocessors else IDLE_SECONDS)
            if isinstance(message, Shutdown):
                return message.code
            try:
                if message is not None:
                    self._obey(message)
                elif self.preprocessors and not self._step():
                    self.preprocessors[0].wait(NAP_SECONDS)
            except CorruptLimitError:
                self.preprocessors = []  # the coordinator has heard of as many samples, and ends the run
            self.report_signal()

    def _step(self) -> bool:
        """Let each make a slot, where there is room; whether one was made."""
        made = [each.step() for each in self.preprocessors]
        return any(made)

    def _tell_of(self, sample: SkippedSample) -> None:
        self.mailbox.send(0, TO_COORDINATOR, SampleSkipped(self.rank, sample))

    def _obey(self, message: Message) -> None:
        if isinstance(message, SkipSamples):
            self.datasets[message.data].skip_always(TRAIN, message.train)
            self.datasets[message.data].skip_always(HELD_OUT, message.held_out)
        elif isinstance(message, MakeRing):
            self._made = self.make_ring(message)
            self.preprocessors = [self._made(self.number)] if self.number < message.writers else []
        elif isinstance(message, ReplaceWriter):
            assert self._made is not None, "writers are lost once there is a ring"
            self.preprocessors.append(self._made(message.writer))
        elif isinstance(message, MeasureThroughput):
            made = throughput(self.datasets[message.data], message.seconds)
            self.mailbox.send(0, TO_COORDINATOR, Throughput(self.rank, made))
        elif isinstance(message, OpenLane):
            for each in self.preprocessors:
                each.open_lane(message.lane)
        elif isinstance(message, CloseLane):
            for each in self.preprocessors:
                each.close_lane(message.lane)
