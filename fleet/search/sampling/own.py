"""A person's own sampler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fleet.search.record import Record
from fleet.spec.distributions import Distribution, set_paths


class Own:
    """What an object of a person's class suggests, looked at before it is used.

    Args:
        sampler: has `suggest(trial, records)`, as `fleet.search.Sampler`.
        name: how messages call it.
        over: dotted path -> its distribution, for which it gives values.
        prefetch: how many trials ahead it suggests; None: it looks at no results, and suggests any at any time.
    """

    def __init__(self, sampler: Any, name: str, over: Mapping[str, Distribution], prefetch: int | None) -> None:
        self.prefetch = prefetch
        self._sampler, self._name, self._over = sampler, name, over

    def suggest(self, trial: int, records: Sequence[Record]) -> Mapping[str, Any]:
        """The values of a trial.

        Raises:
            ValueError: it gives no values, or those of other paths.
        """
        values = self._sampler.suggest(trial, records)
        if not isinstance(values, Mapping) or values.keys() != set_paths(self._over, values):
            told = sorted(values) if isinstance(values, Mapping) else type(values).__name__
            wanted = sorted(set_paths(self._over, values) if isinstance(values, Mapping) else self._over)
            raise ValueError(f"{self._name} gives {told} for trial {trial}; it should give values of {wanted}")
        return values
