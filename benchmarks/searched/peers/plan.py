"""What every library searches: drawn once, read by all."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

NAME = "plan.json"
EVALUATED = 500
"""Held-out samples that a network takes at once, with each library."""


@dataclass(frozen=True)
class Plan:
    """A search.

    Attributes:
        seed: of the weights and of the order of samples.
        trials: the values of each trial: widths, lr, momentum, batch_norm.
        rungs: the epochs after which trials are compared, the last of them those of a whole trial.
        eta: of how many trials one goes on from a rung.
        batch: samples of a step.
        files: the IDX files, part -> "images" and "labels" -> path.
        padding: pixels around a picture that is cropped and flipped at random each time; None: pictures stay the same.
    """

    seed: int
    trials: list[dict[str, Any]]
    rungs: list[int]
    eta: int
    batch: int
    files: dict[str, dict[str, str]]
    padding: int | None = None

    @property
    def epochs(self) -> int:
        """Of a whole trial."""
        return self.rungs[-1]

    def write(self, folder: Path) -> None:
        """Leave it in a folder."""
        (folder / NAME).write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> Plan:
        """The one that was left in a folder."""
        return cls(**json.loads((folder / NAME).read_text()))
