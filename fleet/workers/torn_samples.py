"""What is said of a sample that cannot be made, where a run ends by it: which, why, in whose lines, and the mend."""

from __future__ import annotations

from fleet.machine.raised_in import raised_in
from fleet.spec.job import is_own
from preprocess import SampleError


def told_of(error: SampleError) -> str:
    """Return the sentence, and the lines of sources and transforms that raised, from the outermost to the innermost."""
    lines = lines_of(error)
    where = f"\nit was raised in\n{lines}" if lines else ""
    return f"{sentence_of(error)}; the same command goes on then{where}"


def sentence_of(error: SampleError) -> str:
    """Return which sample cannot be made, why, and the mend."""
    if error.more:
        return str(error)
    skip = "" if is_own(error.data) else f", or set data.{error.data}.on_corrupt to skip"
    return f"{error}; mend it or what reads it{skip}"


def lines_of(error: SampleError) -> str:
    """Return the lines of sources and transforms that raised; "" if none did."""
    return raised_in(error.__cause__) if error.__cause__ else ""
