"""What the rig says of work that it refuses."""

from __future__ import annotations

from collections.abc import Callable


def refusal(work: Callable[[], object]) -> str:
    """Return the first line of the error that some work ends with; "" if it ends with none."""
    try:
        work()
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return ""
