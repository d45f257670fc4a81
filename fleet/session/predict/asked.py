"""What a person asks of trained networks."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from fleet.models.errors import HarvestError
from fleet.models.vote import greedy_picks


@dataclass(frozen=True)
class Combination:
    """How several networks' answers become one.

    Attributes:
        vote: `soft` or `hard`.
        soup: the mean of weights, of all networks (`uniform`) or of those that make it no worse (`greedy`), is told
            beside them; None: it is not.
        temperature: figures of scaled probabilities are told beside the others.
    """

    vote: Literal["soft", "hard"] = "soft"
    soup: Literal["uniform", "greedy"] | None = None
    temperature: bool = False


@dataclass(frozen=True)
class AskedPrediction:
    """Which networks of a run predict which samples, and what is told.

    Attributes:
        members: `all`, `best:K`, `greedy:K`, or names with commas between them.
        data: a data set of the run's spec, or the path of other samples; None: the data set that the networks share.
        out: where all probabilities are written; None: nowhere.
        checkpoint: `best` or `last`.
        device: where the networks are, as torch names it.
        combined: how their answers become one.
        trust: whether code that another user chose may run.
    """

    members: str = "all"
    data: str | None = None
    out: Path | None = None
    checkpoint: Literal["best", "last"] = "best"
    device: str = "cpu"
    combined: Combination = field(default_factory=Combination)
    trust: bool = False

    @property
    def picks(self) -> int | None:
        """K of `greedy:K`; None: networks are not chosen by what they predict. HarvestError: K is no number."""
        return greedy_picks(self.members)

    @property
    def divides(self) -> bool:
        """Whether one half of the samples is for choosing or fitting, and the other for figures."""
        return self.picks is not None or self.combined.temperature or self.combined.soup == "greedy"

    def check(self) -> None:
        """Raise HarvestError where two things that are asked do not go together."""
        if self.combined.soup is not None and self.picks is not None:
            text = f"--soup averages the networks that are named, and --members {self.members} chooses by predictions"
            raise HarvestError(f"{text}; take --soup greedy, which chooses for itself, with --members all")
        if self.combined.temperature and self.combined.vote == "hard":
            text = "--temperature scales probabilities, and --vote hard gives shares of answers"
            raise HarvestError(f"{text}; leave one of them out")

    def check_unlabelled(self) -> None:
        """Raise HarvestError where something is asked that needs targets."""
        if self.divides:
            needing = ("--members greedy", self.picks is not None), ("--temperature", self.combined.temperature)
            option = next((option for option, is_asked in needing if is_asked), "--soup greedy")
            text = f"{option} needs labels, and {self.data} has none"
            raise HarvestError(f"{text}; leave it out here, and take it on the run's own samples")
        if self.out is None:
            text = f"{self.data} has no labels, so how good networks are cannot be told"
            raise HarvestError(f"{text}; write what they predict: --out predictions.h5")

    def arguments(self, directory: Path) -> list[str]:
        """The command line that asks each rank for the same."""
        words = ["predict", str(directory), "--members", self.members, "--vote", self.combined.vote]
        words += ["--checkpoint", self.checkpoint, "--device", self.device]
        for option, value in (("--data", self.data), ("--out", self.out), ("--soup", self.combined.soup)):
            words += [option, str(value)] if value is not None else []
        words += ["--temperature"] if self.combined.temperature else []
        return words + (["--trust"] if self.trust else [])
