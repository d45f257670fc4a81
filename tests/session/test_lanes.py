"""Where samples lie, and how large rings must be."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from mpi4py import MPI

from fleet.machine.cluster_map import ClusterMap
from fleet.session.lanes import AHEAD, SPARE_LANES, LaneBook, largest_batch, ring_plan
from fleet.workers.rank import Rank
from fleet.workers.runtime import Runtime
from preprocess.ring.ring import Ring
from preprocess.samples.order import epoch_order
from preprocess.samples.stream import StreamKey

Runtimes = Callable[..., Runtime]
SAMPLES, HELD_OUT = 50, 10  # of the data set


def book_of(rank: Rank, trainers: int = 1) -> LaneBook:
    """The book of a rank whose streams are awaited by nobody but those of seed 5, from epoch 3 on."""
    return LaneBook(
        rank, ring_plan(rank.runtime, trainers, 1), lambda key, jobs: 3 if key.seed == 5 and "c" not in jobs else None
    )


def test_a_ring_holds_two_steps_of_the_largest_batch(runtime: Runtimes) -> None:
    small = runtime(resources={"ring_samples": 16, "slot_samples": 4})
    large = runtime({"name": "a"}, {"name": "b", "batch_size": 40}, resources={"ring_samples": 16, "slot_samples": 4})
    assert ring_plan(small, 1, 1).samples == 2 * 8 + 4
    assert ring_plan(large, 1, 1).samples == 2 * 80 + 4
    assert ring_plan(runtime(resources={"ring_samples": 512}), 1, 1).samples == 512


def test_a_ring_holds_two_steps_of_the_largest_batch_that_may_be_chosen(runtime: Runtimes) -> None:
    made = runtime({"name": "a", "batch_range": [8, 48]}, resources={"ring_samples": 16, "slot_samples": 4})
    assert largest_batch(made.job("a")) == 48
    assert ring_plan(made, 1, 1).samples == 2 * 48 + 4


def test_a_ring_holds_two_batches_that_are_evaluated(runtime: Runtimes) -> None:
    made = runtime({"name": "a", "evaluation_batch_size": 60}, resources={"ring_samples": 16, "slot_samples": 4})
    assert largest_batch(made.job("a")) == 60
    assert ring_plan(made, 1, 1).samples == 2 * 60 + 4


def test_samples_are_made_ahead_for_two_steps_and_for_a_part_of_a_long_ring(runtime: Runtimes) -> None:
    assert ring_plan(runtime(resources={"ring_samples": 512}), 1, 1).ahead == 512
    assert ring_plan(runtime(resources={"ring_samples": 2 * AHEAD}), 1, 1).ahead == AHEAD
    assert ring_plan(runtime(resources={"ring_samples": 64 * AHEAD}), 1, 1).ahead == 4 * AHEAD
    large = runtime({"name": "a", "batch_size": AHEAD}, resources={"ring_samples": 4 * AHEAD, "slot_samples": 4})
    assert ring_plan(large, 1, 1).ahead == ring_plan(large, 1, 1).samples == 4 * AHEAD + 4


MANY = [{"name": f"net-{number}", "seed": number} for number in range(40)]


def test_lanes_that_have_no_room_together_are_made_shorter(runtime: Runtimes) -> None:
    made = runtime(*MANY, resources={"ring_samples": 512, "slot_samples": 4})
    whole = ring_plan(made, 40, 2)
    half = ring_plan(made, 40, 2, whole.lanes * whole.lane_bytes // 2)
    assert (half.lanes, half.writers, half.makers) == (whole.lanes, 2, 2)
    assert half.lanes * half.lane_bytes <= whole.lanes * whole.lane_bytes // 2
    assert whole.samples / 2.2 < half.samples < whole.samples and half.ahead <= half.samples
    least = ring_plan(made, 40, 2, 1)
    assert least.samples == 2 * 8 + 4, "two steps of the largest batch have to fit"
    assert ring_plan(made, 40, 2, 2 * whole.lanes * whole.lane_bytes) == whole


def test_fewer_preprocessors_fill_a_lane_that_has_no_room_for_two_slots_of_each(runtime: Runtimes) -> None:
    made = runtime(*MANY, resources={"ring_samples": 512, "slot_samples": 4})
    whole, room = ring_plan(made, 40, 1000), ring_plan(made, 40, 1).lanes * ring_plan(made, 40, 1).lane_bytes
    bound = ring_plan(made, 40, 1000, room)
    assert whole.makers == 1000 and whole.lanes * whole.lane_bytes > 10 * room
    assert bound.lanes * bound.lane_bytes <= room and 1 < bound.makers < 100
    assert bound.node_bytes(9) < whole.node_bytes(9) / 9, "semaphores are for makers, and not for all preprocessors"


def test_a_ring_within_its_room_carries_the_largest_steps_through_shared_memory(runtime: Runtimes) -> None:
    made = runtime(*MANY, resources={"ring_samples": 512, "slot_samples": 4})
    plan = ring_plan(made, 40, 2, 80_000)
    ring = Ring.create(MPI.COMM_SELF, plan.lanes, plan.lane_bytes, plan.slot_samples, plan.writers, plan.makers)
    try:
        assert ring.shape.bytes < plan.node_bytes(1) and plan.lanes * plan.lane_bytes <= 80_000
        (layout,) = (facts.layout for facts in made.facts.values())
        for generation, lane in enumerate(ring.lanes, 1):
            lane.open(layout, [0], generation, samples=plan.samples, makers=range(plan.makers), ahead=plan.ahead)
            writers = [lane.writer(number, layout, generation) for number in range(plan.makers)]
            reader = lane.reader(0, layout, generation)
            step = 2 * largest_batch(made.spec.jobs[0])
            for begin in range(0, 5 * step, step):
                for position in range(begin, begin + step, plan.slot_samples):
                    with writers[position // plan.slot_samples % plan.makers].slot(timeout=5.0) as slot:
                        slot.targets[:] = np.arange(slot.start, slot.stop)
                assert reader.wait(begin + step, timeout=5.0)
                assert reader.take(range(begin, begin + step))[1].tolist() == list(range(begin, begin + step))
                reader.release(begin + step)
            reader.leave()
            for writer in writers:
                writer.close()
    finally:
        ring.free()


def test_there_is_a_lane_for_each_group_that_can_be_and_one_that_closes(runtime: Runtimes) -> None:
    assert ring_plan(runtime(), 3, 1).lanes == 3 + 1
    assert ring_plan(runtime(), 64, 1).lanes == 1 + SPARE_LANES + 1


def test_a_node_s_memory_grows_with_its_ranks_and_the_ring(runtime: Runtimes) -> None:
    plan = ring_plan(runtime(), 2, 1)
    assert plan.lanes * plan.lane_bytes < plan.node_bytes(2) < plan.node_bytes(200)


def test_a_job_s_place_is_its_stream_and_the_first_sample_of_its_step(
    rank: Callable[..., Rank], runtime: Runtimes
) -> None:
    me = rank(runtime({"name": "a", "seed": 5}))  # a step is 8 samples, an epoch of 50 has 7
    book = book_of(me)
    assert book.place_of("a", 2, 3).key == StreamKey("numbers", 5, 2)
    assert [book.place_of("a", 2, step).place for step in (0, 3, 6)] == [0, 24, 48]
    assert book.place_of("a", 2, 7).place == SAMPLES, "only the held-out ones are left"


def test_a_job_that_gets_another_batch_lies_elsewhere(rank: Callable[..., Rank], runtime: Runtimes) -> None:
    me = rank(runtime({"name": "a"}))
    book = book_of(me)
    me.runtime = me.runtime.with_batch("a", 2)
    assert book.place_of("a", 0, 3).place == 12


def test_a_job_reads_the_samples_of_its_steps_and_the_held_out_ones_of_epochs_that_it_finishes(
    rank: Callable[..., Rank], runtime: Runtimes
) -> None:
    me = rank(runtime({"name": "a", "virtual_workers": 4, "batch_size": 3}))  # steps of 12, and a last one of 4
    book, padded = book_of(me), 52
    assert book.samples_between("a", (1, 2), (1, 2)) == 0
    assert book.samples_between("a", (1, 1), (1, 3)) == 24
    assert book.samples_between("a", (0, 0), (0, 5)) == padded, "it left before it was evaluated"
    assert book.samples_between("a", (0, 5), (1, 0)) == HELD_OUT
    assert book.samples_between("a", (0, 4), (3, 1)) == (padded - 48) + 2 * padded + 3 * HELD_OUT + 12


def test_a_lane_s_tail_pads_the_job_that_needs_most(
    rank: Callable[..., Rank], runtime: Runtimes, cluster: Callable[..., ClusterMap]
) -> None:
    me = rank(runtime({"name": "a"}, {"name": "b", "virtual_workers": 4}), cluster(trainers=3, nodes=2))
    book = book_of(me, 3)
    first = book.place_of("a", 1, 0)
    lane = book.lane(0, first, {"a": None, "b": None}, readers=(1, 3))
    assert lane.schedule.tail == 2, "b's four virtual workers have 13 samples each"
    assert (lane.schedule.length, lane.schedule.held_out, lane.schedule.first_epoch) == (SAMPLES, HELD_OUT, 1)
    assert lane.readers == {1: (0, 1)}, "ranks 1 and 3 are the first and the second of the second node"


def test_a_lane_ends_with_the_last_epoch_that_its_jobs_may_read(rank: Callable[..., Rank], runtime: Runtimes) -> None:
    stops = [{"name": name, "stop": {"epochs": epochs}} for name, epochs in (("a", 3), ("b", 5))]
    book = book_of(rank(runtime(*stops)))
    first = book.place_of("a", 1, 0)
    readers: list[dict[str, int | None]] = [{"a": None}, {"a": None, "b": None}, {"a": 2, "b": 2}]
    assert [book.lane(0, first, jobs, (1,)).schedule.last_epoch for jobs in readers] == [2, 4, 1]


def test_each_opening_of_a_lane_is_told_from_the_last(rank: Callable[..., Rank]) -> None:
    me = rank()
    book = book_of(me)
    first = book.place_of("net", 0, 0)
    assert book.lane(0, first, {"net": None}, (1,)).generation < book.lane(0, first, {"net": None}, (1,)).generation


def test_a_lane_says_from_which_epoch_on_others_await_its_stream(rank: Callable[..., Rank], runtime: Runtimes) -> None:
    me = rank(runtime({"name": "a", "seed": 5}, {"name": "b", "seed": 6}, {"name": "c", "seed": 5}))
    book = book_of(me)
    lanes = [book.lane(0, book.place_of(job, 0, 0), {job: None}, (1,)) for job in "abc"]
    assert [lane.awaited_from for lane in lanes] == [3, None, None]


def test_a_job_with_a_part_of_its_own_lies_where_its_samples_pass(rank: Callable[..., Rank], runtime: Runtimes) -> None:
    me = rank(runtime({"name": "a", "seed": 5}, {"name": "b", "seed": 5, "subset": list(range(0, SAMPLES, 2))}))
    book = book_of(me)
    order = epoch_order(SAMPLES, 5, 2).tolist()
    own = [place for place, sample in enumerate(order) if sample % 2 == 0]
    places = [book.place_of("b", 2, step) for step in range(5)]  # 25 samples, 8 a step
    assert [found.place for found in places] == [0, own[8], own[16], own[24], SAMPLES]
    assert {found.key for found in places} == {book.place_of("a", 2, 0).key}, "they read one stream"
    lane = book.lane(0, places[0], {"a": None, "b": None}, (1,))
    assert lane.schedule.tail == own[0] + 1, "b may come in the midst of the epoch, and its 26th sample is its first"
    assert lane.schedule.length == SAMPLES
