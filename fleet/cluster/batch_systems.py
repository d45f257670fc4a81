"""Batch systems: what a job of one knows of itself, and how the script of a job is written and handed in.

Slurm, LSF, PBS and Flux are built in. Another one is a class of `BatchSystem` that `fleet submit --site module:Name`
names, or that an installed package names in the group `fleet.batch_systems` of its entry points.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import ClassVar

from fleet.spec.plugins import BATCH_SYSTEMS
from preprocess.files.reading import read_text

VARIABLE = "FLEET_BATCH_SYSTEM"
"""Names the batch system to the ranks of its jobs, where it is not built in."""
TEMPLATES = Path(str(files("batch_scripts")))
_ASK_SECONDS, _SUBMIT_SECONDS = 20.0, 120.0  # until a program of the batch system must have answered
_MOST_BYTES, MOST_MEMORY, _MOST_SECONDS = 1 << 20, 512 << 20, 10  # of a template and what comes of it

Ask = Callable[[Sequence[str]], str]
"""Runs a command and returns what it prints; OSError, ValueError or subprocess.SubprocessError if it cannot."""


class SubmissionError(RuntimeError):
    """The batch system did not take the script; the text says what it said."""


class BatchSystem(ABC):
    """A batch system. A class of it sets the attributes and `end_time`, and overrides what they do not say.

    Attributes:
        title: for people.
        job_variable: variable of the environment that holds a job's id, in the job alone.
        program: hands scripts in; looked for on PATH.
        arguments: of the program, before the script.
        answer: finds the new job's id, its first group, in what the program prints.
        template: Jinja template of a script: a name in `batch_scripts`, or a path. See `render`.
        job: bash text that gives the job's id in a script.
        task_variable: variable of a job array's task that counts from 1; "": it has no job arrays of batch scripts.
    """

    title: ClassVar[str]
    job_variable: ClassVar[str]
    program: ClassVar[str]
    arguments: ClassVar[tuple[str, ...]] = ()
    answer: ClassVar[re.Pattern[str]] = re.compile(r"(\S+)")
    template: ClassVar[str | Path]
    job: ClassVar[str]
    task_variable: ClassVar[str] = ""

    def detect(self, environment: Mapping[str, str]) -> str | None:
        """Return the id of the job in which this process is; None outside of all."""
        return environment.get(self.job_variable) or None

    def nodes(self, environment: Mapping[str, str]) -> tuple[int | None, int | None]:
        """Return the nodes of the job and the GPUs of this one; None what the environment does not say."""
        return None, None

    @abstractmethod
    def end_time(self, environment: Mapping[str, str], ask: Ask, now: float) -> float | None:
        """Return when the job's allocation ends, in seconds since 1970; None if it has no end.

        Args:
            ask: runs a program of the batch system.
            now: seconds since 1970.

        Raises:
            OSError, ValueError, LookupError, subprocess.SubprocessError: nobody says when.
        """

    def render(self, values: Mapping[str, object], template: Path | None = None) -> str:
        """Return the text of a batch script.

        Args:
            values: what templates may say: name, nodes, gpus_per_node, ranks_per_node, ranks, cores_per_rank, time (its
                seconds, clock and hours_minutes), command, folder and more, see batch_scripts/README.md.
            template: one of the user's own in place of the system's.

        Raises:
            OSError, MemoryError, ValueError, jinja2.TemplateError and others: it cannot be read or filled in.
        """
        own = template or Path(self.template)
        return filled_in(own.name, [*([own.parent] if own.parent != Path() or template else []), TEMPLATES], values)

    def submit(self, script: Path) -> str:
        """Hand a script in, and return the job's id.

        Raises:
            SubmissionError: the program is not here, refuses, or says something else than an id.
        """
        return self._handed_in([*self.arguments, str(script)], script)

    def _handed_in(self, arguments: Sequence[str], script: Path, text: str | None = None) -> str:
        """Call the program, with a text on its standard input, and find the job's id in its answer."""
        program = shutil.which(self.program)
        if program is None:
            raise SubmissionError(
                f"there is no {self.program} here; call this on a login node of the site, or print the script with "
                "--dry-run"
            )
        try:
            command = [program, *arguments]
            done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=_SUBMIT_SECONDS)
        except subprocess.TimeoutExpired:
            raise SubmissionError(f"{self.program} has not answered for {_SUBMIT_SECONDS:.0f} s") from None
        found = self.answer.search(done.stdout)
        if done.returncode != 0 or found is None:
            said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()
            raise SubmissionError(f"{self.program} refused {script} (exit code {done.returncode}): {' / '.join(said)}")
        return found.group(1)


class Slurm(BatchSystem):
    """Slurm: `sbatch`; the end is SLURM_JOB_END_TIME, else `squeue` says what is left."""

    title, job_variable, program, arguments = "Slurm", "SLURM_JOB_ID", "sbatch", ("--parsable",)
    answer = re.compile(r"^(\d+)(?:;\S+)?$", re.M)
    template, job, task_variable = "slurm.sh.j2", '"$SLURM_JOB_ID"', "SLURM_ARRAY_TASK_ID"

    def nodes(self, environment: Mapping[str, str]) -> tuple[int | None, int | None]:
        return _number("SLURM_JOB_NUM_NODES", environment), _number("SLURM_GPUS_ON_NODE", environment)

    def end_time(self, environment: Mapping[str, str], ask: Ask, now: float) -> float | None:
        told = environment.get("SLURM_JOB_END_TIME", "")
        if told.isdigit():
            return float(told)
        # Time left, not the end: the nodes' clocks and time zones may differ from the controller's.
        left = ask(["squeue", "--noheader", "--jobs", environment["SLURM_JOB_ID"], "--format", "%L"]).split()[0]
        return None if left == "UNLIMITED" else now + _seconds(left)


class Lsf(BatchSystem):
    """IBM's LSF: `bsub`; `bjobs` says what is left."""

    title, job_variable, program = "LSF", "LSB_JOBID", "bsub"
    answer = re.compile(r"Job <(\d+)> is submitted")
    template, job, task_variable = "lsf.sh.j2", '"$LSB_JOBID"', "LSB_JOBINDEX"

    def end_time(self, environment: Mapping[str, str], ask: Ask, now: float) -> float | None:
        left = ask(["bjobs", "-noheader", "-o", "time_left", environment["LSB_JOBID"]]).split()[0]
        return None if left == "-" else now + _seconds(f"{left}:00")

    def submit(self, script: Path) -> str:
        """Hand a script in on the program's standard input: from that alone it reads directives."""
        return self._handed_in(self.arguments, script, read_text(script))


class Pbs(BatchSystem):
    """PBS Pro and OpenPBS: `qsub`; `qstat` says when the job began and its limit."""

    title, job_variable, program = "PBS", "PBS_JOBID", "qsub"
    answer = re.compile(r"^(\d+(?:\[\])?\.\S+)$", re.M)
    template, job, task_variable = "pbs.sh.j2", '"$PBS_JOBID"', "PBS_ARRAY_INDEX"

    def end_time(self, environment: Mapping[str, str], ask: Ask, now: float) -> float | None:
        said = ask(["qstat", "-f", environment["PBS_JOBID"]])  # its JSON breaks where a variable holds odd text
        facts = dict(re.findall(r"^    (\S+) = (.+)$", said, re.M))
        begun, limit = _time_of(facts["stime"]), facts.get("Resource_List.walltime")
        return None if limit is None else begun + _seconds(limit)


class Flux(BatchSystem):
    """Flux: `flux batch`; `flux job timeleft` says what is left."""

    title, job_variable, program, arguments = "Flux", "FLUX_JOB_ID", "flux", ("batch",)
    answer = re.compile(r"^([ƒf]\S+)$", re.M)
    template = "flux.sh.j2"
    job = '"${FLUX_JOB_ID:-$(flux getattr jobid)}"'  # a batch script is not told it everywhere

    def nodes(self, environment: Mapping[str, str]) -> tuple[int | None, int | None]:
        return _number("FLUX_JOB_NNODES", environment), None

    def end_time(self, environment: Mapping[str, str], ask: Ask, now: float) -> float | None:
        left = float(ask(["flux", "job", "timeleft"]))
        return None if left == float("inf") else now + left


def batch_system(name: str) -> BatchSystem:
    """Return the batch system of a short name, or the one that `module:Name` names; its module is imported.

    Raises:
        BadPart: there is none, or it lacks something; a ValueError, too.
    """
    made: BatchSystem = BATCH_SYSTEMS.load(name)()
    return made


def built_in_systems() -> list[BatchSystem]:
    """Return those that fleet has itself."""
    return [batch_system(name) for name in BATCH_SYSTEMS.built_in]


@dataclass(frozen=True)
class BatchAllocation:
    """The job of a batch system in which a run is.

    Attributes:
        scheduler: the batch system's name, for people.
        job: its name of the job.
        end: seconds since 1970; None where it has no end, or nobody says when: it is never guessed.
        problem: why nobody says; "" otherwise.
    """

    scheduler: str
    job: str
    end: float | None
    problem: str = ""


def find_allocation(
    environment: Mapping[str, str] = os.environ, ask: Ask | None = None, now: Callable[[], float] = time.time
) -> BatchAllocation | None:
    """Return the allocation that this process is in; None outside of all."""
    for system in _systems(environment):
        job = system.detect(environment)
        if job is None:
            continue
        try:
            return BatchAllocation(system.title, job, system.end_time(environment, ask or _asked, now()))
        except (OSError, ValueError, LookupError, subprocess.SubprocessError) as error:
            return BatchAllocation(system.title, job, None, f"{type(error).__name__}: {error}")
    return None


def allocated_nodes(environment: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Return the nodes of the job in which this process is, and the GPUs of this one, as far as somebody says it."""
    told = [system.nodes(environment) for system in _systems(environment)]
    nodes, gpus = (next((value for value in column if value is not None), None) for column in zip(*told))
    return nodes, gpus


def _systems(environment: Mapping[str, str]) -> list[BatchSystem]:
    """Those that may have started this process, the one that its job's script names first."""
    found: list[BatchSystem] = []
    if environment.get(VARIABLE):
        with suppress(ValueError):  # it cannot be loaded here, so that nobody knows when the job ends
            found.append(batch_system(environment[VARIABLE]))
    return [*found, *built_in_systems()]


def _asked(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=_ASK_SECONDS, check=True).stdout


def _number(name: str, environment: Mapping[str, str]) -> int | None:
    return int(environment[name]) if environment.get(name, "").isdigit() else None


def _seconds(text: str) -> float:
    """From [[D-]HH:]MM:SS; ValueError if it is none."""
    match = re.fullmatch(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)", text)
    if match is None:
        raise ValueError(f"{text!r} is no time")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _time_of(text: str) -> float:
    """From C's form, such as `Mon Nov 23 05:15:50 2026`: its names are English whatever this process's language is."""
    _, month, day, clock, year = text.split()
    hours, minutes, seconds = map(int, clock.split(":"))
    number = "JanFebMarAprMayJunJulAugSepOctNovDec".index(month) // 3 + 1
    return datetime(int(year), number, int(day), hours, minutes, seconds).timestamp()


def filled_in(name: str, folders: Sequence[Path], values: Mapping[str, object]) -> str:
    """Return a template's text. What it says reaches the values alone, and none of Python's objects through them.

    Args:
        name: of the template.
        folders: where it and those that it includes are looked for, one after the other.

    Raises:
        OSError, MemoryError, ValueError, jinja2.TemplateError and others: it cannot be read or filled in, or not within
            512 MiB and 10 s.
    """
    from jinja2 import FunctionLoader, StrictUndefined
    from jinja2.loaders import split_template_path
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def load(part: str) -> str | None:
        for folder in folders:
            path = Path(folder, *split_template_path(part))
            if path.exists():
                return read_text(path, _MOST_BYTES)
        return None

    environment = ImmutableSandboxedEnvironment(
        loader=FunctionLoader(load),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    text = ""
    with _bounded():
        for part in environment.get_template(name).generate(values):
            text += part
            if len(text) > _MOST_BYTES:
                raise ValueError(f"the script has more than {_MOST_BYTES:,} characters")
    return text


@contextmanager
def _bounded() -> Iterator[None]:
    """Let a template that never ends, or fills the memory, be refused."""

    def stop(*_: object) -> None:
        raise ValueError(f"it is not filled in within {_MOST_SECONDS} s")

    usual, most = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(_MOST_SECONDS)
    try:
        room = [limit for limit in (taken + MOST_MEMORY, usual, most) if limit != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_AS, (min(room), most))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (usual, most))
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
