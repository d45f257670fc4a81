"""``--set path=value``: one value of a spec, changed from the command line.

A path is dotted. A list takes an index (``jobs.0.seed=3``), the list of jobs also a name
(``jobs.mlp-1.stop.epochs=2``), and a key that itself holds dots stands as it is
(``jobs.1.grid.over.model.arguments.width=[4]``). A value is YAML. A job that a grid or a sample makes is changed after
it is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fleet.spec.document import Document, Origin, parse, places_of
from fleet.spec.job import NAMED_KEYS
from fleet.spec.problem import ABSENT, Path, Problem, SpecError, nearest

Container = Any  # a dict, or a list: what a path can lead into


@dataclass(frozen=True)
class Override:
    """One ``--set``: the parts of its path, and its value."""

    text: str
    parts: tuple[str, ...]
    value: Any

    @property
    def origin(self) -> str:
        """How a message names it."""
        return f"--set {self.text}"


@dataclass
class Applied:
    """What became of the overrides: a changed document, those for jobs still to be made, and the problems."""

    document: Document
    later: list[Override] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def apply(document: Document, texts: Sequence[str]) -> Applied:
    """Apply ``--set`` texts in their order to a document whose value is a mapping; the document is changed in place."""
    applied = Applied(document)
    for text in texts:
        try:
            override = read_override(text)
            path = _place_value(document.value, override)
        except _NoSuchPath as error:
            applied.problems.append(
                Problem(error.path, ABSENT, error.rule, error.suggestion, error.mend, origin=f"--set {text}")
            )
            continue
        if path is None:
            applied.later.append(override)
        else:
            _note(document.places, path, override)
    return applied


class _NoSuchPath(ValueError):
    def __init__(self, path: str, rule: str, suggestion: str | None = None, mend: str = "") -> None:
        super().__init__(rule)
        self.path, self.rule, self.suggestion, self.mend = path, rule, suggestion, mend


def read_override(text: str) -> Override:
    """Split ``path=value`` and parse the value as YAML; nothing after ``=`` is null."""
    path, equals, value = text.partition("=")
    parts = tuple(part.strip() for part in path.split("."))
    if not equals or not all(parts):
        rule = "an override is written path=value, with a dotted path, as in resources.trainers=2"
        raise _NoSuchPath(path.strip(), rule, mend="write --set resources.trainers=2")
    if not value.strip():
        return Override(text, parts, None)
    try:
        return Override(text, parts, parse(value).value)
    except SpecError as error:
        raise _NoSuchPath(
            path.strip(), f"the value is {error.problems[0].rule}", mend="put the value in quotes"
        ) from None


def _place_value(root: Container, override: Override) -> Path | None:
    """Set the value; returns its path, or None if it is for a job that is still to be made."""
    container: Container = root
    at: Path = ()
    rest = override.parts
    while True:
        key, used = _next_key(container, at, rest)
        if key is None:
            return None
        at, rest = at + (key,), rest[used:]
        if not rest:
            container[key] = override.value
            return at
        container = _inside(container, key, at)


def _next_key(container: Container, at: Path, rest: tuple[str, ...]) -> tuple[str | int | None, int]:
    """The key of ``container`` that the first parts of ``rest`` name, and how many of them."""
    if isinstance(container, list):
        if rest[0].isascii() and rest[0].isdigit() and len(rest[0]) < 10:
            return _index(container, at, rest), 1
        if at == ("jobs",):
            return _job_named(container, rest)
        raise _NoSuchPath(
            ".".join(map(str, at)) + f".{rest[0]}", "a list takes an index, from 0", ".".join(map(str, at + (0,)))
        )
    for used in range(len(rest), 1, -1):
        if ".".join(rest[:used]) in container:
            return ".".join(rest[:used]), used
    return rest[0], 1


def _index(container: list[Any], at: Path, rest: tuple[str, ...]) -> int:
    index, here = int(rest[0]), ".".join(map(str, at))
    if index < len(container):
        return index
    if not container:
        raise _NoSuchPath(f"{here}.{index}", f"{here} is empty", mend=f"set the whole of it: {here}=[...]")
    last = ".".join((here, str(len(container) - 1), *rest[1:]))
    raise _NoSuchPath(f"{here}.{index}", f"{here} has the indices 0 to {len(container) - 1}", last)


def _job_named(jobs: list[Any], rest: tuple[str, ...]) -> tuple[int | None, int]:
    names = {
        job["name"]: index
        for index, job in enumerate(jobs)
        if isinstance(job, dict) and isinstance(job.get("name"), str)
    }
    for used in range(len(rest), 0, -1):
        if ".".join(rest[:used]) in names:
            return names[".".join(rest[:used])], used
    return None, 0


def _inside(container: Container, key: str | int, at: Path) -> Container:
    """What stands at ``key``, made a mapping if it is not there, is null, or is a name that stands for {name: ...}."""
    child = container[int(key)] if isinstance(container, list) else container.get(key)
    if isinstance(child, str) and key in (*NAMED_KEYS, "policy"):
        child = {"name": child}
    if child is None:
        child = {}
    if not isinstance(child, (dict, list)):
        here = ".".join(map(str, at))
        raise _NoSuchPath(here, f"{here} is {child!r}, with nothing inside it", here, f"set {here} itself")
    container[key] = child
    return child


def _note(places: dict[Path, Origin], path: Path, override: Override) -> None:
    for old in [old for old in places if old[: len(path)] == path]:
        del places[old]
    place = Origin(override=override.origin)
    places.update(places_of(override.value, path, place))
    for end in range(1, len(path)):
        places.setdefault(path[:end], place)


def apply_to_job(jobs: Sequence[dict[str, Any]], override: Override) -> tuple[int, Path] | Problem:
    """Apply an override that names a job to the jobs as they were made.

    Returns:
        the job's index and the path inside it that was set, or the problem.
    """
    names = {job["name"]: index for index, job in enumerate(jobs) if isinstance(job.get("name"), str)}
    parts = override.parts[1:]
    used = next((used for used in range(len(parts), 0, -1) if ".".join(parts[:used]) in names), 0)
    if not used or not parts[used:]:
        close = nearest(parts[0], names) or nearest(".".join(parts[:2]), names)
        suggestion = ".".join(("jobs", close, *parts[max(used, 1) :])) if close else None
        rule = (
            "there is no job of this name"
            if not used
            else "a job is changed by one of its keys, as in jobs.NAME.seed=1"
        )
        return Problem(f"jobs.{parts[0]}", ABSENT, rule, suggestion, _job_mend(list(names)), origin=override.origin)
    index = names[".".join(parts[:used])]
    try:
        path = _place_value(jobs[index], Override(override.text, parts[used:], override.value))
    except _NoSuchPath as error:
        return Problem(
            f"jobs.{parts[0]}.{error.path}", ABSENT, error.rule, error.suggestion, error.mend, origin=override.origin
        )
    return index, path or ()


def _job_mend(names: list[str]) -> str:
    return (
        f"name one of the jobs: {', '.join(names[:8])}{' ...' if len(names) > 8 else ''}"
        if names
        else "add a job to the spec first"
    )
