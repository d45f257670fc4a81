"""How often a loop of a running script runs, read from the loop and the values that it has now."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Sized
from types import FrameType
from typing import Any

_PLAIN = (
    ast.Name, ast.Attribute, ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Load, ast.Subscript,
    ast.Call, ast.keyword,
)  # fmt: skip
_BARS = ("tqdm", "trange", "track")
MOST = 1_000_000


def epochs_around(frame: FrameType | None, script: str) -> int | None:
    """How often the loop around the one that takes batches runs; None: nobody knows.

    Args:
        frame: where a step is made.
        script: the file of the script; its frames and those of files beside it count.
    """
    found = list(_loops(frame, script))
    batches = next((place for place, loop in enumerate(found) if _count(*loop) is None), 0)
    return _count(*found[batches + 1]) if batches + 1 < len(found) else None


def _loops(frame: FrameType | None, script: str) -> Iterator[tuple[ast.For, FrameType]]:
    """The `for` loops in which a frame stands, from the inside out, through all callers."""
    folder = script.rpartition("/")[0]
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(folder) and "-packages" not in file:
            yield from ((loop, frame) for loop in reversed(_around(file, frame.f_lineno)))
        frame = frame.f_back


def _around(file: str, line: int) -> list[ast.For]:
    """The `for` loops of a file around a line, the outermost first."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return []
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For)]
    return [node for node in loops if node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0)]


def _count(loop: ast.For, frame: FrameType) -> int | None:
    """How often a loop over a range runs; None: it goes over something else, such as batches."""
    text = loop.iter
    if isinstance(text, ast.Call) and _name(text.func) in _BARS:
        text = text.args[0] if _name(text.func) != "trange" else ast.Call(ast.Name("range", ast.Load()), text.args, [])
    if not (isinstance(text, ast.Call) and _name(text.func) == "range"):
        return None
    value = _value(text, frame)
    return len(value) if isinstance(value, Sized) and 0 < len(value) <= MOST else None


def _value(node: ast.expr, frame: FrameType) -> Any:
    """The value of an expression of names, numbers and range() in a frame; None: it has parts of other kinds."""
    calls = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
    if not all(isinstance(each, _PLAIN) for each in ast.walk(node)) or any(
        _name(call.func) not in ("range", "int", "len") for call in calls
    ):
        return None
    code = compile(ast.fix_missing_locations(ast.Expression(node)), "<loop>", "eval")
    try:
        return eval(code, frame.f_globals, frame.f_locals)
    except Exception:  # such as a name that the loop itself changes
        return None


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
