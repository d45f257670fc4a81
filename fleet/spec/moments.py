"""Times of day in a spec, such as deadlines: ISO 8601, in the local time zone unless they say another."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError, PydanticKnownError

EXAMPLE = "2026-12-01T08:00"


def moment(text: str) -> str:
    """A time with its offset from UTC, which is the local one of this process where the text says none.

    Raises:
        ValueError: it is no time of ISO 8601, or a day alone.
    """
    written = text.strip()
    try:
        found = datetime.fromisoformat(written[:-1] + "+00:00" if written.endswith(("Z", "z")) else written)
        if ":" in written:
            return (found if found.tzinfo else found.astimezone()).isoformat()
    except (ValueError, OverflowError, OSError):
        pass
    raise ValueError(f"{text!r} is no time; write it as {EXAMPLE}, or {EXAMPLE}+01:00 with its offset from UTC")


def unix_seconds(text: str) -> float:
    """Seconds since 1970 of a text that `moment` gave."""
    return datetime.fromisoformat(text).timestamp()


def due(text: str) -> float | str:
    """What an option says of a deadline: seconds above 0, or a time as `moment` gives it.

    Raises:
        ValueError: neither.
    """
    try:
        seconds = float(text)
    except ValueError:
        return moment(text)
    if not 0 < seconds < math.inf:
        raise ValueError(f"{text} is no deadline; give seconds above 0, or a time such as {EXAMPLE}")
    return seconds


def _checked(value: Any) -> float | str:
    if isinstance(value, str):
        try:
            return moment(value)
        except ValueError:
            mend = f"write seconds as a number without quotes, or a time as {EXAMPLE}"
            rule = "must be a number of seconds, or a time"
            raise PydanticCustomError("not_a_time", rule, {"suggestion": EXAMPLE, "mend": mend}) from None  # type: ignore[arg-type]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise PydanticKnownError("float_type")
    if isinstance(value, float) and not math.isfinite(value) or abs(value) > 2**1000:
        raise PydanticKnownError("finite_number")
    if not value > 0:
        raise PydanticKnownError("greater_than", {"gt": 0.0})
    return float(value)


Due = Annotated[
    float | str,
    PlainValidator(_checked),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string"}]}),
]
