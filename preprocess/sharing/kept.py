"""How many prepared samples each preprocessor of a service keeps, and what samples of a second lane take then."""

from __future__ import annotations

import os
from dataclasses import dataclass

from preprocess.files.memory import memory_to_keep_samples
from preprocess.making.dataset import Dataset
from preprocess.making.stores import is_divided
from preprocess.making.worth import SampleCosts
from preprocess.samples.order import TRAIN
from preprocess.sharing.joining import PreparingCosts
from preprocess.sharing.settings import ServiceSettings
from preprocess.store.sample_store import StoreBudget


@dataclass(frozen=True)
class SecondLanes:
    """What making samples takes where a stream has a second lane.

    Attributes:
        costs: what a sample costs; None: nobody knows.
        kept: samples that are kept; a lane that follows another no further behind finds what that has prepared.
        workers: how many compute at the same time.
    """

    costs: SampleCosts | None
    kept: float
    workers: int

    @classmethod
    def of(cls, settings: ServiceSettings, costs: SampleCosts | None, budget: StoreBudget | None) -> SecondLanes:
        """The costs of a service's second lanes."""
        kept = 0.0 if budget is None or costs is None else settings.workers * budget.memory / costs.nbytes
        return cls(costs, kept, min(settings.workers, len(os.sched_getaffinity(0))))

    def beside(self, kind: str, lag: int) -> PreparingCosts | None:
        """The costs of a lane that follows another so many samples behind; None: nobody knows."""
        if self.costs is None or kind != TRAIN:
            return None
        first, second = self.costs.seconds(False), self.costs.seconds(lag <= self.kept)
        return PreparingCosts(first, second, self.workers) if first and second else None


def kept_budget(dataset: Dataset, settings: ServiceSettings, costs: SampleCosts | None) -> StoreBudget | None:
    """Each preprocessor's part; None where prepared samples are not kept."""
    if settings.store == 0:
        return None
    if not is_divided(dataset.length, dataset.held_out, settings.workers, dataset.orders.blocks):
        return None
    if costs is None or not costs.is_worth_keeping:
        return None
    memory = memory_to_keep_samples() if settings.store is None else settings.store
    return StoreBudget(memory // settings.workers)
