"""The ring between forked processes: every reader sees every byte, whoever is slow, leaves or dies."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from preprocess import SampleLayout
from preprocess.ring.lane_memory import RingShape, bytes_needed, lane_bytes
from preprocess.ring.ring import LaneReader, LaneWriter, Ring
from preprocess.samples.errors import LaneClosed, LaneError, RingTimeout, WriterLost

LAYOUT = SampleLayout((5, 3), "uint8", (), "int64")
OTHER = SampleLayout((7,), "float32", (2,), "float64")


def make_ring(lanes: int = 1, readers: int = 3, writers: int = 1, slots: int = 4, slot_samples: int = 4) -> Ring:
    size = lane_bytes(LAYOUT, slots * slot_samples, slot_samples, writers)
    return Ring.forked(RingShape(lanes, size, slot_samples, readers, writers))


def expected(layout: SampleLayout, positions: np.ndarray, stream: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """What position p of a stream holds: numbers that depend on p, the stream and the place in the sample."""
    base = positions * 31 + stream * 7
    size = int(np.prod(layout.input_shape))
    inputs = (base[:, None] + np.arange(size)).astype(layout.input_dtype)
    width = int(np.prod(layout.target_shape))
    targets = (base[:, None] + np.arange(width)).astype(layout.target_dtype)
    return inputs.reshape(-1, *layout.input_shape), targets.reshape(-1, *layout.target_shape)


def write(writer: LaneWriter, layout: SampleLayout, slots: int, stream: int = 0) -> int:
    """Write that many slots, or as long as somebody reads; returns how many."""
    written = 0
    for _ in range(slots):
        try:
            with writer.slot(timeout=20) as slot:
                slot.inputs[:], slot.targets[:] = expected(layout, np.arange(slot.start, slot.stop), stream)
        except LaneClosed:
            break
        written += 1
    writer.close()
    return written


def check(reader: LaneReader, layout: SampleLayout, start: int, stop: int, stream: int = 0) -> None:
    positions = np.arange(start, stop)
    inputs, targets = reader.take(positions)
    wanted_inputs, wanted_targets = expected(layout, positions, stream)
    assert np.array_equal(inputs, wanted_inputs) and np.array_equal(targets, wanted_targets)


@contextmanager
def forked(*bodies: Callable[[], object]) -> Iterator[list[int]]:
    """Run each body in a process of its own; at the end all must have ended well, or by SIGKILL."""
    children = []
    for body in bodies:
        child = os.fork()
        if child == 0:
            try:
                body()
                os._exit(0)
            except BaseException:
                import traceback

                traceback.print_exc()
                os._exit(1)
        children.append(child)
    yield children
    statuses = [os.waitpid(child, 0)[1] for child in children]
    assert all(status in (0, signal.SIGKILL) for status in statuses), statuses


def read_all(ring: Ring, reader: int, slots: int, step: int, layout: SampleLayout = LAYOUT, stream: int = 0) -> None:
    """Read all positions in pieces of `step`."""
    attached = ring.lanes[0].reader(reader, layout, ring.lanes[0].generation or 1)
    stop = slots * ring.shape.slot_samples
    for start in range(0, stop, step):
        end = min(start + step, stop)
        assert attached.wait(end, timeout=20)
        check(attached, layout, start, end, stream)
        attached.release(end)
    attached.leave()


@pytest.mark.parametrize("writers", [1, 2, 3])
def test_readers_of_different_pace_see_every_sample(writers: int) -> None:
    ring = make_ring(writers=writers, slots=6)
    lane = ring.lanes[0]
    lane.open(LAYOUT, [0, 1, 2], 1)
    slots = 30 * writers

    def writer(index: int) -> Callable[[], object]:
        return lambda: write(lane.writer(index, LAYOUT, 1), LAYOUT, 30)

    def reader(index: int, step: int) -> Callable[[], object]:
        return lambda: read_all(ring, index, slots, step)

    with forked(*map(writer, range(writers)), reader(0, 1), reader(1, 5), reader(2, 16)):
        pass
    assert lane.active_readers == ()


def test_a_lane_carries_other_layouts_in_later_generations() -> None:
    ring = make_ring(readers=2, slots=32)
    lane = ring.lanes[0]
    layouts = [LAYOUT, OTHER]

    def writer() -> None:
        for generation in range(1, 101):
            layout = layouts[generation % 2]
            write(lane.writer(0, layout, generation, timeout=20), layout, generation % 9, generation)

    def reader(index: int) -> Callable[[], None]:
        def body() -> None:
            rng = np.random.default_rng(index)
            for generation in range(1, 101):
                layout = layouts[generation % 2]
                attached = lane.reader(index, layout, generation, timeout=20)
                stop = int(rng.integers(0, generation % 9 * 4 + 1))
                if stop:
                    attached.wait(stop, timeout=20)
                    check(attached, layout, 0, stop, generation)
                    attached.release(stop)
                attached.leave()

        return body

    with forked(writer, reader(0), reader(1)):
        for generation in range(1, 101):
            lane.open(layouts[generation % 2], [0, 1], generation, timeout=20)


def test_gather_takes_more_than_the_lane_holds() -> None:
    ring = make_ring(readers=2, slots=3)
    lane = ring.lanes[0]
    lane.open(LAYOUT, [0, 1], 1)

    def reader(index: int) -> Callable[[], None]:
        def body() -> None:
            attached = lane.reader(index, LAYOUT, 1)
            for start in (0, 100):
                positions = np.arange(start + index, start + 100, 2 + 15 * index)
                found = attached.gather(positions, timeout=20)
                assert found is not None
                for got, wanted in zip(found, expected(LAYOUT, positions), strict=True):
                    assert np.array_equal(got, wanted)
                attached.release(start + 100)
            attached.leave()

        return body

    with forked(reader(0), reader(1)):
        assert write(lane.writer(0, LAYOUT, 1), LAYOUT, 50) == 50


def test_readers_that_leave_are_not_waited_for() -> None:
    ring = make_ring(readers=2)
    lane = ring.lanes[0]
    lane.open(LAYOUT, [0, 1], 1)

    def leaver() -> None:
        attached = lane.reader(0, LAYOUT, 1)
        attached.wait(8, timeout=20)
        attached.leave()
        attached.leave()

    with forked(leaver, lambda: read_all(ring, 1, 20, 4)):
        assert write(lane.writer(0, LAYOUT, 1), LAYOUT, 20) == 20


def test_a_writer_learns_that_all_have_left() -> None:
    ring = make_ring(readers=1)
    lane = ring.lanes[0]
    lane.open(LAYOUT, [0], 1)
    writer, reader = lane.writer(0, LAYOUT, 1), lane.reader(0, LAYOUT, 1)
    assert writer.has_space()
    reader.leave()
    assert writer.deserted and not writer.has_space()
    with pytest.raises(LaneClosed), writer.slot(timeout=1):
        pass


def in_a_row(writer: LaneWriter, most: int) -> tuple[int, int]:
    """First and last position of the slots that may be filled at once."""
    assert writer.has_space()
    slot = writer.in_a_row(most)
    assert len(slot.inputs) == len(slot.targets) == slot.stop - slot.start
    slot.inputs[:], slot.targets[:] = expected(LAYOUT, np.arange(slot.start, slot.stop))
    writer.publish((slot.stop - slot.start) // 4)
    return slot.start, slot.stop


def test_slots_in_a_row_end_where_the_ring_does_where_a_reader_holds_one_and_where_enough_lies_ready() -> None:
    ring = make_ring(readers=2, slots=8)
    lane = ring.lanes[0]
    lane.open(LAYOUT, [0, 1], 1)
    writer, readers = lane.writer(0, LAYOUT, 1), [lane.reader(reader, LAYOUT, 1) for reader in (0, 1)]
    assert in_a_row(writer, 3) == (0, 12) and in_a_row(writer, 9) == (12, 32) and not writer.has_space()
    for reader, released in zip(readers, (24, 12)):
        assert reader.wait(32, timeout=1)
        check(reader, LAYOUT, 0, 12)
        reader.release(released)
    assert in_a_row(writer, 8) == (32, 44) and not writer.has_space()
    readers[1].release(32)
    assert in_a_row(writer, 1) == (44, 48) and in_a_row(writer, 8) == (48, 56)
    for reader in readers:
        assert reader.wait(56, timeout=1)
        check(reader, LAYOUT, 32, 56)
        reader.release(56)
    assert in_a_row(writer, 8) == (56, 64) and in_a_row(writer, 8) == (64, 88)  # the ring begins anew at 64
    lane_ahead = make_ring(readers=1, slots=8).lanes[0]
    lane_ahead.open(LAYOUT, [0], 1, ahead=8)
    writer, reader = lane_ahead.writer(0, LAYOUT, 1), lane_ahead.reader(0, LAYOUT, 1)
    assert in_a_row(writer, 8) == (0, 8) and not writer.has_space()
    reader.wait(8, timeout=1)
    reader.release(4)
    assert in_a_row(writer, 8) == (8, 12)


def test_who_makes_samples_is_told_once_of_each_wait_for_them_and_of_nothing_else() -> None:
    lane = make_ring(readers=1).lanes[0]
    lane.open(LAYOUT, [0], 1)
    writer, reader, told = lane.writer(0, LAYOUT, 1), lane.reader(0, LAYOUT, 1), list[int]()
    reader.on_waiting = lambda: told.append(in_a_row(writer, 2)[1])
    assert reader.wait(8, timeout=5) and told == [8]
    assert in_a_row(writer, 1) == (8, 12) and reader.wait(12, timeout=5) and told == [8]
    assert reader.wait(13, timeout=5) and told == [8, 16]
    with pytest.raises(RingTimeout):
        reader.on_waiting = lambda: told.append(0)
        reader.release(4)
        reader.wait(18, timeout=0.2)
    assert told == [8, 16, 0]


def test_slots_of_several_writers_are_filled_one_by_one() -> None:
    lane = make_ring(readers=1, writers=2, slots=4).lanes[0]
    lane.open(LAYOUT, [0], 1)
    lane.reader(0, LAYOUT, 1)
    writer = lane.writer(1, LAYOUT, 1)
    assert in_a_row(writer, 4) == (4, 8) and in_a_row(writer, 4) == (12, 16)


def test_a_killed_reader_is_dropped() -> None:
    ring = make_ring(readers=2)
    lane = ring.lanes[0]
    lane.open(LAYOUT, [0, 1], 1)

    def victim() -> None:
        attached = lane.reader(0, LAYOUT, 1)
        attached.wait(4, timeout=20)
        os.kill(os.getpid(), signal.SIGKILL)

    with forked(victim, lambda: read_all(ring, 1, 40, 4)):
        write(lane.writer(0, LAYOUT, 1), LAYOUT, 40)
    assert lane.active_readers == ()
    lane.open(LAYOUT, [0], 2, timeout=1)  # the lane and the dead reader's role can be used again
    with forked(lambda: read_all(ring, 0, 9, 4)):
        write(lane.writer(0, LAYOUT, 2), LAYOUT, 9)


@pytest.mark.parametrize("ahead", [None, 8])
def test_nobody_waits_for_the_only_reader_if_it_was_killed(ahead: int | None) -> None:
    ring = make_ring(readers=1)
    lane = ring.lanes[0]
    lane.open(LAYOUT, [0], 1, ahead=ahead)

    def victim() -> None:
        lane.reader(0, LAYOUT, 1).wait(4, timeout=20)
        os.kill(os.getpid(), signal.SIGKILL)

    with forked(victim):
        assert 0 < write(lane.writer(0, LAYOUT, 1), LAYOUT, 40) < 40


def test_a_killed_writer_is_named() -> None:
    ring = make_ring(readers=1)
    lane = ring.lanes[0]
    lane.open(LAYOUT, [0], 1)

    def victim() -> None:
        attached = lane.writer(0, LAYOUT, 1)
        with attached.slot(timeout=5) as slot:
            slot.inputs[:], slot.targets[:] = expected(LAYOUT, np.arange(slot.start, slot.stop))
        os.kill(os.getpid(), signal.SIGKILL)

    with forked(victim) as children:
        reader = lane.reader(0, LAYOUT, 1)
        assert reader.wait(4, timeout=20)
        os.waitid(os.P_PID, children[0], os.WEXITED | os.WNOWAIT)
        with pytest.raises(WriterLost, match=f"slot 1.*preprocessor 0 .process {children[0]}.*dead"):
            reader.wait(8, timeout=20)


def test_a_sample_that_fails_leaves_the_slot_unpublished() -> None:
    ring = make_ring(readers=1)
    lane = ring.lanes[0]
    lane.open(LAYOUT, [0], 1)
    writer, reader = lane.writer(0, LAYOUT, 1), lane.reader(0, LAYOUT, 1)
    with pytest.raises(KeyError), writer.slot(timeout=1):
        raise KeyError("sample")
    with writer.slot(timeout=1) as slot:
        assert slot.sequence == 0
        slot.inputs[:], slot.targets[:] = expected(LAYOUT, np.arange(4))
    assert reader.wait(4, timeout=1)
    check(reader, LAYOUT, 0, 4)


def test_bounded_waits_say_on_whom() -> None:
    ring = make_ring(readers=2, slots=2)
    lane = ring.lanes[0]
    with pytest.raises(RingTimeout, match="lane 0 was not opened with generation 1"):
        lane.reader(0, LAYOUT, 1, timeout=0.01)
    lane.open(LAYOUT, [0, 1], 1)
    writer, reader = lane.writer(0, LAYOUT, 1), lane.reader(0, LAYOUT, 1)
    with pytest.raises(RingTimeout, match=r"reader 0 of lane 0.*positions 0 to 3.*preprocessor 0 .process"):
        reader.wait(1, timeout=0.01)
    assert not reader.wait(1, timeout=10, stopped=lambda: True)
    for _ in range(2):
        with writer.slot(timeout=1):
            pass
    with pytest.raises(RingTimeout, match=r"positions 8 to 11: not released by reader 0 .*, reader 1 .not attached"):
        writer.slot(timeout=0.01).__enter__()
    assert reader.wait(8, timeout=1) and reader.seconds_waited > 0
    reader.release(8)
    assert not writer.has_space() and list(writer.late_holders()) == ["reader 1 (not attached yet)"]
    with pytest.raises(RingTimeout, match=r"still used by reader 0 .*, reader 1 .*, preprocessor 0"):
        lane.open(LAYOUT, [0], 2, timeout=0.01)


def test_a_reader_that_another_holds_up_is_the_last_to_give_up() -> None:
    lane = make_ring(readers=2, slots=2).lanes[0]
    lane.open(LAYOUT, [0, 1], 1)
    writer, reader, slow = lane.writer(0, LAYOUT, 1), lane.reader(0, LAYOUT, 1), lane.reader(1, LAYOUT, 1)
    for _ in range(2):
        with writer.slot(timeout=1):
            pass
    assert reader.wait(8, timeout=1) and not slow.is_held_up
    reader.release(8)
    assert reader.is_held_up
    before = reader.seconds_waited
    with pytest.raises(RingTimeout, match=r"that one waits for reader 1 .*, which has read up to position 0"):
        reader.wait(12, timeout=0.1)
    assert reader.seconds_waited - before >= 0.3


def test_misuse_is_refused() -> None:
    ring = make_ring(readers=2, slots=2)
    lane = ring.lanes[0]
    with pytest.raises(LaneError, match="this node's are 0 to 1"):
        lane.open(LAYOUT, [2], 1)
    with pytest.raises(LaneError, match="too few for two slots of 4 samples of 100008 bytes"):
        lane.open(SampleLayout((100000,), "uint8"), [0], 1)
    assert lane.open(LAYOUT, [0], 3) == 8
    with pytest.raises(LaneError, match="not a later one"):
        lane.open(LAYOUT, [0], 3)
    with pytest.raises(LaneError, match="gone on to generation 3"):
        lane.reader(0, LAYOUT, 2)
    assert lane.active_readers == (0,)
    with pytest.raises(RingTimeout, match="waited for the process that opens"):
        lane.reader(1, LAYOUT, 3, timeout=0.01)  # not one of its readers, so it is never admitted


def test_positions_that_are_not_here_are_refused() -> None:
    ring = make_ring(readers=1, slots=2)
    lane = ring.lanes[0]
    lane.open(LAYOUT, [0], 1)
    writer, reader = lane.writer(0, LAYOUT, 1), lane.reader(0, LAYOUT, 1)
    with pytest.raises(ValueError, match="has 8 samples ready at most"):
        reader.wait(9, timeout=1)
    with writer.slot(timeout=1):
        pass
    reader.wait(4, timeout=1)
    with pytest.raises(ValueError, match="here are 0 to 3"):
        reader.take([4])
    with pytest.raises(ValueError):
        reader.inputs[0] = 1
    reader.release(4)
    with pytest.raises(ValueError, match="here are 4 to 3"):
        reader.take([0])


def test_opening_waits_for_the_last_users() -> None:
    ring = make_ring(readers=1)
    lane = ring.lanes[0]
    lane.open(LAYOUT, [0], 1, writers=[])
    reader = lane.reader(0, LAYOUT, 1)
    opener = threading.Thread(target=lane.open, args=(LAYOUT, [0], 2), kwargs={"timeout": 20})
    opener.start()
    assert lane.generation == 1
    reader.leave()
    opener.join()
    assert lane.generation == 2
    lane.reader(0, LAYOUT, 2, timeout=1)


def test_sizes() -> None:
    assert lane_bytes(LAYOUT, 1, 4, 3) == 6 * 4 * 23 + 64  # two slots for each writer
    assert lane_bytes(LAYOUT, 100, 4, 3) == 27 * 4 * 23 + 64
    shape = RingShape(2, 1000, 4, 3, 2)
    assert bytes_needed(2, 1000, 4, 3, 2) == shape.bytes and shape.bytes % 4096 == 0
    assert Ring.forked(shape).lanes[1].open(LAYOUT, [0], 1) == 40
    with pytest.raises(ValueError, match="at least 1"):
        RingShape(0, 1000, 4, 3, 2)


def test_a_lane_is_filled_by_any_writers_but_no_more_than_the_ring_is_made_for() -> None:
    layout = SampleLayout((1,), "int64")
    size = lane_bytes(layout, 16, 2, 2)
    narrow, wide = RingShape(1, size, 2, 2, 50, makers=2), RingShape(1, size, 2, 2, 50)
    assert narrow.bytes < wide.bytes / 2
    ring = Ring.forked(narrow)
    (lane,) = ring.lanes
    with pytest.raises(LaneError, match="3 makers: 2 at most fill a lane of this ring"):
        lane.open(layout, [0, 1], 1, makers=[0, 1, 2])
    for generation, makers in enumerate(([49, 7], [30]), 1):
        lane.open(layout, [0, 1], generation, makers=makers)
        writers = [lane.writer(number, layout, generation) for number in makers]
        readers = [lane.reader(number, layout, generation) for number in range(2)]
        for begin in range(0, 24, 4):
            for writer in (writers * 2)[:2]:
                with writer.slot(timeout=5.0) as slot:
                    slot.targets[:] = np.arange(slot.start, slot.stop)
            for reader in readers:
                assert reader.wait(begin + 4, timeout=5.0)
                assert reader.take(range(begin, begin + 4))[1].tolist() == list(range(begin, begin + 4))
                reader.release(begin + 4)
        readers[0].leave()
        lane.dismiss(1)
        assert all(writer.deserted for writer in writers)
        for writer in writers:
            writer.close()
