"""The text of a spec: YAML -> plain values, where each of them was written, and ``--set`` changes of single values.

Nothing but plain values comes out: mappings, lists, text, numbers, true/false and null. A tag that would make anything
else is refused. Numbers are those of YAML 1.2 (``1e-3`` is a number, ``1:30`` and ``2026-01-01`` are text); yes/no and
on/off are booleans as in YAML 1.1.

The path of a ``--set path=value`` is dotted. A list takes an index (``jobs.0.seed=3``), the list of jobs also a name
(``jobs.mlp-1.stop.epochs=2``), and a key that itself holds dots stands as it is
(``jobs.1.grid.over.model.arguments.width=[4]``). A value is YAML. A job that a grid or a sample makes is changed after
it is made.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from fleet.spec.problem import ABSENT, KeyPath, Problem, SpecError, nearest, shown, written
from fleet.spec.values import MOST_DIGITS, NAMED_KEYS

DEEPEST = 64  # levels of nesting
MOST_VALUES = 200_000  # after aliases are followed, so that a few lines cannot fill the memory

_TAG = "tag:yaml.org,2002:"
_TRUE = {"true", "yes", "on"}
_KEPT_RESOLVERS = (f"{_TAG}bool", f"{_TAG}null", f"{_TAG}merge")


class _TooMany(yaml.MarkedYAMLError):
    """A text holds more values than a spec can."""


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with the numbers of YAML 1.2; used to compose nodes, never to construct objects."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag in _KEPT_RESOLVERS]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    composed = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self.composed += 1
        if self.composed > MOST_VALUES:  # before each takes a kilobyte
            raise _TooMany(problem_mark=self.peek_event().start_mark)
        return super().compose_node(parent, index)


_Loader.add_implicit_resolver(
    f"{_TAG}int", re.compile(r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$"), list("-+0123456789")
)
_Loader.add_implicit_resolver(
    f"{_TAG}float",
    re.compile(
        r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
    list("-+0123456789."),
)


@dataclass(frozen=True)
class Origin:
    """Where a value was written: a line of the file, or a ``--set``."""

    line: int | None = None
    column: int | None = None
    override: str | None = None


@dataclass(frozen=True)
class Document:
    """Plain values and their places."""

    value: Any
    places: dict[KeyPath, Origin]


def parse(text: str, file: str | None = None) -> Document:
    """Parse YAML text.

    Raises:
        SpecError: the text is not YAML, is empty, or holds a tag, a repeated key, a key that is no text, or an alias of
            itself.
    """
    node = _compose(text, file)
    if node is None:
        raise SpecError(
            [Problem("", ABSENT, "the file is empty", mend="write a spec: name, data and jobs are needed")], file
        )
    reading = _Reading()
    value = reading.value(node, ())
    if reading.problems:
        raise SpecError(reading.problems, file)
    return Document(value, reading.places)


def _compose(text: str, file: str | None) -> yaml.Node | None:
    try:
        return yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (None, None)
        if isinstance(error, _TooMany):
            rule, mend = f"more than {MOST_VALUES:,} values", "use grids, samples and defaults"
            raise SpecError([Problem("", ABSENT, rule, mend=mend, line=line)], file) from None
        rule = "not valid YAML: " + ", ".join(part for part in (error.context, error.problem) if part)
    except RecursionError:
        line, column, rule = None, None, f"nested too deeply: at most {DEEPEST} levels"
    except Exception as error:  # PyYAML lets ValueError, OverflowError and others through for some texts
        line, column, rule = None, None, "not valid YAML: " + str(error).split("\n")[0]
    problem = Problem(
        "", ABSENT, rule, mend="correct the text at this place or just before it", line=line, column=column
    )
    raise SpecError([problem], file)


class _Refused(ValueError):
    """A scalar that cannot be what its tag says."""


@dataclass
class _Reading:
    """One pass over the nodes of a document."""

    places: dict[KeyPath, Origin] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    seen: int = 0
    above: list[int] = field(default_factory=list)

    def value(self, node: yaml.Node, path: KeyPath) -> Any:
        self.seen += 1
        if self.seen > MOST_VALUES:
            if self.seen == MOST_VALUES + 1:
                self.refuse(
                    node,
                    path,
                    f"more than {MOST_VALUES:,} values once aliases are followed",
                    "use fewer aliases (*name)",
                )
            return None
        if id(node) in self.above or len(self.above) >= DEEPEST:
            rule = "an alias of itself" if id(node) in self.above else f"nested too deeply: at most {DEEPEST} levels"
            return self.refuse(node, path, rule, "write the values out")
        if not self.known(node):
            tag = node.tag.replace(_TAG, "!!")
            return self.refuse(
                node,
                path,
                f"the tag {tag} is refused: a spec holds plain values only, and runs no code",
                "take the tag away",
            )
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node, path)
        self.above.append(id(node))
        collect: Any = self.sequence if isinstance(node, yaml.SequenceNode) else self.mapping
        value = collect(node, path)
        self.above.pop()
        return value

    def known(self, node: yaml.Node) -> bool:
        kinds = {
            yaml.ScalarNode: ("str", "int", "float", "bool", "null", "merge"),
            yaml.SequenceNode: ("seq",),
            yaml.MappingNode: ("map",),
        }
        return node.tag in {_TAG + kind for kind in kinds[type(node)]}

    def refuse(self, node: yaml.Node, path: KeyPath, rule: str, mend: str, value: object = ABSENT) -> None:
        mark = node.start_mark
        self.problems.append(Problem(written(path), value, rule, mend=mend, line=mark.line + 1, column=mark.column + 1))

    def scalar(self, node: yaml.ScalarNode, path: KeyPath) -> Any:
        try:
            return _scalar(node.tag.replace(_TAG, ""), node.value)
        except _Refused as error:
            return self.refuse(
                node, path, str(error), "correct the value, or put it in quotes if it is text", shown(node.value)
            )

    def sequence(self, node: yaml.SequenceNode, path: KeyPath) -> list[Any]:
        values = []
        for index, child in enumerate(node.value):
            self.place(path + (index,), child)
            values.append(self.value(child, path + (index,)))
        return values

    def mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        lines: dict[Any, int] = {}
        for key_node, child in self.items(node, path):
            key = self.key(key_node, path)
            if key is None:
                continue
            if key in lines:
                rule = f"the key {key!r} stands here twice, first on line {lines[key]}"
                self.refuse(key_node, path + (key,), rule, "keep one of them")
                continue
            lines[key] = key_node.start_mark.line + 1
            self.place(path + (key,), key_node)
            result[key] = self.value(child, path + (key,))
        return self.merged(node, result, path)

    def items(self, node: yaml.MappingNode, path: KeyPath) -> Iterator[tuple[yaml.Node, yaml.Node]]:
        return (pair for pair in node.value if pair[0].tag != f"{_TAG}merge")

    def merged(self, node: yaml.MappingNode, result: dict[Any, Any], path: KeyPath) -> dict[Any, Any]:
        """``<<: *name`` gives the keys that are not there yet."""
        for key_node, child in node.value:
            if key_node.tag != f"{_TAG}merge":
                continue
            for source in child.value if isinstance(child, yaml.SequenceNode) else [child]:
                extra = _Reading(problems=self.problems, seen=self.seen, above=self.above)
                values = extra.value(source, path)
                self.seen = extra.seen
                if not isinstance(values, dict):
                    self.refuse(
                        key_node,
                        path + ("<<",),
                        "<< takes a mapping or a list of mappings",
                        "give it an alias of a mapping",
                    )
                    continue
                added = {key: value for key, value in values.items() if key not in result}
                self.places.update({at: place for at, place in extra.places.items() if at[len(path)] in added})
                result.update(added)
        return result

    def key(self, node: yaml.Node, path: KeyPath) -> str | int | None:
        value = self.value(node, path) if isinstance(node, yaml.ScalarNode) else None
        if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        what = shown(node.value) if isinstance(node, yaml.ScalarNode) else "a list or mapping"
        self.refuse(node, path, f"a key must be text, but {what} is not", "put the key in quotes")
        return None

    def place(self, path: KeyPath, node: yaml.Node) -> None:
        self.places[path] = Origin(node.start_mark.line + 1, node.start_mark.column + 1)


def _scalar(kind: str, text: str) -> Any:
    if kind in ("str", "merge"):
        return text
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() in _TRUE
    if kind == "int" and len(text) > MOST_DIGITS:
        digits = f"{len(text):,} digits are too many, {MOST_DIGITS:,} may be"
        raise _Refused(f"{shown(text)} is not a whole number that can be read: {digits}")
    try:
        if kind == "int":
            return int(text, 8 if text.startswith("0o") else 16 if text.startswith("0x") else 10)
        return float(re.sub(r"^([-+]?)\.(inf|nan)$", r"\1\2", text.lower()))
    except ValueError:
        raise _Refused(
            f"{shown(text)} is not {'a whole number' if kind == 'int' else 'a number'} that can be read"
        ) from None


def places_of(value: Any, path: KeyPath, place: Origin) -> Iterator[tuple[KeyPath, Origin]]:
    """Give a value and all that it holds the same place."""
    yield path, place
    items: Any = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, child in items:
        yield from places_of(child, path + (key,), place)


@dataclass(frozen=True)
class JobOrigin:
    """Where one job of the expanded list comes from.

    Attributes:
        base: its mapping in the file, as ``("jobs", 2)`` or ``("jobs", 1, "grid")``.
        over: for each path that a grid or sample sets in the job, where its value stands in the file.
        overrides: for each path set by ``--set`` under the job's generated name, the text of it.
    """

    base: KeyPath
    over: Mapping[KeyPath, KeyPath] = field(default_factory=dict)
    overrides: Mapping[KeyPath, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Origins:
    """The places of all values. All Origins are equal: where a spec was written is not part of what it says."""

    file: str | None = field(default=None, compare=False)
    folder: pathlib.Path = field(default=pathlib.Path("."), compare=False)
    places: Mapping[KeyPath, Origin] = field(default_factory=dict, compare=False)
    jobs: tuple[JobOrigin, ...] = field(default=(), compare=False)

    def problem(self, path: KeyPath, value: Any, rule: str, suggestion: str | None = None, mend: str = "") -> Problem:
        """A problem with the value at ``path`` of the expanded spec, placed where that value was written."""
        at, place = self.locate(path)
        return Problem(written(at), value, rule, suggestion, mend, place.line, place.column, place.override)

    def locate(self, path: KeyPath) -> tuple[KeyPath, Origin]:
        """The path in the file, and the place, of a path in the expanded spec."""
        if len(path) < 2 or path[0] != "jobs" or not isinstance(path[1], int) or path[1] >= len(self.jobs):
            return path, self.place(path)
        origin, inside = self.jobs[path[1]], path[2:]
        for start, text in origin.overrides.items():
            if inside[: len(start)] == start or (
                start[: len(inside)] == inside and self.depth(origin.base, inside) < len(inside)
            ):
                return origin.base + inside, Origin(override=text)
        for start, source in origin.over.items():
            if inside[: len(start)] == start:
                return source + inside[len(start) :], self.place(source)
            if inside and start[: len(inside)] == inside and not self.is_written(origin, inside):
                return source, self.place(source)
        if self.depth(("defaults",), inside) > self.depth(origin.base, inside):
            return ("defaults",) + inside, self.place(("defaults",) + inside)
        return origin.base + inside, self.place(origin.base + inside)

    def is_written(self, origin: JobOrigin, inside: KeyPath) -> bool:
        return origin.base + inside in self.places or ("defaults",) + inside in self.places

    def depth(self, base: KeyPath, inside: KeyPath) -> int:
        """Return how many parts of ``inside`` were written under ``base``."""
        return next((count for count in range(len(inside), 0, -1) if base + inside[:count] in self.places), 0)

    def place(self, path: KeyPath) -> Origin:
        """The place of a path in the file, or of the nearest thing around it."""
        return next((self.places[path[:end]] for end in range(len(path), 0, -1) if path[:end] in self.places), Origin())


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


def apply(document: Document, texts: Sequence[str]) -> tuple[list[Override], list[Problem]]:
    """Apply ``--set`` texts in their order to a document whose value is a mapping; the document is changed in place.

    Returns:
        those for jobs that are still to be made, and the problems.
    """
    later: list[Override] = []
    problems: list[Problem] = []
    for text in texts:
        try:
            override = read_override(text)
            path = _place_value(document.value, override)
        except _NoSuchPath as error:
            problems.append(
                Problem(error.path, ABSENT, error.rule, error.suggestion, error.mend, origin=f"--set {text}")
            )
            continue
        if path is None:
            later.append(override)
        else:
            _note(document.places, path, override)
    return later, problems


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


def _place_value(root: Container, override: Override) -> KeyPath | None:
    """Set the value; returns its path, or None if it is for a job that is still to be made."""
    container: Container = root
    at: KeyPath = ()
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


def _next_key(container: Container, at: KeyPath, rest: tuple[str, ...]) -> tuple[str | int | None, int]:
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


def _index(container: list[Any], at: KeyPath, rest: tuple[str, ...]) -> int:
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


def _inside(container: Container, key: str | int, at: KeyPath) -> Container:
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


def _note(places: dict[KeyPath, Origin], path: KeyPath, override: Override) -> None:
    for old in [old for old in places if old[: len(path)] == path]:
        del places[old]
    place = Origin(override=override.origin)
    places.update(places_of(override.value, path, place))
    for end in range(1, len(path)):
        places.setdefault(path[:end], place)


def apply_to_job(jobs: Sequence[dict[str, Any]], override: Override) -> tuple[int, KeyPath] | Problem:
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
