"""YAML text -> plain values, and the line on which each of them stands.

Nothing but plain values comes out: mappings, lists, text, numbers, true/false and null. A tag that would make anything
else is refused. Numbers are those of YAML 1.2 (``1e-3`` is a number, ``1:30`` and ``2026-01-01`` are text); yes/no and
on/off are booleans as in YAML 1.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from fleet.spec.problem import ABSENT, Path, Problem, SpecError, shown, written
from fleet.spec.values import MOST_DIGITS

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
    places: dict[Path, Origin]


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

    places: dict[Path, Origin] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    seen: int = 0
    above: list[int] = field(default_factory=list)

    def value(self, node: yaml.Node, path: Path) -> Any:
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

    def refuse(self, node: yaml.Node, path: Path, rule: str, mend: str, value: object = ABSENT) -> None:
        mark = node.start_mark
        self.problems.append(Problem(written(path), value, rule, mend=mend, line=mark.line + 1, column=mark.column + 1))

    def scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        try:
            return _scalar(node.tag.replace(_TAG, ""), node.value)
        except _Refused as error:
            return self.refuse(
                node, path, str(error), "correct the value, or put it in quotes if it is text", shown(node.value)
            )

    def sequence(self, node: yaml.SequenceNode, path: Path) -> list[Any]:
        values = []
        for index, child in enumerate(node.value):
            self.place(path + (index,), child)
            values.append(self.value(child, path + (index,)))
        return values

    def mapping(self, node: yaml.MappingNode, path: Path) -> dict[Any, Any]:
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

    def items(self, node: yaml.MappingNode, path: Path) -> Iterator[tuple[yaml.Node, yaml.Node]]:
        return (pair for pair in node.value if pair[0].tag != f"{_TAG}merge")

    def merged(self, node: yaml.MappingNode, result: dict[Any, Any], path: Path) -> dict[Any, Any]:
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

    def key(self, node: yaml.Node, path: Path) -> str | int | None:
        value = self.value(node, path) if isinstance(node, yaml.ScalarNode) else None
        if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        what = shown(node.value) if isinstance(node, yaml.ScalarNode) else "a list or mapping"
        self.refuse(node, path, f"a key must be text, but {what} is not", "put the key in quotes")
        return None

    def place(self, path: Path, node: yaml.Node) -> None:
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


def places_of(value: Any, path: Path, place: Origin) -> Iterator[tuple[Path, Origin]]:
    """Give a value and all that it holds the same place."""
    yield path, place
    items: Any = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, child in items:
        yield from places_of(child, path + (key,), place)
