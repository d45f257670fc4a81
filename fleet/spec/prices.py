"""Prices of devices, as a spec writes them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator
from pydantic_core import PydanticCustomError

from fleet.spec.values import NotNegative

ANY = "any"
"""Stands for each kind of device that nobody names."""


def _course(value: Any) -> Any:
    """A number stands for a price that never changes."""
    return [[0.0, value]] if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _ascending(course: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
    seconds = [second for second, _ in course]
    if not seconds or seconds[0] != 0 or any(b <= a for a, b in zip(seconds, seconds[1:])):
        raise PydanticCustomError(
            "price_course",
            "tells prices from {seconds} s on; it must begin at 0, and ascend",
            {"seconds": seconds, "mend": "write [[0, 3.0], [3600, 1.5]], or a number if the price never changes"},
        )
    return course


PriceCourse = Annotated[
    tuple[tuple[NotNegative, NotNegative], ...], AfterValidator(_ascending), BeforeValidator(_course)
]
