"""Ragged samples in the ring: every byte comes, without padding, whatever the lengths, the paces and who dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocess import Dataset, DatasetSpec, SampleLayout, SourceSpec
from preprocess.making.preprocessor import Preprocessor
from preprocess.ring.lane_memory import PackedBytes, RingShape, lane_bytes, slots_that_fit
from preprocess.ring.ring import LaneReader, LaneWriter, Ring
from preprocess.samples.errors import LaneError, RingTimeout, SkippedSample, WriterLost
from preprocess.samples.stream import LaneSchedule, LaneSpec, SampleOwners, StreamKey
from tests.preprocess.support.ragged_bytes import Bytes
from tests.preprocess.test_shared_ring import forked

MOST = 40
SLOT = 3


def ragged(mean: int, most: int = MOST) -> SampleLayout:
    return SampleLayout((most,), "uint8", (), "int64", mean)


def sample(position: int, length: int) -> np.ndarray:
    return (np.arange(length) * 7 + position * 31).astype(np.uint8)


def make_ring(layout: SampleLayout, readers: int, writers: int = 1, slots: int = 0) -> Ring:
    """The smallest that is allowed, or one that holds so many slots of the mean length."""
    size = lane_bytes(layout, slots * SLOT, SLOT, writers)
    return Ring.forked(RingShape(1, size, SLOT, readers, writers))


def fill(writer: LaneWriter, lengths: Sequence[int], rows: Sequence[int] = range(SLOT), timeout: float = 20) -> None:
    """Write the next slot, or some rows of it, of a lane whose sample at position p is so long."""
    with writer.slot(timeout) as slot:
        for row in rows:
            slot.inputs[row] = sample(slot.start + row, lengths[slot.start + row])
            slot.targets[row] = slot.start + row


def check(reader: LaneReader, positions: Sequence[int], lengths: Sequence[int]) -> None:
    inputs, targets = reader.take(np.array(positions, np.int64))
    assert targets.tolist() == list(positions)
    for place, got in zip(positions, inputs):
        assert np.array_equal(got, sample(place, lengths[place])), place


class Play:
    """A lane of ragged samples, whose writers and readers, all in one process, go on in any order."""

    def __init__(
        self, random: Random, writers: int, divided: bool, slots: int, lengths: Sequence[int], ring: Ring
    ) -> None:
        self.random, self.slots, self.lengths = random, slots, lengths
        lane, layout = ring.lanes[0], ragged(1)
        lane.open(layout, range(3), 1, divided=divided)
        self.writers = [lane.writer(number, layout, 1) for number in range(writers)]
        self.readers = [lane.reader(number, layout, 1) for number in range(3)]
        owners = SampleOwners(writers, ()).of(np.arange(slots * SLOT)).reshape(slots, SLOT)
        self.rows = [[np.flatnonzero(of == number).tolist() for of in owners] for number in range(writers)]
        if not divided:
            self.rows = [[list(range(SLOT))] * slots] * writers
        self.turns = [0] * writers

    def write(self, number: int) -> bool:
        """Let a writer fill a slot, if it may."""
        writer, sequence = self.writers[number], self.writers[number].sequence(self.turns[number])
        if sequence >= self.slots or not writer.has_space():
            return False
        fill(writer, self.lengths, self.rows[number][sequence])
        self.turns[number] += 1
        return True

    @property
    def published(self) -> int:
        """The slots before which all are whole."""
        return min(writer.sequence(turn) for writer, turn in zip(self.writers, self.turns))

    def read(self, reader: LaneReader) -> bool:
        """Let a reader read as far as it dares, if that is here."""
        start = reader.released
        stop = min(start + self.random.randint(1, reader.certain), self.slots * SLOT)
        if stop > self.published * SLOT:
            return False
        assert reader.wait(stop, 1)
        check(reader, range(start, stop), self.lengths)
        reader.release(-(-stop // SLOT) * SLOT if stop > start + SLOT else start + SLOT)
        return True

    def step(self, everybody: bool) -> bool:
        """Let some go on, or try all; says whether somebody did. Whoever has read all leaves, and one before."""
        moved = False
        for number in self.random.sample(range(len(self.writers)), len(self.writers)):
            moved |= self.write(number)
        for reader in self.random.sample(self.readers, len(self.readers)):
            if everybody or self.random.random() < 0.5:
                moved |= self.read(reader)
            if reader.released >= self.slots * SLOT or (len(self.readers) == 3 and self.random.random() < 0.02):
                reader.leave()
                self.readers.remove(reader)
        return moved


@settings(max_examples=100, deadline=None)
@given(
    writers=st.integers(1, 3), divided=st.booleans(), rounds=st.integers(1, 12), room=st.integers(0, 10),
    odds=st.tuples(st.floats(0, 0.5), st.floats(0, 0.5)), seed=st.integers(0, 2**32),
)  # fmt: skip
def test_readers_of_any_pace_get_every_byte(
    writers: int, divided: bool, rounds: int, room: int, odds: tuple[float, float], seed: int
) -> None:
    """Whatever the lengths and the order in which they go on, somebody always can."""
    random, slots = Random(seed), rounds * writers
    none, largest = odds
    draws = [random.random() for _ in range(slots * SLOT)]
    lengths = [0 if d < none else MOST if d > 1 - largest else random.randint(0, MOST) for d in draws]
    ring = make_ring(ragged(1), 3, writers, room)
    play, stuck = Play(random, writers, divided, slots, lengths, ring), False
    while play.readers:
        moved = play.step(everybody=stuck)
        assert moved or not stuck or not play.readers, "nobody can go on"
        stuck = not moved
    for writer in play.writers:
        writer.close()
    assert ring.lanes[0].is_idle


@pytest.mark.parametrize("writers", [1, 2])
def test_processes_at_once_and_one_reader_is_killed(writers: int) -> None:
    """The smallest ring, samples between none and the most bytes, readers of three paces, one of which dies."""
    rng = np.random.default_rng(writers)
    slots = 120 * writers
    lengths = rng.choice([0, 1, 5, MOST], slots * SLOT, p=[0.1, 0.3, 0.4, 0.2]).tolist()
    layout = ragged(6)
    ring = make_ring(layout, 3, writers)
    lane = ring.lanes[0]
    lane.open(layout, range(3), 1)

    def write(number: int) -> None:
        writer = lane.writer(number, layout, 1)
        for _ in range(slots // writers):
            fill(writer, lengths)
        writer.close()

    def read(number: int, step: int, dies_at: int = slots * SLOT + 1) -> None:
        reader = lane.reader(number, layout, 1)
        for start in range(0, slots * SLOT, step):
            if start >= dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
            positions = range(start, min(start + step, slots * SLOT))
            inputs, _ = reader.gather(np.array(positions), 20) or (None, None)
            assert inputs is not None
            assert all(np.array_equal(got, sample(p, lengths[p])) for p, got in zip(positions, inputs))
        reader.leave()

    bodies = [lambda number=number: write(number) for number in range(writers)]  # type: ignore[misc]
    with forked(*bodies, lambda: read(0, 1), lambda: read(1, 7), lambda: read(2, 50, dies_at=100)):
        pass
    assert lane.is_idle


def test_the_bytes_lie_without_padding_and_around_the_end() -> None:
    """A region takes as many bytes as it has, but for those that the next slot may need."""
    layout = ragged(1)
    ring = make_ring(layout, 1, slots=200)
    lane = ring.lanes[0]
    lane.open(layout, [0], 1)
    writer, reader = lane.writer(0, layout, 1), lane.reader(0, layout, 1)
    lengths, slots = [(place * 13) % 11 for place in range(3000)], 0
    while slots < 900:
        while writer.has_space():
            with writer.slot(1) as slot:
                for row in range(SLOT):
                    slot.inputs[row], slot.targets[row] = sample(slot.start + row, lengths[slot.start + row]), 0
                packed = slot.inputs.packed_bytes
            assert packed.padding == 0
            assert packed.samples == sum(lengths[slot.start : slot.stop]) == slot.inputs.used
            slots += 1
        held = sum(lengths[reader.released : slots * SLOT])
        assert held + SLOT * MOST + SLOT * 10 >= 200 * SLOT, "it is full only where a largest slot has no room"
        reader.wait(reader.released + SLOT, 1)
        inputs, _ = reader.take([reader.released])
        assert np.array_equal(inputs[0], sample(reader.released, lengths[reader.released]))
        reader.release(reader.released + SLOT)


def test_it_holds_many_more_samples_than_with_room_for_the_largest() -> None:
    size = 2**20
    plain = SampleLayout((10_000,), "uint8")
    assert slots_that_fit(ragged(200, 10_000), size, 4, 1) > 20 * slots_that_fit(plain, size, 4, 1)


@pytest.mark.parametrize("makers", [1, 2, 5])
def test_what_is_planned_fits(makers: int) -> None:
    for mean, slots in ((1, 2), (7, 100), (MOST, 3)):
        layout = ragged(mean)
        assert slots_that_fit(layout, lane_bytes(layout, slots * SLOT, SLOT, makers), SLOT, makers) >= slots
    assert slots_that_fit(ragged(1), 2 * makers * SLOT * MOST, SLOT, makers) == 0


def test_a_lane_too_small_for_two_of_the_largest_is_refused() -> None:
    ring = Ring.forked(RingShape(1, 4096, SLOT, 1, 1))
    with pytest.raises(LaneError, match="too few for two slots of 3 samples"):
        ring.lanes[0].open(ragged(1, 4096), [0], 1)


def test_a_reader_that_awaits_more_than_surely_fits_is_told() -> None:
    layout = ragged(1)
    ring = make_ring(layout, 1, slots=50)
    lane = ring.lanes[0]
    assert lane.open(layout, [0], 1) == 50 * SLOT
    reader = lane.reader(0, layout, 1)
    assert reader.certain < reader.samples
    with pytest.raises(ValueError, match="release some first"):
        reader.wait(reader.certain + 1, 1)


def test_a_writer_says_on_whom_it_waits_for_bytes() -> None:
    layout = ragged(1)
    ring = make_ring(layout, 1, slots=100)
    lane = ring.lanes[0]
    lane.open(layout, [0], 1)
    lane.reader(0, layout, 1)
    writer = lane.writer(0, layout, 1)
    for _ in range(2):
        fill(writer, [MOST] * 100)
    with pytest.raises(RingTimeout, match="not released by reader 0"):
        for _ in range(4):
            fill(writer, [MOST] * 100, timeout=0)


def test_a_slot_that_failed_is_filled_anew() -> None:
    """What an attempt wrote takes no room once the slot comes again."""
    layout = ragged(1)
    ring = make_ring(layout, 1)
    lane = ring.lanes[0]
    lane.open(layout, [0], 1)
    writer, reader = lane.writer(0, layout, 1), lane.reader(0, layout, 1)
    for _ in range(5):
        with pytest.raises(RuntimeError), writer.slot(1) as slot:
            slot.inputs[0] = sample(5, MOST)
            raise RuntimeError
    with writer.slot(1) as slot:
        slot.inputs[0] = sample(9, MOST)
        slot.inputs[0] = sample(1, 4)  # the place of the last one is written again
        slot.inputs[1] = sample(2, 3)
        with pytest.raises(ValueError, match="only the last may"):
            slot.inputs[0] = sample(1, 4)
        with pytest.raises(ValueError, match="41 bytes, the largest 40"):
            slot.inputs[2] = sample(3, MOST + 1)
        assert slot.inputs.used == 7
    reader.wait(SLOT, 1)
    assert [len(got) for got in reader.take([0, 1, 2])[0]] == [4, 3, 0]


def test_what_a_dead_writer_published_is_read_before_its_end_is_told() -> None:
    layout, lengths = ragged(6), [(place * 7) % MOST for place in range(4 * SLOT)]
    ring = make_ring(layout, 1, slots=10)
    lane = ring.lanes[0]
    lane.open(layout, [0], 1)

    def write_and_die() -> None:
        writer = lane.writer(0, layout, 1)
        fill(writer, lengths)
        fill(writer, lengths)
        with writer.slot(1) as slot:
            slot.inputs[0] = sample(0, MOST)
            os.kill(os.getpid(), signal.SIGKILL)

    with forked(write_and_die):
        pass
    reader = lane.reader(0, layout, 1)
    assert reader.wait(2 * SLOT, 20)
    check(reader, range(2 * SLOT), lengths)
    with pytest.raises(WriterLost):
        reader.wait(3 * SLOT, 20)


def test_a_preprocessor_counts_bytes_and_skips_what_is_too_large() -> None:
    """The lane ends in the midst of a slot; a sample that is larger than was said is another one."""
    source = SourceSpec(f"{Bytes.__module__}:Bytes", {"count": 50, "giant": 7})
    skipped: list[SkippedSample] = []
    dataset = Dataset(DatasetSpec("bytes", source, on_corrupt="skip"), skipped.append)
    ring = Ring.forked(RingShape(1, lane_bytes(dataset.layout, 64, 4, 1), 4, 1, 1))
    ring.lanes[0].open(dataset.layout, [0], 1)
    maker = Preprocessor(ring, 0, {"bytes": dataset})
    schedule = LaneSchedule(dataset.length, last_epoch=0)
    maker.open_lane(LaneSpec(0, 1, StreamKey("bytes", 3, 0), schedule, dataset.layout, {0: (0,)}))
    reader = ring.lanes[0].reader(0, dataset.layout, 1)
    read: list[np.ndarray] = []
    for start in range(0, 50, 4):
        while maker.step():
            pass
        assert reader.wait(min(start + 4, 50), 1)
        read += reader.take(np.arange(start, min(start + 4, 50)))[0].tolist()
        reader.release(start + 4)
    inputs, targets = dataset.layout.empty(50)
    assert [*dataset.fill(schedule, 3, 0, inputs, targets)][-1] == 50
    assert all(np.array_equal(got, wanted) for got, wanted in zip(read, inputs, strict=True))
    assert [found.sample for found in skipped] == [7] and "3001 bytes, the largest 3000" in skipped[0].reason
    assert maker.statistics.packed == {"bytes": PackedBytes(sum(got.nbytes for got in read), 0)}
