"""Lanes between pretended nodes: all readers of all lanes see what one process alone would make.

Arguments: the data set as JSON, number of nodes, of preprocessors, of rounds, a seed.

Every round opens a lane with another stream, for some of the preprocessors to fill. Each of these makes a random number
of slots and closes; each reader reads a random number of samples at its own pace and leaves; each node's receiver is
told to close some of the lanes as soon as the node's own readers have left. All ranks draw the same plan from the seed;
nothing else is agreed between them, so that a lane is closed and opened anew whatever state the others are in.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from benchmarks.closing import close_all
from preprocess import Dataset, DatasetSpec
from preprocess.making.broadcast import NodeMap, SlotReceiver
from preprocess.making.costs import open_stores
from preprocess.making.preprocessor import Preprocessor
from preprocess.ring.lane_memory import lane_bytes
from preprocess.ring.ring import Ring
from preprocess.samples.layout import places_in
from preprocess.samples.stream import LanePortions, LaneSchedule, LaneSpec, StreamKey
from preprocess.store.sample_store import StoreBudget

SLOT = 4
LANES = 2
PATIENCE = 50.0
RECEIVERS = 1000  # in the seeds' paths, beside the nodes' numbers


@dataclass(frozen=True)
class Round:
    spec: LaneSpec
    slots_made: dict[int, int]  # by each preprocessor that fills it
    samples_read: dict[tuple[int, int], int]  # by each (node, reader)


def plan(seed: int, rounds: int, node_sizes: list[int], makers: int, dataset: Dataset) -> list[Round]:
    rng = np.random.default_rng(seed)
    planned = []
    generations = [0] * LANES
    for _ in range(rounds):
        lane = int(rng.integers(LANES))
        generations[lane] += int(rng.integers(1, 3))
        schedule = LaneSchedule(
            dataset.length, int(rng.integers(5)), dataset.held_out, int(rng.integers(3)), int(rng.integers(103))
        )
        everyone = [(node, reader) for node, size in enumerate(node_sizes) for reader in range(size)]
        chosen = [who for who in everyone if rng.random() < 0.7] or everyone
        readers = {node: tuple(r for n, r in chosen if n == node) for node in sorted({n for n, _ in chosen})}
        stream = StreamKey(dataset.name, int(rng.integers(3)), schedule.first_epoch)
        working = tuple(rng.permutation(makers)[: int(rng.integers(1, makers + 1))].tolist())
        spec = LaneSpec(lane, generations[lane], stream, schedule, dataset.layout, readers, 4 * SLOT * makers, working)
        made = {maker: int(rng.integers(0, 12)) for maker in working}
        if rng.random() < 0.5:
            spec = replace(spec, divided=True)
            made = {maker: _up_to_a_sample(spec, dataset, makers, maker, slots) for maker, slots in made.items()}
            whole = min(made.values()) * SLOT
        else:
            whole = min(place + made[maker] * len(working) for place, maker in enumerate(working)) * SLOT
        planned.append(Round(spec, made, {who: int(rng.integers(0, whole + 1)) for who in chosen}))
    return planned


def _up_to_a_sample(spec: LaneSpec, dataset: Dataset, makers: int, maker: int, slots: int) -> int:
    """At most so many slots, the last of which has a sample of the maker: it ends there."""
    parts = LanePortions(spec, SLOT, makers, dataset.orders)
    return max((slot + 1 for slot in range(slots) if len(parts.rows(maker, slot))), default=0)


def _samples(planned: Round, dataset: Dataset, makers: int, maker: int) -> int:
    """Samples that a maker makes in a round."""
    if not planned.spec.divided:
        return planned.slots_made[maker] * SLOT
    parts = LanePortions(planned.spec, SLOT, makers, dataset.orders)
    return sum(len(parts.rows(maker, slot)) for slot in range(planned.slots_made[maker]))


def expected(dataset: Dataset, spec: LaneSpec, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, targets, and what was taken in each one's place."""
    (inputs, targets), seed = dataset.layout.empty(count), spec.stream.seed
    taken: list[int] = []
    place = places_in(inputs)
    for span in spec.schedule.spans(0, count):
        for sample in dataset.samples_of(span, seed).tolist():
            row = len(taken)
            taken.append(dataset.make(span.kind, seed, span.epoch, sample, place(row), targets[row : row + 1]))
    return inputs, targets, np.array(taken, np.int64)


def run_maker(preprocessor: Preprocessor, index: int, rounds: list[Round], dataset: Dataset, makers: int) -> None:
    for planned in rounds:
        lane = planned.spec.lane
        if not planned.spec.is_made_by(index):
            continue
        before = preprocessor.statistics.samples_of_lane.get(lane, 0)
        wanted = _samples(planned, dataset, makers, index)
        preprocessor.open_lane(planned.spec)
        while preprocessor.statistics.samples_of_lane.get(lane, 0) - before < wanted:
            if not preprocessor.step():
                if preprocessor.is_deserted(lane):
                    break
                preprocessor.wait(0.05)
        preprocessor.close_lane(lane)
    close_all(preprocessor, (), PATIENCE)


def run_receiver(receiver: SlotReceiver, ring: Ring, rounds: list[Round], node: int, seed: int) -> None:
    rng = np.random.default_rng([seed, RECEIVERS, node])
    told: dict[int, int] = {}  # lane -> generation

    def readers_have_left(lane: int) -> bool:
        return ring.lanes[lane].generation == told[lane] and not ring.lanes[lane].active_readers

    def drive_until(holds: Callable[[], bool]) -> None:
        while not holds():
            if not receiver.step():
                receiver.wait(0.05)

    for planned in rounds:
        lane = planned.spec.lane
        if lane in told and rng.random() < 0.5:
            drive_until(partial(readers_have_left, lane))
            receiver.close_lane(lane)
        receiver.open_lane(planned.spec)
        told[lane] = planned.spec.generation
    drive_until(lambda: all(map(receiver.is_closed, told)))


def run_reader(ring: Ring, dataset: Dataset, who: tuple[int, int], rounds: list[Round], seed: int) -> int:
    rng = np.random.default_rng([seed, *who])
    read = 0
    for planned in rounds:
        if who not in planned.samples_read:
            continue
        spec, stop = planned.spec, planned.samples_read[who]
        inputs, targets, taken = expected(dataset, spec, stop)
        reader = ring.lanes[spec.lane].reader(who[1], spec.layout, spec.generation, PATIENCE)
        at = 0
        while at < stop:
            until = min(at + int(rng.integers(1, 3 * SLOT)), stop, reader.released + reader.certain)
            if rng.random() < 0.5:
                assert reader.wait(until, PATIENCE)
                found, said = reader.take(np.arange(at, until)), reader.substitutes(np.arange(at, until))
                reader.release(until)
            else:
                said = np.empty(until - at, np.int64)
                gathered = reader.gather(np.arange(at, until), PATIENCE, substitutes=said)
                assert gathered is not None
                found = gathered
            alike = [np.array_equal(one, other) for one, other in zip(found[0], inputs[at:until], strict=True)]
            assert all(alike), (who, spec.generation, at)
            assert np.array_equal(found[1], targets[at:until]), (who, spec.generation, at)
            assert np.array_equal(said, taken[at:until]), (who, spec.generation, at)
            at = until
        reader.leave()
        read += stop
    return read


def main() -> None:
    values, nodes, makers, rounds, seed = sys.argv[1], *map(int, sys.argv[2:])
    world = MPI.COMM_WORLD
    node_of = [rank * nodes // world.size for rank in range(world.size)]
    node = node_of[world.rank]
    node_comm: Any = world.Split(node, world.rank)
    slots = world.Dup()
    dataset = Dataset(DatasetSpec.from_json(json.loads(values)))
    maker_ranks = tuple(index * world.size // makers for index in range(makers))
    where = NodeMap(maker_ranks, tuple(node_of[r] for r in maker_ranks), tuple(node_of.index(n) for n in range(nodes)))
    ring = Ring.create(node_comm, LANES, lane_bytes(dataset.layout, 64, SLOT, makers), SLOT, makers)
    planned = plan(seed, rounds, [node_of.count(n) for n in range(nodes)], makers, dataset)

    failures: list[BaseException] = []

    def guarded(body: Callable[..., object], *arguments: object) -> threading.Thread:
        def run() -> None:
            try:
                body(*arguments)
            except BaseException as error:
                import traceback

                traceback.print_exc()
                failures.append(error)
                world.Abort(3)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    threads = []
    if world.rank in where.receivers:
        receiver = SlotReceiver(ring, node, where, slots, PATIENCE)
        threads.append(guarded(run_receiver, receiver, ring, planned, node, seed))
    if world.rank in maker_ranks:
        index = maker_ranks.index(world.rank)
        own = Dataset(DatasetSpec.from_json(json.loads(values)))
        stores = open_stores({own.name: own}, StoreBudget(40_000), ring.shape, index, print)
        preprocessor = Preprocessor(ring, index, {own.name: own}, where, slots, PATIENCE, stores)
        threads.append(guarded(run_maker, preprocessor, index, planned, own, makers))
    read = run_reader(ring, dataset, (node, node_comm.rank), planned, seed)
    for thread in threads:
        thread.join()
    everybody = world.Ibarrier()
    while not everybody.Test():  # a waiting Barrier would take a core from those who still work
        time.sleep(0.002)
    assert not slots.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG), "a message was never received"
    total = world.allreduce(read)
    if world.rank == 0:
        print(f"read {total} samples in {rounds} rounds", flush=True)
    ring.free()


if __name__ == "__main__":
    main()
