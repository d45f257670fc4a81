"""NSGA-II (Deb et al., A Fast and Elitist Multiobjective Genetic Algorithm, 2002), by Optuna."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fleet.search.record import Record
from fleet.search.sampling.optuna_model import OptunaModel
from fleet.spec.distributions import Distribution


class Nsga2(OptunaModel):
    """Trials with a value, by their numbers, are a generation as many at a time as its population has.

    Args:
        over: dotted path -> its distribution.
        seed: the search's.
        prefetch: how many trials ahead it suggests.
        make: seed -> Optuna's sampler.
        metrics: how many losses each value has.
    """

    def __init__(
        self, over: Mapping[str, Distribution], seed: int, prefetch: int, make: Callable[[int], Any], metrics: int
    ) -> None:
        super().__init__(over, seed, prefetch, make, True, metrics)
        sampler = make(0)
        self._size, self._key = sampler.population_size, sampler._get_generation_key()

    def _marks(self, records: Sequence[Record]) -> Mapping[int, Mapping[str, Any]]:
        """Trial -> its generation, as a study that was never built anew has it."""
        known = [record.trial for record in records if record.losses and record.status != "failed"]
        return {trial: {self._key: place // self._size} for place, trial in enumerate(known)}
