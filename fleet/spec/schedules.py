"""How a job's learning rate changes while it trains."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Strict, model_validator
from pydantic_core import PydanticCustomError

from fleet.spec.values import Count, Named, Positive, Section


class Schedule(Named):
    """How the learning rate changes: a class that torch has, or one's own, built with (optimizer, **arguments)."""

    each: Literal["step", "epoch"] = Field(
        default="step",
        description="`step`: the schedule is stepped once a step, and its arguments count steps; `epoch`: once an "
        "epoch, and they count epochs. `run` in the arguments stands for the length of the run in that unit, from the "
        "end of `warm_up` on.",
        examples=["epoch"],
    )


class WarmUp(Section):
    """A learning rate that rises along a line before the schedule begins; give one of the three lengths.

    As torch's SequentialLR of a LinearLR and the schedule; without a schedule the rate stays as it is then.
    """

    epochs: Positive | None = Field(
        default=None, description="Epochs; with a schedule that counts epochs, whole ones.", examples=[1]
    )
    steps: Count | None = Field(
        default=None, description="Steps; not with a schedule that counts epochs.", examples=[500]
    )
    fraction: Annotated[float, Strict(), Field(gt=0, lt=1, allow_inf_nan=False)] | None = Field(
        default=None, description="A part of the run.", examples=[0.05]
    )
    start_factor: Annotated[float, Strict(), Field(gt=0, le=1, allow_inf_nan=False)] = Field(
        default=0.01, description="What multiplies the learning rate at the first step.", examples=[0.1]
    )

    @model_validator(mode="after")
    def _one_length(self) -> WarmUp:
        given = [key for key in ("epochs", "steps", "fraction") if getattr(self, key) is not None]
        if len(given) != 1:
            raise PydanticCustomError(
                "one_length",
                "warm_up has {count} of epochs, steps and fraction, and must have one",
                {"count": len(given), "mend": "write one of them, such as warm_up: {epochs: 1}"},
            )
        return self


def check_unit(schedule: Schedule | None, warm_up: WarmUp | None) -> None:
    """Raise PydanticCustomError if a warm-up has a length that a schedule by epochs cannot count."""
    if schedule is None or schedule.each == "step" or warm_up is None:
        return
    if warm_up.steps is not None or (warm_up.epochs is not None and warm_up.epochs % 1):
        raise PydanticCustomError(
            "warm_up_unit",
            "the schedule counts epochs, and the warm_up before it is no number of whole epochs",
            {"mend": "give warm_up whole epochs, or let the schedule count steps: each: step"},
        )
