"""What a rank tells of a job whose code went wrong, whatever that raised and whatever it says of itself."""

from __future__ import annotations

import traceback

from fleet.coordination.protocol import Left

_MOST_TEXT, _MOST_TRACEBACK = 2_000, 20_000  # characters


def last_word(job: str, error: BaseException, fatal: bool = False) -> Left:
    """The last word of a member whose job failed, with the traceback."""
    text = "".join(traceback.format_exception(error))
    return Left(job, 0, "failed", error=_said(error), traceback=text[-_MOST_TRACEBACK:], fatal=fatal)


def _said(error: BaseException) -> str:
    """The error's kind and text; a kind whose text cannot be made is told alone."""
    kind = type(error).__name__
    try:
        text = f"{kind}: {error}"
    except BaseException as broken:
        return f"{kind}, whose text cannot be made ({type(broken).__name__})"
    if isinstance(error, Exception):
        return text[:_MOST_TEXT]
    return f"{text[:_MOST_TEXT]} (its code tried to end the process)"
