"""A preprocessor rank's life: fill the lanes that it is told of, answer in between."""

from __future__ import annotations

import math
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fleet.coordination.mailbox import Mailbox
from fleet.coordination.protocol import (
    TO_COORDINATOR,
    TO_PREPROCESSOR,
    CloseLane,
    MakeRing,
    MeasureThroughput,
    Message,
    OpenLane,
    ReplaceWriter,
    SampleRate,
    SampleSkipped,
    SamplesMade,
    SampleTorn,
    Shutdown,
    SkipSamples,
    StreamAwaited,
)
from fleet.machine.standard_streams import tell
from fleet.workers.agreement import lines_of, sentence_of
from fleet.workers.rank import Rank
from fleet.workers.runtime import Runtime
from preprocess.files.memory import memory_to_keep_samples
from preprocess.making.costs import bytes_of_prepared, is_divided, made_rates, open_stores
from preprocess.making.preprocessor import Preprocessor
from preprocess.ring.ring import Ring
from preprocess.ring.shared_memory import use_one_thread
from preprocess.samples.errors import CorruptLimitError, SampleError, SkippedSample
from preprocess.samples.order import HELD_OUT, TRAIN
from preprocess.samples.stream import LaneSpec
from preprocess.store.finished_samples import FinishedSamples
from preprocess.store.sample_store import SampleStore, StoreBudget

_IDLE_SECONDS = 0.2


class PreprocessorRank:
    """Serves the coordinator's orders and makes samples in between.

    Args:
        rank: this rank.
        moves: called now and then: this rank is not stuck.
    """

    def __init__(self, rank: Rank, moves: Callable[[], None] = lambda: None) -> None:
        self._rank, self._moves = rank, moves
        self._mailbox = rank.mailbox(TO_PREPROCESSOR)
        self._number = [place.rank for place in rank.cluster.preprocessors].index(rank.number)  # among all
        self._maker: SampleMaker | None = None  # once there is a ring: this one, and lost ones that it is now
        tell_of_skips(rank, self._mailbox)

    def run(self) -> int:
        """Serve until told to shut down; returns the exit code."""
        use_one_thread()
        while True:
            self._moves()
            busy = self._maker is not None and self._maker.is_busy
            message = self._mailbox.receive(0.0 if busy else _IDLE_SECONDS)
            if isinstance(message, Shutdown):
                return message.code
            if message is not None:
                self._obey(message)
            elif self._maker is not None and busy:
                self._maker.work()
            self._rank.report_signal()

    def _obey(self, message: Message) -> None:
        if isinstance(message, SkipSamples):
            skip(self._rank, message)
        elif isinstance(message, MakeRing):
            self._maker = SampleMaker(self._rank, self._mailbox, self._rank.make_ring(message), message)
            self._maker.become(self._number)
        elif isinstance(message, MeasureThroughput):
            self._measure(message)
        elif self._maker is not None:  # what follows comes once there is a ring
            self._fill(self._maker, message)

    def _fill(self, maker: SampleMaker, message: Message) -> None:
        if isinstance(message, ReplaceWriter):
            maker.become(message.writer)
        elif isinstance(message, OpenLane):
            maker.open_lane(message.lane)
        elif isinstance(message, CloseLane):
            maker.close_lane(message.lane)
        elif isinstance(message, StreamAwaited):
            maker.keep_awaited(message)

    def _measure(self, order: MeasureThroughput) -> None:
        kept = kept_part(self._rank, order.data)
        try:
            made = made_rates(self._rank.datasets[order.data], order.seconds, kept=kept)
        except CorruptLimitError:
            return  # the coordinator has heard of as many samples, and ends the session
        except SampleError as error:
            tell_of_torn(self._rank, self._mailbox, error)
            return
        self._mailbox.send(0, TO_COORDINATOR, SampleRate(self._rank.number, made.later, made.first))


_WORK_SECONDS = 0.005  # between looks for messages, each of which lets busy ranks of the host go first
_NAP_SECONDS = 0.005  # between looks for room in the lanes of several makers


class SampleMaker:
    """Makes samples between two messages, as one preprocessor or as several.

    Args:
        rank: this rank, whose data sets are open.
        mailbox: of the thread that makes them.
        ring: the node's.
        order: by which that was made.
    """

    def __init__(self, rank: Rank, mailbox: Mailbox, ring: Ring, order: MakeRing) -> None:
        self._rank, self._mailbox, self._ring, self._nodes = rank, mailbox, ring, rank.nodes(order)
        self._making: list[Preprocessor] = []

    @property
    def is_busy(self) -> bool:
        """Whether a lane is to be filled, or something of one is under way."""
        return any(not each.rests for each in self._making)

    def become(self, number: int) -> Preprocessor:
        """Be the preprocessor of that number, too, for good: what it has made counts as long as the run goes on."""
        known = next((each for each in self._making if each.index == number), None)
        if known is None:
            kept = kept_of(self._rank, self._ring, number)
            patience, slots = self._rank.runtime.timeout, self._rank.ties.slots
            known = Preprocessor(
                self._ring, number, self._rank.datasets, self._nodes, slots, patience, kept.stores, kept.finished
            )
            self._making.append(known)
        return known

    def open_lane(self, lane: LaneSpec) -> None:
        """Fill the lane as all those of its makers that this rank is."""
        for each in self._making:
            if lane.is_made_by(each.index):
                each.open_lane(lane)

    def close_lane(self, lane: int) -> None:
        """Fill the lane no more, and tell what was made so far."""
        for each in self._making:
            each.close_lane(lane)
        laid, made = Counter[str](), Counter[str]()
        for each in self._making:
            statistics = each.statistics
            laid.update(statistics.samples_of_data)
            made.update(statistics.prepared)
        self._mailbox.send(0, TO_COORDINATOR, SamplesMade(self._rank.number, dict(laid), dict(made)))

    def keep_awaited(self, news: StreamAwaited) -> None:
        """Keep finished samples of a stream that are read again, and no others."""
        for each in self._making:
            each.keep_awaited(news.data, news.seed, news.waiting, news.reading)

    def keep_nothing(self) -> None:
        """Drop all finished samples."""
        for each in self._making:
            each.keep_nothing()

    def work(self) -> None:
        """Let each make slots where there is room, for some milliseconds; where nobody can, sleep until somebody may.

        Raises:
            RingTimeout: see `Preprocessor.step`.
        """
        end = time.monotonic() + _WORK_SECONDS
        while busy := [each for each in self._making if not each.rests]:
            try:
                made = [each.step() for each in busy]
            except CorruptLimitError:
                self.give_up()
                return
            except SampleError as error:
                tell_of_torn(self._rank, self._mailbox, error)
                self.give_up()
                return
            if not any(made):
                busy[0].wait(self._mailbox.pause if len(busy) == 1 else _NAP_SECONDS, self._mailbox.rest)
                return
            if time.monotonic() > end:
                return

    def give_up(self) -> None:
        """Make no more: samples are corrupt, of which the coordinator has heard, and ends the session."""
        self._making = []


def tell_of_torn(rank: Rank, mailbox: Mailbox, error: SampleError) -> None:
    """Let the coordinator hear of a sample that cannot be made."""
    mailbox.send(0, TO_COORDINATOR, SampleTorn(rank.number, error.data, sentence_of(error), lines_of(error)))


def tell_of_skips(rank: Rank, mailbox: Mailbox) -> None:
    """Let the coordinator hear of each sample that this rank's data sets skip."""

    def tell(sample: SkippedSample) -> None:
        mailbox.send(0, TO_COORDINATOR, SampleSkipped(rank.number, sample))

    for dataset in rank.datasets.values():
        dataset.report_skips(tell)


def skip(rank: Rank, order: SkipSamples) -> None:
    """Take samples as corrupt, as an earlier session found them."""
    rank.datasets[order.data].skip_always(TRAIN, order.train)
    rank.datasets[order.data].skip_always(HELD_OUT, order.held_out)


_GIB = 2**30
_UNASKED = 0.25
"""Where nobody says how much memory there is, finished samples take at most this part of what is for kept ones."""


def keeps(runtime: Runtime, data: str, writers: int) -> bool:
    """Whether preprocessors keep what they have prepared of a data set, so that each makes samples of its own."""
    facts, store = runtime.facts[data], runtime.spec.resources.store
    asked = store.memory is None or store.memory > 0 or store.disk > 0
    return asked and facts.kept and _has_own(runtime, data, writers)


def divides(runtime: Runtime, data: str, writers: int) -> bool:
    """Whether each preprocessor makes samples of its own: those that it keeps, or those of the blocks that it reads."""
    by_blocks = writers > 1 and runtime.facts[data].blocks is not None
    return keeps(runtime, data, writers) or (by_blocks and _has_own(runtime, data, writers))


def _has_own(runtime: Runtime, data: str, writers: int) -> bool:
    facts = runtime.facts[data]
    return runtime.rehearsal is None and is_divided(facts.samples, facts.held_out, writers, facts.blocks)


@dataclass(frozen=True)
class Kept:
    """What a preprocessor keeps of samples: prepared ones by data set, and finished ones, if any."""

    stores: Mapping[str, SampleStore]
    finished: FinishedSamples | None


def kept_of(rank: Rank, ring: Ring, number: int) -> Kept:
    """What the preprocessor of that number keeps on this rank's node, whose ring is there; finished samples have the
    memory that prepared ones leave.
    """
    if rank.runtime.rehearsal is not None:
        return Kept({}, None)
    kept = {name: data for name, data in rank.datasets.items() if keeps(rank.runtime, name, ring.shape.writers)}
    budget = _budget(rank, max(1, _neighbours(rank)))
    stores = open_stores(kept, budget, ring.shape, number, lambda text: tell(f"rank {rank.number}: {text}"))
    left = budget.memory - sum(store.memory for store in stores.values())
    if rank.runtime.spec.resources.store.memory is None:
        left = min(left, round(_UNASKED * budget.memory))
    return Kept(stores, FinishedSamples(left, ring.shape.writers) if left > 0 else None)


def kept_part(rank: Rank, name: str) -> float:
    """Which part of a data set's samples this rank's node has room for among those that are its preprocessors' own."""
    writers = len(rank.cluster.preprocessors)
    if not keeps(rank.runtime, name, writers):
        return 0.0
    dataset, facts, budget = rank.datasets[name], rank.runtime.facts[name], _budget(rank, _neighbours(rank))
    need = bytes_of_prepared(dataset) * (facts.samples + facts.held_out) / writers
    return min(1.0, (budget.memory + budget.disk) / need) if need else 0.0


def _neighbours(rank: Rank) -> int:
    """Preprocessors of this rank's node."""
    here = rank.cluster.places[rank.number].node
    return sum(place.node == here for place in rank.cluster.preprocessors)


def _budget(rank: Rank, preprocessors: int) -> StoreBudget:
    """One preprocessor's part of the node's, of which there are so many there."""
    asked, limit = rank.runtime.spec.resources.store, rank.runtime.spec.resources.memory_gib
    memory = asked.memory
    if memory is None:
        memory = memory_to_keep_samples(math.inf if limit is None else limit * _GIB) / _GIB
    size, disk = (int(gib * _GIB / preprocessors) for gib in (memory, asked.disk))
    return StoreBudget(size, disk, asked.path or tempfile.gettempdir())
