"""In whose lines an error was raised: a person who reads of it wants their own, and not those of fleet around them."""

from __future__ import annotations

import os
import sysconfig
import traceback
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from traceback import FrameSummary

_HERE = Path(__file__).parents[2]
_OURS = tuple(f"{_HERE / name}{os.sep}" for name in ("fleet", "preprocess", "trainers"))
_STANDARD = sysconfig.get_path("stdlib") + os.sep
_PACKAGES = tuple(sysconfig.get_path(name) + os.sep for name in ("purelib", "platlib"))  # perhaps below _STANDARD
_CALLS = ("_call_impl", "_wrapped_call_impl")
"""Functions of torch through which each layer is called."""


def raised_in(error: BaseException) -> str:
    """Return the lines of a person's code in which an error was raised, and those that they called; "" if in none."""
    return a_persons_lines(traceback.extract_tb(error.__traceback__))


def a_persons_lines(stack: Sequence[FrameSummary]) -> str:
    """Return the same of a traceback's lines.

    From the outermost to the innermost, as a traceback has them, without those of fleet. Packages count as a person's
    code, which may name their networks, but torch and Python's own do not.
    """
    lines = [line for line in stack if not line.filename.startswith(_OURS)]
    first = next((number for number, line in enumerate(lines) if _is_a_persons(line.filename)), None)
    return "" if first is None else _told(lines[first:])


def lines_of_torch(stack: Sequence[FrameSummary]) -> str:
    """Return the lines of torch in which an error was raised that fleet had called; "" if it was not raised there."""
    last = max((number for number, line in enumerate(stack) if line.filename.startswith(_OURS)), default=-1)
    lines = stack[last + 1 :]
    return _told(lines) if lines and lines[0].filename.startswith(_torch()) else ""


def _told(lines: Sequence[FrameSummary]) -> str:
    """Without those that only call a layer of a network."""
    told = [line for line in lines if not (line.name in _CALLS and line.filename.startswith(_torch()))]
    return "".join(traceback.format_list(told)).rstrip()


def _is_a_persons(filename: str) -> bool:
    standard = filename.startswith(_STANDARD) and not filename.startswith(_PACKAGES)
    return not standard and not filename.startswith(("<", *_torch()))


@cache
def _torch() -> tuple[str, ...]:
    found = find_spec("torch")
    return tuple(f"{folder}{os.sep}" for folder in (found and found.submodule_search_locations) or ())
