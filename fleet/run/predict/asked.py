"""What a person asks of trained networks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Asked:
    """Which networks of a run predict which samples, and what is told.

    Attributes:
        members: `all`, `best:K`, `greedy:K`, or names with commas between them.
        data: a data set of the run's spec, or the path of other samples; None: the data set that the networks share.
        vote: `soft` or `hard`.
        out: where all probabilities are written; None: nowhere.
        checkpoint: `best` or `last`.
        device: where the networks are, as torch names it.
    """

    members: str = "all"
    data: str | None = None
    vote: Literal["soft", "hard"] = "soft"
    out: Path | None = None
    checkpoint: Literal["best", "last"] = "best"
    device: str = "cpu"

    def arguments(self, directory: Path) -> list[str]:
        """The command line that asks each rank for the same."""
        words = ["predict", str(directory), "--members", self.members, "--vote", self.vote]
        words += ["--checkpoint", self.checkpoint, "--device", self.device]
        words += ["--data", self.data] if self.data is not None else []
        return words + (["--out", str(self.out)] if self.out is not None else [])
