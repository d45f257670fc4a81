"""What a network takes in place of samples that cannot be made, where it has a part of the samples.

A stream has one substitute for all its readers, which may be outside a network's part, or in its fold. Such a network's
trainers make another one themselves: that depends on the part, and on nothing that others read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch

from fleet.coordination.mailbox import Mailbox
from fleet.coordination.protocol import TO_COORDINATOR, SampleSkipped, SkipSamples
from fleet.spec.job import data_key
from fleet.spec.subsets import part_of
from fleet.workers.like_preprocessors import like_preprocessors
from fleet.workers.missing_samples import MakeSubstitute
from fleet.workers.rank import Rank
from fleet.workers.time_limit import time_limit
from preprocess import HELD_OUT, TRAIN
from preprocess.samples.layout import Array
from preprocess.samples.ragged import InputPlace
from preprocess.samples.substitutes import Mask
from trainers.repeatable.random_state import RandomState

if TYPE_CHECKING:
    from preprocess import Dataset, SkippedSample

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
        from fleet.workers.datasets import dataset_specs
        from fleet.workers.same_samples import hold_alike
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
