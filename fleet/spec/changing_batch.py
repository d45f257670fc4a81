"""The batches of a job whose batch a policy may change while it trains."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Strict, model_validator
from pydantic_core import PydanticCustomError

from fleet.spec.values import CountRange, NotNegative, Section


class ChangingBatch(Section):
    """Batches that a policy may choose, and what the learning rate does then. The virtual workers stay as many."""

    range: CountRange = Field(
        description="The smallest and largest global batch (samples of all virtual workers).", examples=[[64, 1024]]
    )
    change: Literal["epochs", "start"] = Field(
        default="epochs",
        description="`epochs`: the batch may change at the end of each epoch; `start`: it is chosen when the job first "
        "starts, and stays.",
        examples=["epochs"],
    )
    learning_rate: Literal["linear", "square_root", "keep"] = Field(
        description="What multiplies the learning rate when the batch is n times the job's own, virtual_workers x "
        "batch_size: n, its square root, or 1. The schedule counts steps of the job's own batch.",
        examples=["square_root"],
    )
    growth: Annotated[float, Strict(), Field(ge=1.25, allow_inf_nan=False)] | None = Field(
        default=None,
        description="By how many times, up or down, the batch changes at the end of one epoch at most, from the job's "
        "own batch on; the next epochs bring the rest. null: any change is made at once.",
        examples=[2],
    )
    warm_up: NotNegative = Field(
        default=0.0,
        description="Epochs in which the learning rate comes to its new value, along a line, after each change.",
        examples=[1],
    )

    @model_validator(mode="after")
    def _grows_while_it_trains(self) -> ChangingBatch:
        if self.growth is not None and self.change == "start":
            raise PydanticCustomError(
                "growth_at_start",
                "growth bounds what changes at the end of an epoch, and with change: start nothing does",
                {"mend": "take growth away, or set change to epochs"},
            )
        return self
