"""A trainer that has no network, and prepares samples for others until it gets one."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch

from fleet.coordination.failures import CannotGoOnError
from fleet.coordination.mailbox import Mailbox
from fleet.coordination.protocol import TO_COORDINATOR, CloseLane, MakeRing, PrepareLane, SampleSkipped, SkipSamples
from fleet.spec.job import data_key
from fleet.spec.subsets import part_of
from fleet.workers.feed import MakeSubstitute
from fleet.workers.rank import Rank, time_limit
from preprocess.ring.ring import Ring
from preprocess.ring.shared_memory import use_one_thread
from preprocess.samples.layout import Array, InputPlace
from preprocess.samples.order import HELD_OUT, TRAIN, Mask
from trainers.repeatable.determinism import use_deterministic
from trainers.repeatable.random_state import RandomState

if TYPE_CHECKING:
    from fleet.workers.preprocessor_rank import SampleMaker
    from preprocess import Dataset
    from preprocess.samples.errors import SkippedSample


class HelperPreprocessor:
    """The preprocessor that a trainer is meanwhile. It opens its data sets, and loads what makes samples, at first use.

    Args:
        rank: this rank.
        mailbox: the trainer's.
        moves: called now and then: this rank is not stuck.

    Attributes:
        skips: what earlier sessions found corrupt.
    """

    def __init__(self, rank: Rank, mailbox: Mailbox, moves: Callable[[], None]) -> None:
        self._rank, self._mailbox, self._moves = rank, mailbox, moves
        self._ring: tuple[Ring, MakeRing] | None = None
        self.skips: list[SkipSamples] = []
        self._maker: SampleMaker | None = None  # from the first lane on
        self._role: ExitStack | None = None  # while it computes as preprocessors do

    def learn(self, ring: Ring, order: MakeRing) -> None:
        """Know the node's ring."""
        self._ring = ring, order

    def obey(self, order: SkipSamples | PrepareLane | CloseLane) -> None:
        """Carry out an order of those that preprocessors get."""
        if isinstance(order, SkipSamples):
            self.skips.append(order)
        elif isinstance(order, PrepareLane):
            self._begin(order)
        elif self._maker is not None:
            self._maker.close_lane(order.lane)
            self._end_if_over()

    @property
    def is_busy(self) -> bool:
        """Whether it has lanes to fill, or to close."""
        return self._maker is not None and self._maker.is_busy

    def work(self) -> None:
        """Make a slot, or wait shortly for room for one."""
        assert self._maker is not None
        self._maker.work()
        self._end_if_over()

    def give_back(self) -> None:
        """See that nothing is left of the lanes that it was told to close, nor of what it has kept, before it trains.

        Raises:
            CannotGoOnError: that took too long.
        """
        timeout = self._rank.runtime.timeout
        deadline = time.monotonic() + timeout
        while self.is_busy:
            self._moves()
            self.work()
            if time.monotonic() > deadline:
                raise CannotGoOnError(
                    f"rank {self._rank.number} waited {timeout:g} s for rank 0 to open and close the lanes that this "
                    "trainer has prepared samples for"
                )
        if self._maker is not None:
            self._maker.keep_nothing()  # the memory is the network's now

    def _begin(self, order: PrepareLane) -> None:
        if self._maker is None:
            assert self._ring is not None, "lanes are opened after rings are made"
            from fleet.workers.preprocessor_rank import SampleMaker

            self._open_data()
            self._maker = SampleMaker(self._rank, self._mailbox, *self._ring)
        self._be_like_preprocessors()
        self._maker.become(order.writer).open_lane(order.lane)  # its earlier numbers may be others' by now

    def _open_data(self) -> None:
        from fleet.workers.datasets import hold_alike, open_datasets
        from fleet.workers.preprocessor_rank import skip, tell_of_skips

        rank, seconds = self._rank, self._rank.runtime.timeout
        late = (
            f"rank {rank.number} has been opening the data for {seconds:g} s to prepare samples, a source has not come "
            f"back; if that really takes so long, raise resources.timeout (now {seconds:g} s)"
        )
        with time_limit(rank.world, seconds, late):
            rank.datasets = open_datasets(rank.runtime.spec)
            hold_alike(rank.runtime, rank.datasets, rank.number)
        tell_of_skips(rank, self._mailbox)
        for order in self.skips:
            skip(rank, order)

    def _be_like_preprocessors(self) -> None:
        """Samples shall have the bits that preprocessors give them, also where transforms compute with torch."""
        if self._role is None:
            self._role = ExitStack()
            self._role.enter_context(like_preprocessors())

    def _end_if_over(self) -> None:
        """Once nothing is left to do, let torch compute as training had it, on which that has its bits."""
        if self._role is not None and not self.is_busy:
            self._role.close()
            self._role = None


_CPU = torch.device("cpu")


class OwnSubstitutes:
    """Makes them on a trainer. A data set is opened when the first is wanted.

    Args:
        rank: this rank.
        mailbox: the trainer's.
        moves: called now and then: this rank is not stuck.
        skips: what earlier sessions found corrupt.
    """

    def __init__(self, rank: Rank, mailbox: Mailbox, moves: Callable[[], None], skips: list[SkipSamples]) -> None:
        self._rank, self._mailbox, self._moves, self._skips = rank, mailbox, moves, skips
        self._opened: dict[str, Dataset] = {}

    def of(self, name: str) -> MakeSubstitute | None:
        """What makes those of a job; None: the stream's are its own."""
        runtime = self._rank.runtime
        job = runtime.job(name)
        skips = job.data is not None and runtime.spec.data[job.data].on_corrupt == "skip"
        has_own = part_of(job) is not None and skips and runtime.rehearsal is None
        return partial(self._make, data_key(job), job.order_seed) if has_own else None

    def _make(
        self, key: str, seed: int, kind: str, epoch: int, sample: int, input_place: InputPlace, target: Array, own: Mask
    ) -> None:
        self._moves()
        before = RandomState.now(_CPU)
        try:
            with like_preprocessors():
                if key not in self._opened:
                    self._opened[key] = self._open(key)
                self._opened[key].make_substitute(kind, seed, epoch, sample, input_place, target, own)
        finally:
            before.set(_CPU)

    def _open(self, key: str) -> Dataset:
        """Open a data set; rank 0 counts what it skips. Few trainers ever need what this loads."""
        from fleet.workers.datasets import dataset_specs, hold_alike
        from preprocess import Dataset

        rank, seconds = self._rank, self._rank.runtime.timeout
        spec = replace(dataset_specs(rank.runtime.spec)[key], corrupt_limit=sys.maxsize)
        late = (
            f"rank {rank.number} has been opening the data for {seconds:g} s to take samples of a network's own part "
            f"for corrupt ones, a source has not come back; if that really takes so long, raise resources.timeout "
            f"(now {seconds:g} s)"
        )
        with time_limit(rank.world, seconds, late):
            opened = Dataset(spec, self._tell)
            hold_alike(rank.runtime, {key: opened}, rank.number)
        for order in (order for order in self._skips if order.data == key):
            opened.skip_always(TRAIN, order.train)
            opened.skip_always(HELD_OUT, order.held_out)
        return opened

    def _tell(self, sample: SkippedSample) -> None:
        self._mailbox.send(0, TO_COORDINATOR, SampleSkipped(self._rank.number, sample))


@contextmanager
def like_preprocessors() -> Iterator[None]:
    """Let torch compute as it does in preprocessors, for transforms that use it; then as training had it, on which that
    has its bits.
    """
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    use_one_thread()
    use_deterministic(False)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        use_deterministic(deterministic)
