"""What is said of a sample that cannot be made, where a run ends by it: which, why, in whose lines, and the mend."""

from __future__ import annotations

import traceback
from pathlib import Path

import preprocess
from preprocess import SampleError

_OURS = str(Path(preprocess.__file__).parent)


def told_of(error: SampleError) -> str:
    """Return the sentence, and the lines of sources and transforms that raised, from the outermost to the innermost."""
    lines = traceback.extract_tb(error.__cause__.__traceback__) if error.__cause__ else ()
    theirs = [line for line in lines if not line.filename.startswith(_OURS)]
    where = "\nit was raised in\n" + "".join(traceback.format_list(theirs)).rstrip() if theirs else ""
    skip = "" if error.more else f"; mend it or what reads it, or set data.{error.data}.on_corrupt to skip"
    return f"{error}{skip}; the same command goes on then{where}"
