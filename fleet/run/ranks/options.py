"""What the command line asks of a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fleet.machine.horovod import check_horovod
from fleet.run_directory.profile_parts import part_name
from fleet.spec import EnsembleSpec

REDUCTIONS = ("device", "mpi", "horovod")


@dataclass(frozen=True)
class ProfileOrder:
    """Only profile, and write the rates to `out`; part: which part of the jobs, of how many, from 1."""

    out: Path
    part: tuple[int, int] | None = None

    @property
    def rates(self) -> Path:
        """Where the rates are written: each part of the jobs has a file of its own."""
        return self.out if self.part is None else part_name(self.out, *self.part)

    @property
    def suffix(self) -> str:
        """What the run directory's name ends with."""
        return "-profile" + (".{}-of-{}".format(*self.part) if self.part else "")

    @property
    def words(self) -> list[str]:
        """The options that say the same."""
        return ["--out", str(self.out), *(["--part", "{}/{}".format(*self.part)] if self.part else [])]


@dataclass(frozen=True)
class RunOptions:
    """What the command line asks for.

    Attributes:
        spec: the spec's file.
        overrides: `--set` texts, and those that other options stand for.
        out: the run directory; None for runs/NAME.
        rehearse: compute is a wait.
        pretend: trainers of each pretend node, for a rehearsal.
        profile: train nothing.
        reduce: "device", "mpi" or "horovod", what adds gradients in groups of trainers; None for "device" where devices
            can send to each other, else "mpi".
    """

    spec: Path
    overrides: tuple[str, ...] = ()
    out: Path | None = None
    rehearse: bool = False
    pretend: tuple[int, ...] | None = None
    profile: ProfileOrder | None = None
    reduce: str | None = None

    def check(self) -> None:
        """Check what needs no spec.

        Raises:
            ValueError: the text says the mistake and the mend.
        """
        if self.reduce not in (None, *REDUCTIONS):
            raise ValueError(f"--reduce {self.reduce}: choose one of {', '.join(REDUCTIONS)}")
        if self.reduce == "horovod":
            check_horovod()

    def directory(self, spec: EnsembleSpec) -> Path:
        """The run directory; an offline profile has one of its own, apart from the run's."""
        if self.profile is not None:
            return Path("runs") / f"{spec.name}{self.profile.suffix}"
        return self.out if self.out is not None else Path("runs") / spec.name

    def arguments(self, trainers: int) -> list[str]:
        """The command line that says the same to each rank, with the number of trainers settled."""
        words = ["profile" if self.profile else "run", str(self.spec)]
        for change in (*self.overrides, f"resources.trainers={trainers}"):
            words += ["--set", change]
        words += self.profile.words if self.profile else ["--out", str(self.out)] if self.out else []
        words += ["--reduce", self.reduce] if self.reduce else []
        words += ["--rehearse"] if self.rehearse else []
        return words + (["--cluster", ",".join(map(str, self.pretend))] if self.pretend else [])
