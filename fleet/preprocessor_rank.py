"""A preprocessor rank's life, and that of the keeper of a node's ring: open lanes, fill slots, answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fleet.protocol import (
    TO_COORDINATOR,
    CloseLane,
    FillLane,
    LaneState,
    Mailbox,
    MakeRing,
    MeasureThroughput,
    Message,
    OpenLane,
    Shutdown,
    Throughput,
)
from preprocess import Dataset, LaneSpec, Preprocessor, Ring, throughput

NAP_SECONDS = 0.005  # between looks at the mailbox while nothing can be made
IDLE_SECONDS = 0.2


@dataclass
class Keeper:
    """Opens the lanes of one node's ring; the node's lowest rank is it.

    Args:
        ring: the node's.
        node: the node's index among all.
    """

    ring: Ring
    node: int
    timeout: float

    def open(self, spec: LaneSpec) -> None:
        """Open the lane for its readers on this node; waits until its last users have gone."""
        lane = self.ring.lanes[spec.lane]
        lane.open(spec.layout, spec.readers[self.node], spec.generation, samples=spec.samples, timeout=self.timeout)


@dataclass
class PreprocessorRank:
    """Serves the coordinator's orders about lanes and makes samples in between.

    On a node without preprocessors its lowest rank runs this in a thread, as the ring's keeper alone.

    Args:
        rank: this rank.
        mailbox: of the preprocessor's role.
        make_ring: makes the ring, with this rank's parts: keeper, None if another rank keeps this node's ring;
            preprocessor, None if this rank makes no samples.
        datasets: the opened data sets.
    """

    rank: int
    mailbox: Mailbox
    make_ring: Callable[[MakeRing], tuple[Keeper | None, Preprocessor | None]]
    datasets: Mapping[str, Dataset]
    report_signal: Callable[[], None] = lambda: None
    keeper: Keeper | None = None
    preprocessor: Preprocessor | None = None

    def enter(self, order: MakeRing) -> None:
        """Take part in the making of the node's ring."""
        self.keeper, self.preprocessor = self.make_ring(order)

    def run(self) -> int:
        """Serve until told to shut down; returns the exit code."""
        while True:
            message = self.mailbox.poll()
            if isinstance(message, Shutdown):
                return message.code
            if message is not None:
                self._obey(message)
            elif not self._make():
                self.report_signal()

    def _make(self) -> bool:
        """Make a slot if one can be made; else sleep a little."""
        if self.preprocessor is None:
            message = self.mailbox.receive(IDLE_SECONDS)
            if message is not None:
                self._obey(message)
            return False
        if self.preprocessor.step():
            return True
        self.preprocessor.wait(NAP_SECONDS)
        return False

    def _obey(self, message: Message) -> None:
        if isinstance(message, MakeRing):
            self.enter(message)
        elif isinstance(message, OpenLane):
            assert self.keeper is not None
            self.keeper.open(message.lane)
            self._tell(LaneState(self.rank, message.lane.lane, "open"))
        elif isinstance(message, FillLane):
            if self.preprocessor is not None:
                self.preprocessor.open_lane(message.lane)
        elif isinstance(message, CloseLane):
            if self.preprocessor is not None:
                self.preprocessor.close_lane(message.lane)
            self._tell(LaneState(self.rank, message.lane, "closed"))
        elif isinstance(message, MeasureThroughput):
            self._tell(Throughput(self.rank, throughput(self.datasets[message.data], message.seconds)))

    def _tell(self, message: Message) -> None:
        self.mailbox.send(0, TO_COORDINATOR, message)
