"""How many prepared samples a preprocessor keeps: its part of what the node has."""

from __future__ import annotations

import math
import tempfile

from fleet.machine.standard_error import tell
from fleet.run.ranks.rank import Rank
from fleet.run.ranks.runtime import Runtime
from preprocess import Ring, SampleStore, StoreBudget, is_divided, open_stores
from preprocess.making.worth import bytes_of_prepared
from preprocess.store.free_memory import memory_to_keep_samples

_GIB = 2**30


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


def stores_of(rank: Rank, ring: Ring, number: int) -> dict[str, SampleStore]:
    """What the preprocessor of that number keeps, by data set, on this rank's node; the node's ring is there."""
    kept = {name: data for name, data in rank.datasets.items() if keeps(rank.runtime, name, ring.shape.writers)}
    if not kept:
        return {}
    here = rank.cluster.places[rank.number].node
    others = sum(place.node == here for place in rank.cluster.preprocessors)
    return open_stores(
        kept, _budget(rank, others), ring.shape, number, lambda text: tell(f"rank {rank.number}: {text}")
    )


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
