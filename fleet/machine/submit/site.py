"""What is known of a site: its scheduler, its nodes, and the lines that a job there needs."""

from __future__ import annotations

import re
from collections.abc import Collection
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from preprocess.files.reading import read_text

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


_Line = Annotated[str, AfterValidator(_one_line)]
_Word = Annotated[str, Field(pattern=r"^([\w-]*)$")]


class Site(BaseModel):
    """A site, or a kind of scheduler.

    Attributes:
        scheduler: whose script it gets.
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

    scheduler: Literal["slurm", "lsf", "pbs", "flux"]
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
    """The site of that name, or that a YAML file describes.

    Raises:
        UnknownSiteError: it is neither.
        SiteError: the file is not right.
    """
    if name.endswith((".yaml", ".yml")):
        return _from_file(Path(name))
    known: dict[str, Any] = yaml.safe_load((files("batch_scripts") / SITES).read_text())
    if name not in known:
        raise UnknownSiteError(name, known)
    return Site.model_validate(known[name])


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
