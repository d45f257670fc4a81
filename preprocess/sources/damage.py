"""Files that are not as they were written: what libraries raise on them becomes one error, for people."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from preprocess.files.memory import NeedsTooMuchMemory
from preprocess.files.reading import NotAFile, TooLarge
from preprocess.samples.errors import SourceError

MEND = "convert it anew, or copy it anew from where it came"

_RAISED: tuple[type[Exception], ...] = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
#: Characters of an error that are told: some libraries put a whole file into theirs.
_MOST = 300


class DamageError(SourceError):
    """A file whose content is not as it was written."""


@contextmanager
def damage_named(path: str, what: str, also: tuple[type[Exception], ...] = (), mend: str = MEND) -> Iterator[None]:
    """Turn what a library raises on a damaged file, which can be nearly anything, into DamageError.

    Args:
        path: the file.
        what: which part of it is read.
        also: the library's own errors.
        mend: what to do about it.
    """
    try:
        with refusals_named(mend):
            yield
    except SourceError:
        raise
    except (*_RAISED, *also) as e:
        text = " ".join(str(e).split())
        reason = text if len(text) <= _MOST else text[:_MOST] + " ..."
        raise DamageError(path, f"{what} cannot be read ({reason or type(e).__name__})", mend) from e


@contextmanager
def refusals_named(mend: str = MEND) -> Iterator[None]:
    """Turn the refusal of a file that is none, or too large, into SourceError.

    Args:
        mend: what to do about it, where the refusal does not say.
    """
    try:
        yield
    except (NotAFile, TooLarge, NeedsTooMuchMemory) as refusal:
        rule, _, told = str(refusal.strerror).partition("; ")
        raise SourceError(str(refusal.filename), rule, told or mend) from refusal
