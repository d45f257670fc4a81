"""How fast preprocessors are, where a spec says so instead of measurements: in rehearsals and plans."""

from __future__ import annotations

from collections.abc import Iterable

from fleet.scheduling.model.data_path import DataPath
from fleet.spec import EnsembleSpec


def foretold_data_path(spec: EnsembleSpec, data: Iterable[str], preprocessors: int) -> DataPath | None:
    """What `rehearse.preprocessors` says of so many; None: it says nothing.

    Args:
        data: the keys of the data sets.
    """
    if spec.rehearse is None or not spec.rehearse.preprocessors:
        return None
    return DataPath(spec.rehearse.preprocessors).limited_to(preprocessors, data)
