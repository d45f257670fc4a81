"""How fast preprocessors are, where nobody measures it now: in rehearsals and plans."""

from __future__ import annotations

from collections.abc import Iterable

from fleet.journal.directory import RunDirectory
from fleet.journal.events import Preprocessors
from fleet.journal.journal import read_journal
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


def known_data_path(
    spec: EnsembleSpec, directory: RunDirectory, data: Iterable[str], preprocessors: int
) -> DataPath | None:
    """What `rehearse.preprocessors` says, else what the run's last session measured; None: nobody knows."""
    foretold = foretold_data_path(spec, data, preprocessors)
    if foretold is not None:
        return foretold
    measured = None
    for event in read_journal(directory.journal):
        if isinstance(event, Preprocessors):
            measured = DataPath.of(event.counts, event.of_data, event.of_new)
    return None if measured is None else measured.on(preprocessors)
