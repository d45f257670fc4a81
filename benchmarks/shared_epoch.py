"""One epoch that all ranks of a job read, and what it took.

A rank's program: `python -m mpi4py -m benchmarks.shared_epoch EPOCH`, where EPOCH is an `Epoch` as JSON. The lowest
rank of each node receives for the node, preprocessor i works on the highest rank of node i (round about), and every
rank reads the whole epoch and hashes it. Rank 0 ends its output with one line of JSON, see `Outcome`.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from benchmarks.closing import close_all
from fleet.machine.cluster_map import gather
from preprocess import Dataset, DatasetSpec, Source, SourceSpec
from preprocess.making.broadcast import NodeMap, SlotReceiver, Traffic
from preprocess.making.costs import open_stores
from preprocess.making.preprocessor import Preprocessor
from preprocess.ring.lane_memory import lane_bytes
from preprocess.ring.ring import LaneReader, Ring
from preprocess.samples.layout import Array
from preprocess.samples.order import TRAIN
from preprocess.samples.stream import LaneSchedule, LaneSpec, StreamKey
from preprocess.store.sample_store import SampleStore, StoreBudget

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["Epoch", "Images", "Outcome", "digest_alone"]

SLOT_SAMPLES = 16
PATIENCE = 100.0
SEED = 5


class Images:
    """A map-style data set of cheap images that cannot be compressed: noise that is a function of the index alone."""

    def __init__(self, count: int, side: int) -> None:
        self._count, self._shape = count, (side, side, 3)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[Array, int]:
        if not 0 <= index < self._count:
            raise IndexError(index)
        return np.random.default_rng(index).integers(0, 256, self._shape, np.uint8), index


@dataclass(frozen=True)
class Epoch:
    """What is made and read.

    Attributes:
        images: how many, of `side` x `side` x 3 bytes each.
        side: their side in pixels.
        preprocessors: how many make them.
        nodes: how many nodes to pretend, in blocks of ranks; 0: those that MPI finds.
        ring_samples: how many a node holds at once.
        epochs: how many are made and read.
        kept: preprocessors keep what they have read; together they have room for all of it.
    """

    images: int = 2000
    side: int = 64
    preprocessors: int = 1
    nodes: int = 0
    ring_samples: int = 256
    epochs: int = 1
    kept: bool = False

    @property
    def samples(self) -> int:
        """What each reader reads."""
        return self.images * self.epochs

    def dataset(self) -> CountingDataset:
        """Open the data set."""
        source = SourceSpec("benchmarks.shared_epoch:Images", {"count": self.images, "side": self.side})
        return CountingDataset(DatasetSpec("images", source, transforms=({"flip": {}},), store=self.kept))


@dataclass(frozen=True)
class Outcome:
    """What all ranks together saw.

    Attributes:
        nodes: how many there were.
        data_bytes: what all samples need as they lie in a ring.
        digests: what each rank read, as a hash.
        samples_made: by all preprocessors.
        times_decoded: how often a sample was decoded -> how many samples.
        received: slots and bytes that came to each node, as its receiver counted them.
        sent: slots and bytes that left each node, sent by its preprocessors and its receiver.
        seconds: from the opening until the slowest rank had read all.
    """

    nodes: int
    data_bytes: int
    digests: list[str]
    samples_made: int
    times_decoded: dict[int, int]
    received: list[Traffic]
    sent: list[Traffic]
    seconds: float

    @classmethod
    def from_json(cls, text: str) -> Outcome:
        """Read what rank 0 printed last."""
        values = json.loads(text)
        values["times_decoded"] = {int(times): samples for times, samples in values["times_decoded"].items()}
        for key in ("received", "sent"):
            values[key] = [Traffic(**each) for each in values[key]]
        return cls(**values)


class CountingDataset(Dataset):
    """A data set that counts how often each of its samples was read.

    Attributes:
        decoded: sample -> how often.
    """

    def __init__(self, spec: DatasetSpec) -> None:
        super().__init__(spec)
        self.decoded: Counter[int] = Counter()
        part = self.preparation(TRAIN)
        part.source = _CountedSource(part.source, self.decoded)


class _CountedSource:
    def __init__(self, source: Source, read: Counter[int]) -> None:
        self._source, self._read, self.layout = source, read, source.layout

    def __len__(self) -> int:
        return len(self._source)

    def read(self, index: int) -> tuple[Array, Any]:
        self._read[index] += 1
        return self._source.read(index)


def digest_alone(epoch: Epoch) -> str:
    """Return the hash of the epoch's samples as one data set makes them, without ring, network or MPI."""
    dataset = epoch.dataset()
    digest = hashlib.sha256()
    schedule = _schedule(epoch)
    for start in range(0, epoch.samples, SLOT_SAMPLES):
        inputs, targets = dataset.layout.empty(min(SLOT_SAMPLES, epoch.samples - start))
        for _ in dataset.fill(schedule, SEED, start, inputs, targets):
            pass
        digest.update(inputs.tobytes() + targets.tobytes())
    return digest.hexdigest()


class _Rank:
    """One rank's part."""

    def __init__(self, epoch: Epoch, world: MPI.Intracomm) -> None:
        self.epoch, self.world = epoch, world
        node_comm = _node_comm(epoch, world)
        first = np.array([world.rank], np.int64)
        node_comm.Bcast(first, 0)
        lowest = [int(said["lowest"]) for said in gather(world, {"lowest": int(first[0])})]
        receivers = sorted(set(lowest))
        self.node_of = [receivers.index(rank) for rank in lowest]
        self.node, self.reader_number = self.node_of[world.rank], node_comm.rank
        self.dataset = epoch.dataset()
        self.nodes = self._place(len(receivers), tuple(receivers))
        self.spec = self._lane()
        size = lane_bytes(self.dataset.layout, epoch.ring_samples, SLOT_SAMPLES, epoch.preprocessors)
        self.ring = Ring.create(node_comm, 1, size, SLOT_SAMPLES, epoch.preprocessors)
        slots = world.Dup()
        self.receiver = SlotReceiver(self.ring, self.node, self.nodes, slots, PATIENCE)
        self.preprocessors = [
            Preprocessor(self.ring, index, {"images": self.dataset}, self.nodes, slots, PATIENCE, self._stores(index))
            for index, rank in enumerate(self.nodes.makers)
            if rank == world.rank
        ]
        self.dataset.decoded.clear()  # a store looks at a few samples to see what they take

    def run(self) -> Outcome | None:
        """Make, receive and read; returns what all saw, on rank 0."""
        self.world.Barrier()
        start = time.monotonic()
        works: list[Callable[[], None]] = [self._receive] if self.world.rank in self.nodes.receivers else []
        works += [partial(self._make, preprocessor) for preprocessor in self.preprocessors]
        threads = [threading.Thread(target=self._guarded, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        digest = self._read()
        seconds = time.monotonic() - start
        for thread in threads:
            thread.join()
        outcome = self._gather(digest, seconds)
        self.ring.free()
        return outcome

    def _stores(self, index: int) -> dict[str, SampleStore]:
        """Where a preprocessor keeps what it has read."""
        if not self.epoch.kept:
            return {}
        budget = StoreBudget(2 * self.epoch.images * self.dataset.layout.input_bytes // self.epoch.preprocessors)
        return open_stores({"images": self.dataset}, budget, self.ring.shape, index, print)

    def _place(self, nodes: int, receivers: tuple[int, ...]) -> NodeMap:
        """The highest rank of node i makes samples, so that it is not the one that receives where there are two."""
        homes = tuple(index % nodes for index in range(self.epoch.preprocessors))
        ranks = tuple(max(rank for rank, node in enumerate(self.node_of) if node == home) for home in homes)
        return NodeMap(ranks, homes, receivers)

    def _lane(self) -> LaneSpec:
        readers = {node: tuple(range(self.node_of.count(node))) for node in sorted(set(self.node_of))}
        schedule = _schedule(self.epoch)
        key, divided = StreamKey("images", SEED, 0), self.epoch.kept
        return LaneSpec(0, 1, key, schedule, self.dataset.layout, readers, divided=divided)

    def _make(self, preprocessor: Preprocessor) -> None:
        preprocessor.open_lane(self.spec)
        while not preprocessor.is_deserted(0):
            if not preprocessor.step():
                preprocessor.wait(0.05)
        close_all(preprocessor, [0], PATIENCE)

    def _receive(self) -> None:
        self.receiver.open_lane(self.spec)
        while not self.receiver.is_closed(0):
            if not self.receiver.step():
                self.receiver.wait(0.05)

    def _read(self) -> str:
        reader: LaneReader = self.ring.lanes[0].reader(self.reader_number, self.dataset.layout, 1, PATIENCE)
        digest = hashlib.sha256()
        for start in range(0, self.epoch.samples, SLOT_SAMPLES):
            samples = reader.gather(np.arange(start, min(start + SLOT_SAMPLES, self.epoch.samples)), PATIENCE)
            assert samples is not None
            digest.update(samples[0].tobytes() + samples[1].tobytes())
            reader.release(start + SLOT_SAMPLES)
        reader.leave()
        return digest.hexdigest()

    def _gather(self, digest: str, seconds: float) -> Outcome | None:
        made = [preprocessor.statistics for preprocessor in self.preprocessors]
        sent = [*self.receiver.sent.totals.values(), *(traffic for one in made for traffic in one.sent.values())]
        mine = {
            "node": self.node,
            "digest": digest,
            "seconds": seconds,
            "made": sum(one.samples for one in made),
            "decoded": list(self.dataset.decoded.items()),
            "received": asdict(sum(self.receiver.received.totals.values(), Traffic())),
            "sent": asdict(sum(sent, Traffic())),
        }
        everybody = gather(self.world, mine)
        return self._sum_up(everybody) if self.world.rank == 0 else None

    def _sum_up(self, everybody: list[dict[str, Any]]) -> Outcome:
        decoded: Counter[int] = Counter()
        for one in everybody:
            decoded.update(dict(one["decoded"]))
        layout, nodes = self.dataset.layout, len(self.nodes.receivers)

        def of_node(key: str, node: int) -> Traffic:
            return sum((Traffic(**one[key]) for one in everybody if one["node"] == node), Traffic())

        return Outcome(
            nodes,
            self.epoch.samples * (layout.input_bytes + layout.target_bytes),
            [one["digest"] for one in everybody],
            sum(one["made"] for one in everybody),
            dict(Counter(decoded.values())),
            [of_node("received", node) for node in range(nodes)],
            [of_node("sent", node) for node in range(nodes)],
            max(one["seconds"] for one in everybody),
        )

    def _guarded(self, work: Callable[[], None]) -> None:
        """A thread's error ends the job."""
        try:
            work()
        except BaseException:
            traceback.print_exc()
            self.world.Abort(1)


def _schedule(epoch: Epoch) -> LaneSchedule:
    return LaneSchedule(epoch.images, last_epoch=epoch.epochs - 1)


def _node_comm(epoch: Epoch, world: MPI.Intracomm) -> MPI.Intracomm:
    from mpi4py import MPI

    if epoch.nodes == 0:
        found = world.Split_type(MPI.COMM_TYPE_SHARED, world.rank)
    else:
        found = world.Split(world.rank * epoch.nodes // world.size, world.rank)
    return cast("MPI.Intracomm", found)


def _take_part() -> None:
    from mpi4py import MPI

    outcome = _Rank(Epoch(**json.loads(sys.argv[1])), MPI.COMM_WORLD).run()
    if outcome is not None:
        print(json.dumps(asdict(outcome)), flush=True)


if __name__ == "__main__":
    _take_part()
