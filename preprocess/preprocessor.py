"""The preprocessor: makes its share of the slots of every open lane, one at a time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from preprocess.dataset import Dataset
from preprocess.errors import LaneError
from preprocess.itinerary import Itinerary
from preprocess.lane_writer import LaneWriter
from preprocess.ring import Ring
from preprocess.stream import LaneSpec

__all__ = ["Preprocessor", "PreprocessorStatistics", "throughput"]


@dataclass(frozen=True)
class PreprocessorStatistics:
    """What a preprocessor has done so far.

    Attributes:
        samples: samples made.
        seconds_busy: time spent making them.
        seconds_waited: time spent in `wait`.
        samples_of_lane: samples made, by lane.
    """

    samples: int
    seconds_busy: float
    seconds_waited: float
    samples_of_lane: Mapping[int, int]


class _OpenLane:
    """A lane that this preprocessor fills."""

    def __init__(self, spec: LaneSpec, dataset: Dataset, writer: LaneWriter) -> None:
        self.spec, self.dataset, self.writer = spec, dataset, writer

    def wants_work(self) -> bool:
        """Say whether a slot may be filled now."""
        end = self.spec.itinerary.end
        at_end = end is not None and self.writer.next_slot.start >= end
        return not at_end and self.writer.has_space()


class Preprocessor:
    """Preprocessor `index` of `count`: fills the slots index, index + count ... of the lanes that it is told to open.

    The caller drives it: `step` until it returns False, then `wait`, and its own messages in between.

    Args:
        ring: the ring of this process's node, made for `count` writers.
        index: this preprocessor's number.
        datasets: the opened data sets by name.
    """

    def __init__(self, ring: Ring, index: int, datasets: Mapping[str, Dataset]) -> None:
        if not 0 <= index < ring.shape.writers:
            raise ValueError(f"preprocessor {index}: this ring is for {ring.shape.writers} of them")
        self._ring, self._index, self._datasets = ring, index, datasets
        self._lanes: dict[int, _OpenLane] = {}
        self._next = 0  # place in the list of open lanes, for taking turns
        self._samples_of_lane: dict[int, int] = {}
        self._seconds_busy = self._seconds_waited = 0.0

    @property
    def statistics(self) -> PreprocessorStatistics:
        """What was done so far."""
        by_lane = dict(self._samples_of_lane)
        return PreprocessorStatistics(sum(by_lane.values()), self._seconds_busy, self._seconds_waited, by_lane)

    def open_lane(self, spec: LaneSpec, timeout: float = 60.0) -> None:
        """Begin to fill a lane; waits until the lane of this node is opened.

        Raises:
            LaneError: it is still open here, or it is for another data set than is known here.
            RingTimeout: nobody opened it.
        """
        if spec.lane in self._lanes:
            raise LaneError(f"preprocessor {self._index} still fills lane {spec.lane}; close it first")
        dataset = self._datasets.get(spec.stream.data)
        if dataset is None or dataset.layout != spec.layout:
            known = {name: str(known.layout) for name, known in self._datasets.items()}
            raise LaneError(f"lane {spec.lane} wants {spec.stream.data!r} as {spec.layout}; known here: {known}")
        writer = self._ring.lanes[spec.lane].writer(self._index, spec.layout, spec.generation, timeout)
        self._lanes[spec.lane] = _OpenLane(spec, dataset, writer)

    def close_lane(self, lane: int) -> None:
        """Fill a lane no more; nothing happens if it is not open."""
        found = self._lanes.pop(lane, None)
        if found is not None:
            found.writer.close()

    def step(self) -> bool:
        """Make at most one slot, of the next lane that has room, and say whether one was made.

        Raises:
            SampleError: the source or a transform raised; the slot stays unpublished.
        """
        lane = self._choose()
        if lane is None:
            return False
        start = time.monotonic()
        slot = lane.writer.next_slot
        spec = lane.spec
        made = sum(
            1 for _ in lane.dataset.fill(spec.itinerary, spec.stream.seed, slot.start, slot.inputs, slot.targets)
        )
        lane.writer.publish()
        self._seconds_busy += time.monotonic() - start
        self._samples_of_lane[lane.spec.lane] = self._samples_of_lane.get(lane.spec.lane, 0) + made
        return True

    def wait(self, timeout: float) -> bool:
        """Sleep until some lane may have room, for at most so many seconds; say whether a reader rang."""
        start = time.monotonic()
        bells = self._ring.control.bells
        rang = bells.wait(self._index, seconds=timeout)
        bells.drain(self._index)
        self._seconds_waited += time.monotonic() - start
        return rang

    def _choose(self) -> _OpenLane | None:
        """Take turns among the open lanes; the first one that has room."""
        lanes = list(self._lanes.values())
        for offset in range(len(lanes)):
            place = (self._next + offset) % len(lanes)
            if lanes[place].wants_work():
                self._next = place + 1
                return lanes[place]
        return None


def throughput(dataset: Dataset, seconds: float, seed: int = 0, samples: int = 64) -> float:
    """Measure how many training samples a second this process makes, into memory of its own.

    Args:
        dataset: the data set.
        seconds: how long to measure; at least one sample is made.
        seed: of the order and the transforms.
        samples: as many samples lie in the memory that is written.
    """
    inputs, targets = dataset.layout.empty(samples)
    itinerary = Itinerary(dataset.length)
    for _ in dataset.fill(itinerary, seed, 0, inputs[:1], targets[:1]):  # what only the first sample costs
        pass
    made = 0
    start = time.monotonic()
    while True:
        for _ in dataset.fill(itinerary, seed, made, inputs, targets):
            made += 1
            elapsed = time.monotonic() - start
            if elapsed >= seconds:
                return made / max(elapsed, 1e-9)
