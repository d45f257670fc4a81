"""A batch size that the devices decide: the largest that fits on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from fleet.spec.values import LARGEST_COUNT, Count

LARGEST = "largest"
_MOST = "most"
_STAND_IN = 32  # the default of `batch_size`


@dataclass(frozen=True)
class LargestBatch:
    """The wish for the largest batch that fits (FLEET, MLSys'20, section 6.1).

    Attributes:
        most: samples of a virtual worker that are never exceeded; None: only the devices, the data and the rings limit.
    """

    most: int | None = None

    @classmethod
    def of(cls, value: Any) -> LargestBatch | None:
        """The wish that a `batch_size` is; None if it is none."""
        if value == LARGEST:
            return cls()
        if isinstance(value, Mapping) and set(value) == {_MOST}:
            most = value[_MOST]
            return cls(most) if type(most) is int and 1 <= most <= LARGEST_COUNT else None
        return None

    @property
    def stand_in(self) -> int:
        """A batch size until one is chosen."""
        return _STAND_IN if self.most is None else min(_STAND_IN, self.most)

    @property
    def written(self) -> str | dict[str, int]:
        """Return the wish as a spec writes it."""
        return LARGEST if self.most is None else {_MOST: self.most}


def _number(value: Any) -> Any:
    """What is neither a number nor a wish is told as such."""
    if isinstance(value, str | Mapping):
        raise PydanticCustomError(
            "batch_size",
            "must be a whole number, largest, or {form} with a whole number of 1 or more",
            {"form": "{most: N}", "mend": "write samples of one virtual worker, `largest`, or {most: 4096}"},
        )
    return value


SizeOrLargest = Annotated[
    Count,
    BeforeValidator(_number),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": LARGEST_COUNT},
                {"const": LARGEST, "type": "string"},
                {"const": "{most: N}"},
            ]
        }
    ),
]
"""A job keeps its wish until a number is chosen; see `Job.largest_batch`."""
