"""What a rank tells of a job whose code went wrong, whatever that raised and whatever it says of itself."""

from __future__ import annotations

import re
import traceback

import torch

from fleet.coordination.protocol import Left

_MOST_TEXT, _MOST_TRACEBACK = 2_000, 20_000  # characters
_NO_MEMORY = re.compile(r".*?Tried to allocate [\d.]+ \w+\.(?: GPU \d+ has .*? is free\.)?", re.DOTALL)
_ALLOWED = re.compile(r"[\d.]+ \w+ allowed")
"""Of what torch says when a device's memory ends; all else, such as each process's share, is in the traceback."""


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
    if isinstance(error, torch.OutOfMemoryError):
        return _said_of_memory(text)[:_MOST_TEXT]
    if isinstance(error, Exception):
        return text[:_MOST_TEXT]
    return f"{text[:_MOST_TEXT]} (its code tried to end the process)"


def _said_of_memory(text: str) -> str:
    """What was asked for, what is free and what is allowed, with the mend."""
    begin, allowed = _NO_MEMORY.match(text), _ALLOWED.search(text)
    told = begin[0].removesuffix(".") if begin else text
    share, fewer = (f", {allowed[0]} to this trainer", ", or fewer members_per_device") if allowed else ("", "")
    return f"{told}{share}; try a smaller batch_size (accumulate keeps a step's samples){fewer}"
