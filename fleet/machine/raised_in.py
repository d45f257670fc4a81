"""In whose lines an error was raised: a person who reads of it wants their own, and not those of fleet around them."""

from __future__ import annotations

import os
import sysconfig
import traceback
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_HERE = Path(__file__).parents[2]
_OURS = tuple(f"{_HERE / name}{os.sep}" for name in ("fleet", "preprocess", "trainers"))
_STANDARD = sysconfig.get_path("stdlib") + os.sep
_PACKAGES = tuple(sysconfig.get_path(name) + os.sep for name in ("purelib", "platlib"))  # perhaps below _STANDARD


def raised_in(error: BaseException) -> str:
    """Return the lines of a person's code in which an error was raised, and those that they called; "" if in none.

    From the outermost to the innermost, as a traceback has them, without those of fleet. Packages count as a person's
    code, which may name their networks, but torch and Python's own do not.
    """
    lines = [line for line in traceback.extract_tb(error.__traceback__) if not line.filename.startswith(_OURS)]
    first = next((number for number, line in enumerate(lines) if _is_a_persons(line.filename)), None)
    return "" if first is None else "".join(traceback.format_list(lines[first:])).rstrip()


def _is_a_persons(filename: str) -> bool:
    standard = filename.startswith(_STANDARD) and not filename.startswith(_PACKAGES)
    return not standard and not filename.startswith(("<", *_torch()))


@cache
def _torch() -> tuple[str, ...]:
    found = find_spec("torch")
    return tuple(f"{folder}{os.sep}" for folder in (found and found.submodule_search_locations) or ())
