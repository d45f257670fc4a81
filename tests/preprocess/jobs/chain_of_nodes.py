"""Four pretended nodes of one rank each, whose only preprocessor works on node 0: what single links of the chain do.

Argument: bytes of a sample's input.

One scenario after the other, those that SCENARIOS names. Each asserts what it is about; rank 0 says so when all
ranks are through with it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

from benchmarks.closing import close_all
from preprocess import Dataset, DatasetSpec, SourceSpec
from preprocess.making.broadcast import NodeMap, SlotReceiver, Traffic
from preprocess.making.preprocessor import Preprocessor
from preprocess.ring.lane_memory import lane_bytes
from preprocess.ring.ring import LaneReader, Ring
from preprocess.samples.stream import LaneSchedule, LaneSpec, StreamKey

SLOT, RING_SLOTS, SLOTS = 4, 4, 60
SAMPLES = SLOT * SLOTS
PATIENCE = 50.0
NODES = 4
INPUT_BYTES = int(sys.argv[1])


class Rows:
    """A map-style data set: each sample is told from all others."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return np.full((1, self._size, 1), index, np.uint8), index


class Rank:
    """One node: its ring, its receiver in a thread, its reader, and on node 0 the preprocessor in another thread."""

    def __init__(self, readers: tuple[bool, ...]) -> None:
        self.world = MPI.COMM_WORLD
        self.node: int = self.world.rank
        self.dataset = Dataset(DatasetSpec("rows", SourceSpec(f"{__name__}:Rows", {"size": INPUT_BYTES})))
        nodes = NodeMap((0,), (0,), tuple(range(NODES)))
        size = lane_bytes(self.dataset.layout, RING_SLOTS * SLOT, SLOT, 1)
        self.ring = Ring.create(self.world.Split(self.node, 0), 1, size, SLOT, 1)  # type: ignore[arg-type]
        slots = self.world.Dup()
        schedule = LaneSchedule(SAMPLES, last_epoch=0)
        key = StreamKey("rows", 1, 0)
        named = {node: (0,) for node, reads in enumerate(readers) if reads}
        self.spec = LaneSpec(0, 1, key, schedule, self.dataset.layout, named, RING_SLOTS * SLOT)
        self.receiver = SlotReceiver(self.ring, self.node, nodes, slots, PATIENCE)
        self.preprocessor = Preprocessor(self.ring, 0, {"rows": self.dataset}, nodes, slots, PATIENCE)
        self.closing = False
        self.stop_making = threading.Event()
        self.receiver.open_lane(self.spec)
        self.threads = [self._start(self._receive)]

    def make(self) -> None:
        if self.node == 0:
            self.preprocessor.open_lane(self.spec)
            self.threads.append(self._start(self._make))

    def attach(self) -> LaneReader:
        return self.ring.lanes[0].reader(0, self.dataset.layout, 1, PATIENCE)

    def read(self, reader: LaneReader, slots: int) -> None:
        """Read so many slots, compare them with what the data set alone makes, and leave."""
        inputs, targets = self.expected(slots)
        for start in range(0, slots * SLOT, SLOT):
            found = reader.gather(np.arange(start, start + SLOT), PATIENCE)
            assert found is not None
            reader.release(start + SLOT)
            assert np.array_equal(found[0], inputs[start : start + SLOT]), (self.node, start)
            assert np.array_equal(found[1], targets[start : start + SLOT]), (self.node, start)
        reader.leave()

    def expected(self, slots: int) -> tuple[np.ndarray, np.ndarray]:
        inputs, targets = self.dataset.layout.empty(slots * SLOT)
        for _ in self.dataset.fill(self.spec.schedule, 1, 0, inputs, targets):
            pass
        return inputs, targets

    def everybody(self) -> None:
        """A barrier that leaves the core to those who still work."""
        here = self.world.Ibarrier()
        while not here.Test():
            time.sleep(0.001)

    def finish(self) -> list[tuple[int, int]]:
        """Wait for the end of all conversations; returns each node's (slots received, slots sent)."""
        for thread in self.threads:
            thread.join()
        received = sum(self.receiver.received.totals.values(), Traffic())
        sent = sum(self.receiver.sent.totals.values(), Traffic())
        sent += sum(self.preprocessor.statistics.sent.values(), Traffic())
        slot_bytes = SLOT * (INPUT_BYTES + 8)
        assert (received.bytes, sent.bytes) == (received.slots * slot_bytes, sent.slots * slot_bytes)
        counted = np.empty((NODES, 2), np.int64)
        self.world.Allgather(np.array([received.slots, sent.slots]), counted)
        self.ring.free()
        return [(int(came), int(went)) for came, went in counted]

    def _make(self) -> None:
        while not self.preprocessor.is_deserted(0) and not self.stop_making.is_set():
            if not self.preprocessor.step():
                self.preprocessor.wait(0.01)
        close_all(self.preprocessor, [0], PATIENCE)

    def _receive(self) -> None:
        while not self.receiver.is_closed(0):
            if self.closing:
                self.receiver.close_lane(0)
            if not self.receiver.step():
                self.receiver.wait(0.01)

    def _start(self, work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except BaseException:
                import traceback

                traceback.print_exc()
                self.world.Abort(3)

        thread = threading.Thread(target=run)
        thread.start()
        return thread


def all_read() -> None:
    """Each node receives each slot once and sends it once, but the first and the last."""
    rank = Rank((True,) * NODES)
    rank.make()
    rank.read(rank.attach(), SLOTS)
    assert rank.finish() == [(0, SLOTS), (SLOTS, SLOTS), (SLOTS, SLOTS), (SLOTS, 0)]


def nobody_reads_on_node_2() -> None:
    """The chain goes past a node without readers."""
    rank = Rank((False, True, False, True))
    rank.make()
    if rank.node in (1, 3):
        rank.read(rank.attach(), SLOTS)
    assert rank.finish() == [(0, SLOTS), (SLOTS, SLOTS), (0, 0), (SLOTS, 0)]


def the_middle_leaves_early() -> None:
    """Nodes whose own readers have left go on for the sake of the last."""
    rank = Rank((True,) * NODES)
    rank.make()
    rank.read(rank.attach(), (5, 3, 0, SLOTS)[rank.node])
    assert rank.finish() == [(0, SLOTS), (SLOTS, SLOTS), (SLOTS, SLOTS), (SLOTS, 0)]


def the_end_leaves_early() -> None:
    """What nobody at a node or behind it needs is not sent there: at most what the rings on the way hold."""
    rank = Rank((True,) * NODES)
    rank.make()
    rank.read(rank.attach(), (SLOTS, SLOTS, 2, 2)[rank.node])
    (_, from_0), (to_1, from_1), (to_2, from_2), (to_3, from_3) = rank.finish()
    assert from_0 == to_1 == SLOTS and from_1 == to_2 and from_2 == to_3 and from_3 == 0
    assert 2 <= to_3 <= to_2 < SLOTS


def a_closed_node_passes_on() -> None:
    """The middle is told to close while its reader holds a full ring: that is not touched, and the last gets all."""
    rank = Rank((False, False, True, True))
    rank.make()
    reader = rank.attach() if rank.node > 1 else None
    if rank.node == 2:
        assert reader is not None
        assert reader.wait(RING_SLOTS * SLOT, PATIENCE)  # its ring is full, and nothing is released
        rank.closing = True
    elif rank.node == 3:
        assert reader is not None
        rank.read(reader, SLOTS)
    rank.everybody()
    if rank.node == 2:
        assert reader is not None
        inputs, targets = rank.expected(RING_SLOTS)
        assert np.array_equal(reader.inputs, inputs) and np.array_equal(reader.targets, targets)
        reader.leave()
    assert rank.finish() == [(0, SLOTS), (0, 0), (SLOTS, SLOTS), (SLOTS, 0)]


def the_maker_closes_first() -> None:
    """The end passes along the chain behind all that was published before it."""
    rank = Rank((False, True, True, True))
    made = 0
    if rank.node == 0:
        rank.preprocessor.open_lane(rank.spec)
        while made < 7:
            made += rank.preprocessor.step()
            rank.preprocessor.wait(0.001)
        rank.threads.append(rank._start(lambda: close_all(rank.preprocessor, [0], PATIENCE)))
    else:
        rank.read(rank.attach(), 7)
    assert rank.finish() == [(0, 7), (7, 7), (7, 7), (7, 0)]


def a_slow_reader_holds_the_maker() -> None:
    """However small a slot is, no more is under way than the rings hold: here node 0's own and node 3's."""
    rank = Rank((False, False, False, True))
    reader = rank.attach() if rank.node == 3 else None
    if rank.node == 0:
        rank.preprocessor.open_lane(rank.spec)
        in_vain = 0
        while in_vain < 500:
            in_vain = 0 if rank.preprocessor.step() else in_vain + 1
            rank.preprocessor.wait(0.001)
        made = rank.preprocessor.statistics.samples
        assert RING_SLOTS * SLOT <= made <= 2 * RING_SLOTS * SLOT, made
    rank.everybody()
    rank.threads += [rank._start(rank._make)] if rank.node == 0 else []
    if reader is not None:
        rank.read(reader, SLOTS)
    assert rank.finish() == [(0, SLOTS), (0, 0), (0, 0), (SLOTS, 0)]


SCENARIOS = (
    all_read,
    nobody_reads_on_node_2,
    the_middle_leaves_early,
    the_end_leaves_early,
    a_closed_node_passes_on,
    the_maker_closes_first,
    a_slow_reader_holds_the_maker,
)

if __name__ == "__main__":
    for scenario in SCENARIOS:
        scenario()
        MPI.COMM_WORLD.Barrier()
        if MPI.COMM_WORLD.rank == 0:
            print(f"passed: {scenario.__name__}", flush=True)
