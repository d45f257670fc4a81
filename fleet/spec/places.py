"""Where a spec's relative paths begin: in its own folder, as its modules do, whatever the current folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fleet.spec.ensemble import EnsembleSpec
from fleet.spec.problem import Path as KeyPath
from fleet.spec.problem import Problem, SpecError, in_order
from fleet.spec.sections import Source

_PATHS = ("path", "root", "dir", "file", "folder")
"""What the names of a person's own arguments hold that are paths."""


def check_places(spec: EnsembleSpec) -> None:
    """Check, from where the command was given, that no path of data leads to a file there instead of beside the spec.

    Raises:
        SpecError: with all such paths.
    """
    problems = list(place_problems(spec))
    if problems:
        raise SpecError(in_order(problems))


def place_problems(spec: EnsembleSpec) -> Iterator[Problem]:
    """The paths of data that are there in the current folder, and not in the spec's."""
    here = Path.cwd()
    if spec.folder.absolute() == here:
        return
    for name, data in spec.data.items():
        for key, source in (("train", data.train), ("held_out", data.held_out)):
            base: KeyPath = ("data", name, key, "arguments")
            for path, text in _texts(source.arguments, base) if source is not None else ():
                if _is_path(source, path, text) and not (spec.folder / text).exists() and Path(text).exists():
                    there = os.path.relpath(text, spec.folder.absolute())
                    rule = (
                        f"there is no such file in {spec.folder.absolute()}, where relative paths of the spec begin; "
                        f"{here}, where the command was given, has one"
                    )
                    mend = f"write {there}, or give the command --folder {here}"
                    yield spec.origins.problem(path, text, rule, there, mend)


def _texts(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, child in value.items():
            yield from _texts(child, (*path, key))
    elif isinstance(value, (list, tuple)):
        for number, child in enumerate(value):
            yield from _texts(child, (*path, number))


def _is_path(source: Source | None, path: KeyPath, text: str) -> bool:
    """Whether an argument is a relative path: in a person's own data set, as far as its name or its form says so."""
    if source is None or not text or os.path.isabs(text) or "://" in text or "\0" in text:
        return False
    names = [key for key in path[4:] if isinstance(key, str)]
    told = any(word in name.lower() for name in names for word in _PATHS)
    return ":" not in source.source or told or os.sep in text or bool(Path(text).suffix)


def with_found_files(spec: EnsembleSpec) -> EnsembleSpec:
    """The spec with the full paths of its files of rates, of which some are in the current folder alone."""
    if spec.folder.absolute() == Path.cwd():
        return spec
    found: dict[str, Any] = {}
    for name, key in (("profile", "file"), ("rehearse", "rates")):
        section = getattr(spec, name)
        told = None if section is None else getattr(section, key)
        if isinstance(told, str):
            found[name] = section.model_copy(update={key: str(spec.file(told).absolute())})
    return spec.model_copy(update=found)
