"""Points that fill the space evenly (Sobol's sequence, scrambled as Owen says)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fleet.search.record import Record
from fleet.search.sampling.seeds import seed_at_path
from fleet.search.sampling.space import parameters, values_of
from fleet.spec.distributions import Distribution


class Qmc:
    """Trial i has point i of the sequence; every parameter that there may be is one of its dimensions.

    Args:
        over: dotted path -> its distribution.
        seed: the search's, of the scrambling.

    Raises:
        ImportError: SciPy is not installed.
    """

    prefetch: int | None = None

    def __init__(self, over: Mapping[str, Distribution], seed: int) -> None:
        from scipy.stats.qmc import Sobol  # of the extra `search`

        self._over, self._seed, self._sobol = dict(over), seed_at_path(seed, 0, "qmc"), Sobol
        self._dimension = {parameter.name: number for number, (parameter, _) in enumerate(parameters(over))}

    def suggest(self, trial: int, records: Sequence[Record]) -> Mapping[str, Any]:
        """The values of a trial."""
        sequence = self._sobol(len(self._dimension), scramble=True, rng=self._seed)
        if trial:
            sequence.fast_forward(trial)
        point = sequence.random(1)[0]
        return values_of(self._over, lambda parameter: parameter.at(float(point[self._dimension[parameter.name]])))
