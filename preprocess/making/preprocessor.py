"""The preprocessor: makes its share of the slots of every open lane, one at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from preprocess.making.back_off import BackOff
from preprocess.making.broadcast import RemoteNode
from preprocess.making.dataset import Dataset
from preprocess.making.filled_lane import FilledLane, LaneContents
from preprocess.making.gathering import Gathering
from preprocess.making.maker_portion import MakerPortion
from preprocess.making.nodes import NodeMap
from preprocess.making.traffic import Traffic, TrafficCounter
from preprocess.ring.ragged_lane import PackedBytes
from preprocess.ring.ring import Ring
from preprocess.samples.errors import LaneError
from preprocess.samples.owners import LanePortions
from preprocess.samples.stream import LaneSpec
from preprocess.store.finished_samples import FinishedSamples
from preprocess.store.sample_store import SampleStore, StoreStatistics

if TYPE_CHECKING:
    from mpi4py import MPI


_MOST_ASLEEP = 0.02
"""Seconds that it waits for room before a caller who is woken otherwise may look for what else there is."""


@dataclass(frozen=True)
class PreprocessorStatistics:
    """What a preprocessor has done so far.

    Attributes:
        samples: samples laid into lanes.
        samples_of_lane: these by lane.
        sent: slots that were sent to other nodes, by (lane, node).
        stores: what the stores have done, by data set.
        samples_of_data: samples laid into lanes, by data set.
        packed: bytes that ragged samples took in this node's ring, and padding among them, by data set.
        copied: finished samples that were kept, and copied instead of made, by data set.
    """

    samples: int
    samples_of_lane: Mapping[int, int]
    sent: Mapping[tuple[int, int], Traffic] = field(default_factory=dict)
    stores: Mapping[str, StoreStatistics] = field(default_factory=dict)
    samples_of_data: Mapping[str, int] = field(default_factory=dict)
    packed: Mapping[str, PackedBytes] = field(default_factory=dict)
    copied: Mapping[str, int] = field(default_factory=dict)

    @property
    def prepared(self) -> dict[str, int]:
        """Samples that were read and prepared, by data set; all that no store had, neither prepared nor finished."""
        made = {name: count - self.copied.get(name, 0) for name, count in self.samples_of_data.items()}
        return {**made, **{name: store.prepared for name, store in self.stores.items()}}


class Preprocessor:
    """Preprocessor `index` of a ring: fills its part of the slots of the lanes that it is told to open.

    The caller drives it: `step` until it returns False, then `wait`, and its own messages in between. Opening and
    closing never block: they are finished by later steps, in the order in which they were asked for.

    Args:
        ring: the ring of this process's node.
        index: this preprocessor's number.
        datasets: the opened data sets by name.
        nodes: where the preprocessors and receivers are; None if all is on one node.
        comm: communicator for slots and nothing else; None if all is on one node.
        patience: seconds that a lane may take to be opened on this node.
        stores: by data set, what keeps prepared samples, for lanes whose makers fill slots together.
        finished: keeps finished samples; None: none are.
    """

    def __init__(
        self,
        ring: Ring,
        index: int,
        datasets: Mapping[str, Dataset],
        nodes: NodeMap | None = None,
        comm: MPI.Comm | None = None,
        patience: float = 60.0,
        stores: Mapping[str, SampleStore] | None = None,
        finished: FinishedSamples | None = None,
    ) -> None:
        if not 0 <= index < ring.shape.writers:
            raise ValueError(f"preprocessor {index}: this ring is for {ring.shape.writers} of them")
        self._ring, self._index, self._datasets = ring, index, datasets
        self._nodes, self._comm, self._patience = nodes, comm, patience
        self._stores, self._finished = dict(stores or {}), finished
        self._lanes: dict[int, list[FilledLane]] = {}
        self._next = 0  # whose turn it is among the open lanes
        self._samples_of_lane: dict[int, int] = {}
        self._samples_of_data: dict[str, int] = {}
        self._packed: dict[str, PackedBytes] = {}
        self._sent = TrafficCounter()
        self._back_off, self._gathering = BackOff(), Gathering()

    @property
    def statistics(self) -> PreprocessorStatistics:
        """The work so far."""
        by_lane = dict(self._samples_of_lane)
        stores = {name: store.statistics for name, store in self._stores.items()}
        by_data, packed = dict(self._samples_of_data), dict(self._packed)
        copied = dict(self._finished.copied) if self._finished is not None else {}
        return PreprocessorStatistics(
            sum(by_lane.values()), by_lane, self._sent.totals, stores, by_data, packed, copied
        )

    def open_lane(self, spec: LaneSpec) -> None:
        """Fill a lane, as soon as it is opened on this node and its last filling is over.

        Raises:
            LaneError: it is open and was not told to close, carries a data set that is not known here, or is for other
                preprocessors to fill.
        """
        if not spec.is_made_by(self._index):
            raise LaneError(f"preprocessor {self._index} has no part in lane {spec.lane}: {spec.makers} fill it")
        waiting = self._lanes.get(spec.lane, [])
        if waiting and not waiting[-1].closing:
            raise LaneError(f"preprocessor {self._index} still fills lane {spec.lane}; close it first")
        dataset = self._datasets.get(spec.stream.data)
        if dataset is None or dataset.layout != spec.layout:
            known = {name: str(known.layout) for name, known in self._datasets.items()}
            raise LaneError(f"lane {spec.lane} wants {spec.stream.data!r} as {spec.layout}; known here: {known}")
        portions, store = self._portions(spec, dataset), self._stores.get(dataset.name)
        portion = None if portions is None else MakerPortion(portions, self._index)
        next_node = partial(self._next_node, portion=portion)
        finished = self._finished if dataset.keeps_finished else None
        filling = LaneContents(spec, dataset, portions, store if spec.divided else None, finished)
        filled = FilledLane(self._ring, self._index, filling, next_node, self._patience)
        self._lanes[spec.lane] = [*waiting, filled]

    def close_lane(self, lane: int) -> None:
        """Fill a lane no more; nothing happens if it is not open. `is_closed` tells when that is done everywhere."""
        for filled in self._lanes.get(lane, []):
            filled.closing = True
        self._progress()

    def keep_awaited(self, data: str, seed: int, waiting: int | None, reading: Mapping[int, int]) -> None:
        """Keep finished samples of a stream that are read again, and no others; see `FinishedSamples.keep_awaited`."""
        if self._finished is not None:
            self._finished.keep_awaited(data, seed, waiting, reading)

    def keep_nothing(self) -> None:
        """Drop all finished samples."""
        if self._finished is not None:
            self._finished.clear()

    @property
    def index(self) -> int:
        """The number of this preprocessor."""
        return self._index

    @property
    def rests(self) -> bool:
        """Whether it has no lane to fill, and nothing of one is under way."""
        return not self._lanes

    def is_closed(self, lane: int) -> bool:
        """Say whether the lane is filled no more and nothing of it is under way to another node."""
        return lane not in self._lanes

    def is_deserted(self, lane: int) -> bool:
        """Say whether the lane is open here and nobody reads it any more, on any node; it still wants to be closed."""
        return lane in self._lanes and self._lanes[lane][-1].is_deserted

    def step(self) -> bool:
        """Make at most one slot, of the next lane that has room, or copy some, and say whether one was made.

        Raises:
            SampleError: the source or a transform raised. The slot stays unpublished: each step that comes to this
                lane tries again, until it is closed.
            RingTimeout: a lane was not opened on this node in time.
        """
        self._progress()
        filled = self._choose()
        if filled is None:
            return False
        made = filled.make_slots()
        self._back_off.reset()
        lane, data = filled.spec.lane, filled.spec.stream.data
        self._gathering.filled(lane, made.slots)
        self._samples_of_lane[lane] = self._samples_of_lane.get(lane, 0) + made.samples
        self._samples_of_data[data] = self._samples_of_data.get(data, 0) + made.samples
        if filled.spec.layout.is_ragged:
            self._packed[data] = self._packed.get(data, PackedBytes()) + filled.packed
        return True

    def wait(self, timeout: float, rest: Callable[[float], object] | None = None) -> None:
        """Sleep until a lane may have room, or until some has gathered, for at most so many seconds; only shortly while
        MPI has work to do.

        Args:
            rest: sleeps while room gathers, for so many seconds or until the caller has something to do; None: nothing
                can come meanwhile.
        """
        lanes = [filled for waiting in self._lanes.values() for filled in waiting]
        if any(filled.needs_attention for filled in lanes):
            timeout = min(timeout, self._back_off.next())
        elif pause := self._gathering.next({filled.spec.lane: filled.slots for filled in lanes}):
            (rest or time.sleep)(min(pause, timeout))
            return
        self._ring.control.bells.wait(self._index, seconds=timeout if rest is None else min(timeout, _MOST_ASLEEP))
        self._ring.control.bells.drain(self._index)

    def _progress(self) -> None:
        for lane, waiting in list(self._lanes.items()):
            waiting[0].progress()
            if waiting[0].is_over:
                waiting.pop(0)
                self._back_off.reset()
            if not waiting:
                del self._lanes[lane]

    def _choose(self) -> FilledLane | None:
        """Take turns among the open lanes; the first one that has room."""
        lanes = [waiting[0] for waiting in self._lanes.values()]
        for offset in range(len(lanes)):
            place = (self._next + offset) % len(lanes)
            if lanes[place].has_room():
                self._next = place + 1
                return lanes[place]
        return None

    def _portions(self, spec: LaneSpec, dataset: Dataset) -> LanePortions | None:
        """Whose the samples of its slots are, where makers fill them together."""
        shape = self._ring.shape
        return LanePortions(spec, shape.slot_samples, shape.writers, dataset.orders) if spec.divided else None

    def _next_node(self, spec: LaneSpec, portion: MakerPortion | None) -> RemoteNode | None:
        if self._nodes is None or self._comm is None:
            return None
        nodes, index = self._nodes, self._index
        node = nodes.next_node(index, nodes.maker_nodes[index], spec)
        if node is None:
            return None
        channel = nodes.channel(index, spec.lane)
        on_sent = partial(self._sent.count, spec.lane, node)
        return RemoteNode(self._comm, node, nodes.receivers[node], channel, on_sent, portion)
