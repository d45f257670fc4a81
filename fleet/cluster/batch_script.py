"""The script of a job on a cluster: what is known of the site, the ranks of a node, the script's text and its file."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from fleet.cluster.batch_systems import MOST_MEMORY, TEMPLATES, BatchSystem, batch_system
from fleet.cluster.batch_systems import VARIABLE as SYSTEM_VARIABLE
from fleet.spec.plugins import BATCH_SYSTEMS
from preprocess.files.reading import NotAFile, TooLarge, read_bytes, read_text
from preprocess.files.writing import make_folder, whole_file

SITES = "sites.yaml"
VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
_MOST_BYTES = 1 << 16  # of a file that describes a site
_MOST_TOLD = 5
MOST_GPUS, MOST_CORES = 1024, 65_536  # of one node; far beyond any that is built


class SiteError(ValueError):
    """A site that is not known, or not well described; the text says the rule and the mend."""


class UnknownSiteError(SiteError):
    """Nobody knows a site of this name.

    Attributes:
        name: what was asked for.
        known: names that are known.
    """

    def __init__(self, name: str, known: Collection[str]) -> None:
        self.name, self.known = name, known
        super().__init__(f"--site {name}: choose one of {', '.join(known)}, or name a YAML file")


def _one_line(text: str) -> str:
    if not text.isprintable():
        raise ValueError(f"{text!r} holds control characters; write it in one line")
    return text


def _variable(name: str) -> str:
    if re.fullmatch(VARIABLE, name) is None:
        raise ValueError(f"{name!r} is no name of a variable: letters, digits and _, and no digit first")
    return name


def _batch_system(name: str) -> str:
    batch_system(name)
    return name


_Line = Annotated[str, AfterValidator(_one_line)]
_Word = Annotated[str, Field(pattern=r"^([\w-]*)$")]


class Site(BaseModel):
    """A site, or a kind of scheduler.

    Attributes:
        scheduler: its batch system: slurm, lsf, pbs, flux, or `module:Name` of another.
        title: for people.
        gpus: how many a node has; None where it is not known.
        cores: how many of a node's jobs may use; None where it is not known.
        launch: options of the program that starts ranks.
        directives: further lines for the scheduler, without their mark.
        setup: lines of the script before the run; a text of several is several.
        environment: variables.
        chunk: what follows the number of nodes in a PBS select statement.
        qos: jobs of Slurm have it where they choose a QOS and no partition.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    scheduler: Annotated[str, AfterValidator(_batch_system)]
    title: _Line = ""
    gpus: int | None = Field(default=None, ge=0, le=MOST_GPUS)
    cores: int | None = Field(default=None, ge=1, le=MOST_CORES)
    launch: tuple[_Line, ...] = ()
    directives: tuple[_Line, ...] = ()
    setup: tuple[str, ...] = ()
    environment: dict[Annotated[str, AfterValidator(_variable)], str] = Field(default_factory=dict)
    chunk: _Line = ""
    qos: _Word = ""

    @model_validator(mode="after")
    def _of_slurm(self) -> Site:
        if self.qos and self.scheduler != "slurm":
            raise ValueError(f"qos: {self.scheduler} has queues and no QOS; leave it out, or set scheduler to slurm")
        return self


def read_site(name: str) -> Site:
    """The site of that name, or that a YAML file describes; of a batch system alone where it names one.

    Raises:
        UnknownSiteError: it is none of these.
        SiteError: the file, or the batch system, is not right.
    """
    if name.endswith((".yaml", ".yml")):
        return _from_file(Path(name))
    known: dict[str, Any] = yaml.safe_load((TEMPLATES / SITES).read_text())
    if name in known:
        return Site.model_validate(known[name])
    if BATCH_SYSTEMS.refused(name) is not None:
        raise UnknownSiteError(name, known)
    try:
        batch_system(name)
    except ValueError as error:
        raise SiteError(f"--site {name}: {error}") from None
    return Site(scheduler=name)


def _from_file(path: Path) -> Site:
    try:
        values = yaml.safe_load(read_text(path, _MOST_BYTES))
    except FileNotFoundError:
        raise SiteError(f"--site {path}: there is no such file") from None
    except OSError as error:
        raise SiteError(f"--site {path}: it cannot be read: {error.strerror}") from None
    except Exception as error:  # PyYAML lets ValueError, KeyError, RecursionError and others through for some texts
        raise SiteError(f"--site {path}: this is no YAML: {error}") from None
    if isinstance(values, dict) and len(values) == 1 and isinstance(next(iter(values.values())), dict):
        values = next(iter(values.values()))  # a whole entry was copied, with its name
    try:
        return Site.model_validate(values)
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, found['loc']))}: {found['msg']}" for found in error.errors()]
        told = "; ".join(wrong[:_MOST_TOLD]) + (f"; and {len(wrong) - _MOST_TOLD} more" * (len(wrong) > _MOST_TOLD))
        raise SiteError(f"--site {path}: {told}; the keys are {', '.join(Site.model_fields)}") from None


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_TIME = re.compile(r"(\d+)([smhd])$|(?:(\d+)-)?(\d+):(\d{2})(?::(\d{2}))?$")
_ASSUMED_CORES = 8
"""Cores of a rank, where it is not known how many a node has."""


@dataclass(frozen=True)
class WallTime:
    """The length of an allocation, seconds."""

    seconds: int

    @classmethod
    def parse(cls, text: str) -> WallTime:
        """From HH:MM:SS, HH:MM, D-HH:MM, or a number with s, m, h or d.

        Raises:
            SiteError: it is none of these, or not above 0.
        """
        match = _TIME.match(text)
        if match is None:
            raise SiteError(
                f"--time {text}: write hours:minutes:seconds, or a number with s, m, h or d, such as 04:00:00 or 90m"
            )
        count, unit, days, hours, minutes, seconds = match.groups()
        if count:
            total = int(count) * _UNITS[unit]
        else:
            total = int(days or 0) * 86400 + int(hours) * 3600 + int(minutes) * 60 + int(seconds or 0)
        if total < 1:
            raise SiteError(f"--time {text}: it must be above 0")
        return cls(total)

    @property
    def clock(self) -> str:
        """HH:MM:SS."""
        return f"{self.seconds // 3600:02d}:{self.seconds // 60 % 60:02d}:{self.seconds % 60:02d}"

    @property
    def hours_minutes(self) -> str:
        """H:MM, rounded up."""
        minutes = -(-self.seconds // 60)
        return f"{minutes // 60}:{minutes % 60:02d}"


@dataclass(frozen=True)
class NodeShape:
    """The ranks of each node: as many trainers as fit its GPUs, or as were asked for, and those that make samples."""

    nodes: int
    gpus: int
    trainers: int
    preprocessors: int
    cores: int

    @classmethod
    def of(
        cls,
        site: Site,
        nodes: int,
        gpus: int | None,
        trainers: int | None,
        preprocessors: int,
        cores: int | None,
        members: int = 1,
    ) -> NodeShape:
        """Return what was asked for, and for the rest what the site has. cores: of a rank. members: trainers of a GPU.

        Raises:
            SiteError: a node that cannot carry it.
        """
        gpus = site.gpus if gpus is None else gpus
        if gpus is None:
            raise SiteError("--gpus-per-node: say how many GPUs a node of this site has; 0 trains on CPUs")
        _at_least("--nodes", nodes, 1)
        _at_least("--gpus-per-node", gpus, 0)
        _at_least("--preprocessors-per-node", preprocessors, 0)
        if site.gpus is not None and gpus > site.gpus:
            raise SiteError(
                f"--gpus-per-node {gpus}: a node of this site has {site.gpus} ({site.title}); give at most that"
            )
        if trainers is None:
            trainers = gpus * members or 1
        _at_least("--trainers-per-node", trainers, 1)
        if gpus and trainers > gpus * members:
            raise SiteError(
                f"--trainers-per-node {trainers}: there are {gpus} GPUs, and resources.members_per_device is "
                f"{members}; give {gpus * members}"
            )
        ranks = trainers + preprocessors
        if nodes * preprocessors < 1:
            raise SiteError("--preprocessors-per-node 0: somebody must prepare samples; give 1 or more")
        if cores is None:
            cores = site.cores // ranks if site.cores is not None else _ASSUMED_CORES
        _at_least("--cores-per-rank", cores, 1)
        if site.cores is not None and cores * ranks > site.cores:
            raise SiteError(
                f"{ranks} ranks a node of {cores} cores each are {cores * ranks} cores, and a node of this site has "
                f"{site.cores}; give --cores-per-rank {max(1, site.cores // ranks)}, or fewer ranks"
            )
        return cls(nodes, gpus, trainers, preprocessors, cores)

    @property
    def ranks_per_node(self) -> int:
        return self.trainers + self.preprocessors


def _at_least(option: str, value: int, least: int) -> None:
    if value < least:
        raise SiteError(f"{option} {value}: give at least {least}")


@dataclass(frozen=True)
class BatchScript:
    """What a batch script says.

    Attributes:
        site: where it runs.
        shape: nodes, and the ranks of each.
        time: length of the allocation.
        name: the job's name.
        command: what every rank executes.
        folder: in which, and where the script is submitted: schedulers put the log there.
        run_directory: where it shows that the run has got on; of a part of the jobs, without the part's suffix.
        path: where the script will be, for one that submits itself again.
        account, queue: empty for the site's default.
        setup: lines before the run, after the site's.
        environment: variables, after the site's.
        inherited: names of variables whose values come from the environment in which the script is submitted.
        warning_seconds: how long before the end the ranks are told.
        parts: tasks of a job array, each of which profiles a part of the jobs; 0: it is none.
    """

    site: Site
    shape: NodeShape
    time: WallTime
    name: str
    command: Sequence[str]
    folder: Path
    run_directory: Path
    path: Path
    account: str = ""
    queue: str = ""
    setup: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    inherited: tuple[str, ...] = ()
    warning_seconds: int = 180
    parts: int = 0


_ACCOUNT = re.compile(r"\w[\w.,:@+/=-]*")


def script_text(script: BatchScript, template: Path | None = None) -> str:
    """The script's text.

    Args:
        template: one of the user's own; else the template of the site's scheduler.

    Raises:
        SiteError: the template cannot be read or filled in, the scheduler has no job arrays, or a batch script cannot
            say what it should.
    """
    from jinja2 import TemplateError, TemplateNotFound, TemplateSyntaxError

    _check_words(script)
    system = batch_system(script.site.scheduler)
    if script.parts and not system.task_variable:
        raise SiteError(
            f"--array {script.parts}: {script.site.scheduler} has no job arrays of batch scripts; submit each part by "
            f"itself, with the options -- --part 1/{script.parts}"
        )
    name = template or Path(system.template).name
    try:
        return system.render(_values(script, system), template)
    except TemplateNotFound as error:
        raise SiteError(f"--template {template}: there is no template {error}") from None
    except OSError as error:
        raise SiteError(f"--template {error.filename}: {error.strerror}") from None
    except MemoryError:
        raise SiteError(f"--template {name}: it takes more than {MOST_MEMORY >> 20} MB") from None
    except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as error:
        place = f" (line {error.lineno})" if isinstance(error, TemplateSyntaxError) else ""
        raise SiteError(f"--template {name}: {str(error).splitlines()[0]}{place}") from None


def _check_words(script: BatchScript) -> None:
    """Refuse what would end its line in a script, or be more than one word to the scheduler."""
    for option, word in (("--account", script.account), ("--queue", script.queue)):
        if word and _ACCOUNT.fullmatch(word) is None:
            raise SiteError(f"{option} {word!r}: give one word of letters, digits and _ . , : @ + / = -")
    named: list[tuple[str, object]] = [("the command", word) for word in script.command]
    named += [("the folder", script.folder), ("--script", script.path), ("the run directory", script.run_directory)]
    for what, value in reversed(named):
        if not str(value).isprintable():
            raise SiteError(f"{what} {str(value)!r}: a batch script cannot hold control characters; give another name")


def _values(script: BatchScript, system: BatchSystem) -> dict[str, object]:
    shape, site = script.shape, script.site
    own = f'."$part-of-{script.parts}"' if script.parts else ""  # of the tasks of an array
    environment = {**site.environment, **dict(script.environment)}
    if site.scheduler not in BATCH_SYSTEMS.built_in:
        environment[SYSTEM_VARIABLE] = site.scheduler  # so that the ranks ask it when their job ends
    return {
        "title": f"A fleet run on {shape.nodes} nodes: {site.title or site.scheduler}",
        "name": script.name,
        "nodes": shape.nodes,
        "gpus_per_node": shape.gpus,
        "ranks_per_node": shape.ranks_per_node,
        "ranks": shape.nodes * shape.ranks_per_node,
        "cores_per_rank": shape.cores,
        "time": script.time,
        "warning_seconds": script.warning_seconds,
        "account": script.account,
        "queue": script.queue,
        "qos": site.qos,
        "directives": site.directives,
        "launch": site.launch,
        "chunk": site.chunk,
        "setup": (*site.setup, *script.setup),
        "inherited": script.inherited,
        "environment": {variable: shlex.quote(value) for variable, value in environment.items()},
        "folder": shlex.quote(str(script.folder)),
        "run_directory": shlex.quote(str(script.run_directory)) + own,
        "log": script.name,
        "job": system.job,
        "script": shlex.quote(str(script.path)),
        "command": shlex.join(script.command) + (f' --part "$part/{script.parts}"' if script.parts else ""),
        "parts": script.parts,
        "part_variable": system.task_variable,
    }


def placed_script(
    script: BatchScript,
    any_name: bool,
    fill: Callable[[BatchScript], str],
    keep: bool = True,
    hides: Callable[[str], bool] = lambda _: False,
) -> tuple[BatchScript, str]:
    """The script with the path that it gets, and its text; no file is overwritten.

    Args:
        any_name: another path, with a number, will do where there is another file: NAME-2.sh.
        fill: gives the script's text.
        keep: write it; else only find its path.
        hides: says of a text whether secrets stand in it: only its owner can read that.

    Raises:
        SiteError: there is another file, or it cannot be written.
    """
    wanted = script.path
    for number in count(1):
        path = wanted.with_name(f"{wanted.stem}-{number}{wanted.suffix}") if number > 1 else wanted
        made = replace(script, path=path)
        text = fill(made)
        try:
            if _takes(made.path, text, keep, 0o700 if hides(text) else 0o777):
                return made, text
        except OSError as error:
            raise SiteError(f"--script {path}: {error.strerror}; name a file that can be written") from None
        if not any_name:
            break
    raise SiteError(
        f"--script {wanted}: there is another file of that name; give another, or remove it once no job needs it"
    )


def _takes(path: Path, text: str, keep: bool, mode: int) -> bool:
    """Return whether a script has its path: nobody has, or a file that says the same. mode: less what umask takes."""
    if keep:
        make_folder(path.parent)
        with suppress(FileExistsError):
            with whole_file(path, mode=mode, replace=False) as file:
                file.write(text.encode())
            return True
    elif not os.path.lexists(path):
        return True
    try:
        return read_bytes(path, len(text.encode())) == text.encode()
    except (TooLarge, NotAFile):
        return False
