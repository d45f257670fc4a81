"""A person's own sampler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fleet.search.record import Record


class Own:
    """What an object of a person's class suggests, looked at before it is used.

    Args:
        sampler: has `suggest(trial, records)`, as `fleet.search.Sampler`.
        name: how messages call it.
        paths: for which it gives values.
        prefetch: how many trials ahead it suggests; None: it looks at no results, and suggests any at any time.
    """

    def __init__(self, sampler: Any, name: str, paths: Sequence[str], prefetch: int | None) -> None:
        self.prefetch = prefetch
        self._sampler, self._name, self._paths = sampler, name, set(paths)

    def suggest(self, trial: int, records: Sequence[Record]) -> Mapping[str, Any]:
        """The values of a trial.

        Raises:
            ValueError: it gives no values, or those of other paths.
        """
        values = self._sampler.suggest(trial, records)
        if not isinstance(values, Mapping) or values.keys() != self._paths:
            told = sorted(values) if isinstance(values, Mapping) else type(values).__name__
            wanted = sorted(self._paths)
            raise ValueError(f"{self._name} gives {told} for trial {trial}; it should give values of {wanted}")
        return values
