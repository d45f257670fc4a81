"""How many prepared samples each preprocessor of a service keeps."""

from __future__ import annotations

from preprocess.making.dataset import Dataset
from preprocess.making.stores import is_divided
from preprocess.making.worth import is_worth_keeping
from preprocess.sharing.settings import ServiceSettings
from preprocess.store.free_memory import free_memory
from preprocess.store.sample_store import StoreBudget

_FREE_PART = 0.5  # of free memory, where nobody said how much: the rest is for others and the page cache


def kept_budget(dataset: Dataset, settings: ServiceSettings) -> StoreBudget | None:
    """Each preprocessor's part; None where prepared samples are not kept."""
    if settings.store == 0 or not is_divided(dataset.length, dataset.held_out, settings.workers):
        return None
    if not is_worth_keeping(dataset):
        return None
    memory = int(_FREE_PART * free_memory()) if settings.store is None else settings.store
    return StoreBudget(memory // settings.workers)
