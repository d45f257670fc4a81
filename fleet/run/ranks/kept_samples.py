"""How many prepared samples a preprocessor keeps: its part of what the node has."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass

from fleet.machine.standard_streams import tell
from fleet.run.ranks.rank import Rank
from fleet.run.ranks.runtime import Runtime
from preprocess import FinishedSamples, Ring, SampleStore, StoreBudget, is_divided, open_stores
from preprocess.files.memory import memory_to_keep_samples
from preprocess.making.worth import bytes_of_prepared

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
