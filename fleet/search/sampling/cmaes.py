"""CMA-ES (Hansen, The CMA Evolution Strategy, 2016), by the package cmaes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fleet.search.record import Record
from fleet.search.sampling.seeds import seed_at_path
from fleet.search.sampling.space import answers_of, parameters, values_of
from fleet.spec.distributions import Distribution, fraction


class CmaEs:
    """Numbers that are always there come from CMA-ES; choices, and numbers of drawn blocks, are drawn at random.

    For each suggestion the strategy is built anew: it is told the last losses of all known trials by their numbers, as
    many at a time as make a generation, and then asked with a seed by seed path (seed, trial, cmaes).

    Args:
        over: dotted path -> its distribution.
        seed: the search's.
        prefetch: how many trials ahead it suggests.
        sigma0: the first step size, as a part of each range.
        popsize: trials of a generation; None: 4 + 3 ln(numbers), as the package does.

    Raises:
        ImportError: the package is not installed.
        ValueError: there are fewer than two such numbers, or an argument cannot be.
    """

    def __init__(
        self,
        over: Mapping[str, Distribution],
        seed: int,
        prefetch: int,
        sigma0: float = 0.3,
        popsize: int | None = None,
    ) -> None:
        from cmaes import CMA  # of the extra `search`

        self.prefetch: int | None = prefetch
        self._over, self._seed = dict(over), seed
        self._numbers = [each for each, always in parameters(over) if always and each.is_number]
        there = len(self._numbers)
        if there < 2:
            raise ValueError(f"cmaes needs two numbers or more that are always there, and has {there}; take tpe")
        if not 0 < sigma0 <= 1:
            raise ValueError(f"sigma0 is {sigma0}; it is a part of each range, above 0 and at most 1")
        if popsize is not None and popsize < 3:
            raise ValueError(f"popsize is {popsize}; it is 3 or more")
        self._make = lambda: CMA(
            mean=np.full(len(self._numbers), 0.5),
            sigma=sigma0,
            bounds=np.tile([0.0, 1.0], (len(self._numbers), 1)),
            population_size=popsize,
            seed=seed_at_path(seed, 0, "cmaes"),
        )
        self._make()

    def suggest(self, trial: int, records: Sequence[Record]) -> Mapping[str, Any]:
        """The values of a trial."""
        strategy = self._make()
        known = [record for record in records if record.losses]
        size = strategy.population_size
        for begin in range(0, len(known) - size + 1, size):
            strategy.tell([self._solution(record) for record in known[begin : begin + size]])
        strategy.reseed_rng(seed_at_path(self._seed, trial, "cmaes"))
        point = dict(zip(self._numbers, map(float, strategy.ask())))

        def answer(parameter: Any) -> Any:
            drawn = fraction(self._seed, trial, parameter.name)
            return parameter.at(point.get(parameter, drawn))

        return values_of(self._over, answer)

    def _solution(self, record: Record) -> tuple[Any, float]:
        """The point of a trial in the unit cube, and its last loss."""
        answers = answers_of(self._over, record.values)
        return np.array([each.part(answers[each]) for each in self._numbers]), record.losses[max(record.losses)]
