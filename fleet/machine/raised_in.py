"""In whose lines an error was raised: a person who reads of it wants their own, and not those of fleet around them."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

import preprocess

_HERE = Path(preprocess.__file__).parents[1]
_OURS = tuple(str(_HERE / name) for name in ("fleet", "preprocess", "trainers"))
_INSTALLED = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))


def raised_in(error: BaseException) -> str:
    """Return the lines of a person's code in which an error was raised, and those that they called; "" if in none.

    From the outermost to the innermost, as a traceback has them, without those of fleet.
    """
    lines = [line for line in traceback.extract_tb(error.__traceback__) if not line.filename.startswith(_OURS)]
    own = (number for number, line in enumerate(lines) if not line.filename.startswith(("<", *_INSTALLED)))
    first = next(own, None)
    return "" if first is None else "".join(traceback.format_list(lines[first:])).rstrip()
