"""ensemble.json: what a job that is added to a run has to fit, written down at each start of the run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from preprocess.files.reading import read_json
from preprocess.files.writing import write_whole

NAME = "ensemble.json"


@dataclass(frozen=True)
class EnsembleFile:
    """A run's whole spec and what else decides which jobs can join.

    Attributes:
        folder: in which its modules and relative paths are looked for.
        spec: as `EnsembleSpec.to_mapping` gives it.
        lengths: data key -> samples to train on, and held out; None for those of data that has none.
    """

    folder: str
    spec: Mapping[str, Any]
    lengths: Mapping[str, tuple[int, int | None]]

    def write(self, directory: Path) -> None:
        """Replace the directory's file."""
        write_whole(directory / NAME, json.dumps(asdict(self), indent=1))

    @classmethod
    def read(cls, directory: Path) -> EnsembleFile | None:
        """Return the directory's file; None if there is none that can be read."""
        try:
            content = read_json(directory / NAME)
            lengths = {key: (train, held_out) for key, (train, held_out) in content["lengths"].items()}
            return cls(content["folder"], content["spec"], lengths)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
