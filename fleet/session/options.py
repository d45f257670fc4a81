"""What the command line asks of a run."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from fleet.journal.run_requests import AddedJobs
from fleet.journal.whole_files import EnsembleFile
from fleet.machine.horovod import check_horovod
from fleet.machine.launch.launched import launched_by_us
from fleet.models.recorded_spec import check_trusted
from fleet.spec import EnsembleSpec, SpecError, load
from fleet.spec.ensemble import LARGEST_FILE
from fleet.spec.sections import part_name
from preprocess.files.reading import read_bytes

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
class ExtendOrder:
    """Train a job of the run until so many epochs.

    Attributes:
        only_epochs: its target and its patience count no more.
        trust: code that another user chose may run.
    """

    job: str
    epochs: int
    only_epochs: bool = False
    trust: bool = False

    @property
    def words(self) -> list[str]:
        """The options that say the same."""
        told = [*(["--only-epochs"] if self.only_epochs else []), *(["--trust"] if self.trust else [])]
        return ["--epochs", str(self.epochs), *told]


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
        extend: the run in `out` goes on with its own spec, and a job trains longer.
        beside: where the spec's modules and relative paths are looked for; None: where its file is.
        accept: data and code that changed since the run began are taken as they are now.
        stood: where the command was given, from which its own paths begin.
    """

    spec: Path
    overrides: tuple[str, ...] = ()
    out: Path | None = None
    rehearse: bool = False
    pretend: tuple[int, ...] | None = None
    profile: ProfileOrder | None = None
    reduce: str | None = None
    extend: ExtendOrder | None = None
    beside: Path | None = None
    accept: bool = False
    stood: Path = Path()

    def standing(self, stood: Path) -> RunOptions:
        """Options that say elsewhere what these say in a folder."""
        profile = self.profile and replace(self.profile, out=stood / self.profile.out)
        out, beside = self.out and stood / self.out, self.beside and stood / self.beside
        return replace(self, spec=stood / self.spec, out=out, beside=beside, profile=profile, stood=stood)

    def load(self) -> EnsembleSpec:
        """Read the spec: the file's, or, where a job is extended, that of the run, without jobs that were added.

        Raises:
            SpecError: with everything that is wrong.
            ValueError: the folder holds no run.
        """
        if self.extend is None:
            return load(self.spec, self.overrides, self.folder)
        known = self._known()
        added = {job["name"] for job in AddedJobs(self._run).taken()}
        jobs = [job for job in known.spec["jobs"] if job["name"] not in added]
        return EnsembleSpec.from_mapping({**known.spec, "jobs": jobs}, self.overrides, self.folder)

    @property
    def sets_trainers(self) -> bool:
        """Whether the command says how many trainers there are."""
        return any(change.partition("=")[0] == "resources.trainers" for change in self.overrides)

    @property
    def folder(self) -> Path:
        """Where the spec's modules and relative paths are looked for."""
        if self.extend is not None:
            return Path(self._known().folder)
        return self.beside.absolute() if self.beside is not None else self.spec.absolute().parent

    @property
    def _run(self) -> Path:
        assert self.out is not None, "a job is extended of a run that is named"
        return self.out

    def _known(self) -> EnsembleFile:
        known = EnsembleFile.read(self._run)
        if known is None:
            text = f"{self._run} holds no run that was started: there is no ensemble.json in it"
            raise ValueError(f"{text}; name the --out of a `fleet run`")
        return known

    def check(self) -> None:
        """Check what needs no spec.

        Raises:
            ValueError: the text says the mistake and the mend.
        """
        if self.reduce not in (None, *REDUCTIONS):
            raise ValueError(f"--reduce {self.reduce}: choose one of {', '.join(REDUCTIONS)}")
        if self.extend is not None:
            self._known()
            check_trusted(self._run, self.extend.trust)
        if self.reduce == "horovod":
            check_horovod()

    def directory(self, spec: EnsembleSpec) -> Path:
        """The run directory; an offline profile has one of its own, apart from the run's."""
        if self.profile is not None:
            return self.stood / "runs" / f"{spec.name}{self.profile.suffix}"
        return self.out if self.out is not None else self.stood / "runs" / spec.name

    def arguments(self, trainers: int) -> list[str]:
        """The command line that says the same to each rank, with the number of trainers settled."""
        words = ["profile" if self.profile else "run", str(self.spec)]
        if self.extend is not None:
            words = ["extend", str(self._run), self.extend.job, *self.extend.words]
        for change in (*self.overrides, f"resources.trainers={trainers}"):
            words += ["--set", change]
        words += (
            self.profile.words if self.profile else ["--out", str(self.out)] if self.out and not self.extend else []
        )
        words += ["--reduce", self.reduce] if self.reduce else []
        words += ["--folder", str(self.beside)] if self.beside is not None else []
        words += ["--rehearse"] if self.rehearse else []
        words += ["--accept-changes"] if self.accept else []
        return words + (["--cluster", ",".join(map(str, self.pretend))] if self.pretend else [])


def variables_of(spec: EnsembleSpec) -> dict[str, str]:
    """The variables that a run's ranks must be started with.

    Raises:
        trainers.InstructionSetError: they cannot be had here, or contradict this process's.
    """
    name = spec.determinism.pinned_to
    if name is None:
        return {}
    from trainers.repeatable.instruction_sets import environment  # loads torch

    return environment(name, spec.resources.threads, os.environ)


def pin_rank(options: RunOptions) -> None:
    """Begin this process again with the variables, if it needs them and has them not. Call it before MPI starts.

    A spec that cannot be read is left to those who report it.

    Raises:
        trainers.InstructionSetError: as `variables_of`.
    """
    if launched_by_us():
        return
    with suppress(SpecError, OSError):
        if not _may_be_pinned(options):
            return
        spec = options.load()
        if spec.determinism.pinned_to is not None:
            from trainers.repeatable.instruction_sets import restart

            restart(spec.determinism.pinned_to, spec.resources.threads)


def _may_be_pinned(options: RunOptions) -> bool:
    """Whether the spec may ask for a level that pins: most say nothing of it, and no rank but 0 need read those."""
    told = any("D2" in text for text in options.overrides)
    return told or options.extend is not None or b"D2" in read_bytes(os.fspath(options.spec), LARGEST_FILE)
