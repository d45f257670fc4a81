"""A spec from a file."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from fleet.spec.document import Document, parse
from fleet.spec.ensemble import EnsembleSpec
from fleet.spec.problem import ABSENT, Problem, SpecError, nearest
from preprocess.files.reading import NotAFile, TooLarge, read_bytes

LARGEST_FILE = 16 * 2**20  # bytes


def load(
    path: str | os.PathLike[str], overrides: Sequence[str] = (), folder: str | os.PathLike[str] | None = None
) -> EnsembleSpec:
    """Read a spec.

    Args:
        path: a YAML file.
        overrides: ``path=value`` texts, each changing one value before it is looked at.
        folder: where its modules and relative paths are looked for; None: where the file is.

    Raises:
        SpecError: with everything that is wrong; no other error comes out, whatever the file holds.
    """
    name = os.fspath(path)
    place = pathlib.Path(name).parent if folder is None else pathlib.Path(folder)
    return EnsembleSpec.from_document(parse(_text(name), name), overrides, place.absolute(), name)


def loads(text: str, overrides: Sequence[str] = (), folder: str | os.PathLike[str] = ".") -> EnsembleSpec:
    """Read a spec from YAML text; see ``load``."""
    return EnsembleSpec.from_document(parse(text), overrides, pathlib.Path(folder), None)


def load_jobs(
    path: str | os.PathLike[str], ensemble: Mapping[str, Any], folder: str | os.PathLike[str]
) -> EnsembleSpec:
    """Read jobs that are to join an ensemble: one job, a list of them, or a mapping of ``jobs`` and ``defaults``.

    Args:
        path: a YAML file.
        ensemble: the values of the ensemble's spec, as ``EnsembleSpec.to_mapping`` gives them.
        folder: where its modules and relative paths are looked for.

    Returns:
        the ensemble's name, seed, data and determinism, with these jobs in place of its own.

    Raises:
        SpecError: with everything that is wrong; no other error comes out, whatever the file holds.
    """
    name = os.fspath(path)
    own = _of_jobs(parse(_text(name), name), name)
    values = {key: ensemble[key] for key in ("name", "seed", "data", "determinism") if key in ensemble}
    return EnsembleSpec.from_document(Document({**values, **own.value}, own.places), (), pathlib.Path(folder), name)


def _of_jobs(document: Document, name: str) -> Document:
    """The document as a mapping of ``jobs`` and ``defaults``."""
    value, places = document.value, document.places
    if isinstance(value, dict) and "jobs" in value:
        foreign = [key for key in value if key not in ("jobs", "defaults")]
        if foreign:
            rule = "jobs that join a run share its other sections"
            mend = "keep jobs and defaults alone"
            line = places[(foreign[0],)].line
            raise SpecError([Problem(str(foreign[0]), ABSENT, rule, mend=mend, line=line)], name)
        return document
    if isinstance(value, list):
        return Document({"jobs": value}, {("jobs", *path): place for path, place in places.items()})
    return Document({"jobs": [value]}, {("jobs", 0, *path): place for path, place in places.items()})


def _text(name: str) -> str:
    try:
        return read_bytes(name, LARGEST_FILE).decode("utf-8-sig")
    except TooLarge as error:
        rule = f"the file {error.strerror}"
        raise SpecError([Problem("", ABSENT, rule, mend="use grids, samples and defaults")], name) from None
    except (NotAFile, FileNotFoundError, NotADirectoryError):
        raise SpecError([_not_a_file(pathlib.Path(name))], name) from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        rule = f"the file is not UTF-8 text: byte {error.object[error.start]:#04x} at {error.start}"
        raise SpecError([Problem("", ABSENT, rule, mend="save it as UTF-8", line=line)], name) from None
    except (OSError, ValueError) as error:
        rule = f"the file cannot be read: {getattr(error, 'strerror', None) or error}"
        raise SpecError([Problem("", ABSENT, rule, mend="check its permissions and its name")], name) from None


def _not_a_file(file: pathlib.Path) -> Problem:
    if file.is_dir():
        inside = sorted(child.name for child in file.iterdir() if child.suffix in (".yaml", ".yml"))
        suggestion = str(file / inside[0]) if inside else None
        return Problem("", ABSENT, "this is a directory; a spec is a YAML file", suggestion, "name the file in it")
    if file.exists():
        return Problem("", ABSENT, "this is not a regular file", mend="copy the spec into a file")
    folder = file.parent
    beside = [child.name for child in folder.iterdir()] if folder.is_dir() else []
    close = nearest(file.name, beside, likeness=0.75)
    rule = "there is no such file" if folder.is_dir() else f"there is no such file: the folder {folder} does not exist"
    return Problem("", ABSENT, rule, str(folder / close) if close else None, "check the path")
