"""How much of what a search trains ahead of need may be for nothing."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, Strict, StrictBool

USUAL_SHARE = 0.03
Share = StrictBool | Annotated[float, Strict(), Field(ge=0, le=1, allow_inf_nan=False)]


def share_of(ahead: bool | float) -> float:
    """How many epochs may be trained for nothing, as a part of those that the search wants; 0: nothing is ahead."""
    return (USUAL_SHARE if ahead else 0.0) if isinstance(ahead, bool) else ahead
