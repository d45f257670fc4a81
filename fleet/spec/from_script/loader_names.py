"""What a running script calls its DataLoaders and their data sets."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterable, Iterator, Mapping
from types import FrameType, ModuleType
from typing import Any


def names_around(frame: FrameType | None, script: str, things: Iterable[Any]) -> dict[int, tuple[str, ...]]:
    """By its id, the names that a thing has in a frame and in its callers, from the inside out.

    A variable's name counts, that of an attribute of a variable's value, and a key of a dictionary.

    Args:
        frame: where a step is made.
        script: the file of the script; its frames and those of files beside it count.
        things: for which names are sought.
    """
    found: dict[int, dict[str, None]] = {id(thing): {} for thing in things}
    folder = script.rpartition("/")[0]
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(folder) and "-packages" not in file:
            for name, value in _named(frame.f_locals):
                if id(value) in found:
                    found[id(value)].setdefault(name)
        frame = frame.f_back
    return {key: tuple(names) for key, names in found.items()}


def assigned_at(script: str, line: int) -> tuple[str, ...]:
    """The names to which a line of the script gives what it makes."""
    try:
        tree = ast.parse("".join(linecache.getlines(script)))
    except SyntaxError:
        return ()
    nodes = [node for node in ast.walk(tree) if isinstance(node, (ast.Assign, ast.AnnAssign))]
    targets = [
        target
        for node in nodes
        if node.lineno <= line <= (node.end_lineno or 0)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]
    return tuple(dict.fromkeys(name for target in targets if (name := _name(target))))


def _named(variables: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in list(variables.items()):
        yield name, value
        if not isinstance(value, (ModuleType, type)):
            yield from ((key, each) for key, each in list(_inner(value).items()) if isinstance(key, str))


def _inner(value: Any) -> dict[Any, Any]:
    """A dictionary, or an object's attributes, whatever its own code says of them."""
    if type(value) is dict:
        return value
    try:
        attributes: dict[Any, Any] = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return attributes


def _name(target: ast.expr) -> str:
    if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        return str(target.slice.value)
    return target.attr if isinstance(target, ast.Attribute) else target.id if isinstance(target, ast.Name) else ""
