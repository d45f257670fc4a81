"""How the training samples of a data section are shuffled."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from fleet.spec.values import Count, Section, Text, written_alone


class Order(Section):
    """How the training samples of a data set are shuffled: each with all others, or block by block."""

    shuffle: Literal["samples", "blocks"] = Field(
        default="samples",
        description="`samples`: all with all, as DistributedSampler does. `blocks`: for data in blocks, such as row "
        "groups of Parquet, record batches of Arrow, chunks of Zarr, NetCDF and HDF5, or tar shards: each is read once "
        "in an epoch.",
        examples=["blocks"],
    )
    window: Count = Field(
        default=16,
        description="With blocks: how many of them, from all over the data, are mixed. More mix better and take more "
        "memory.",
        examples=[32],
    )
    block: Count | None = Field(
        default=None,
        description="With blocks: the least samples of one; those of the data are joined until they have so many, and "
        "data without are cut into such. null: the data's own.",
        examples=[1000],
    )

    weights: Text | None = Field(
        default=None,
        description="As many samples as there are are drawn with replacement, anew in each epoch, as torch's "
        "WeightedRandomSampler draws them. `balanced`: each class as often; `module:Name`: a function of the training "
        "samples that gives a weight for each, or such weights. Not with blocks, nor for jobs with a part of the "
        "samples. null: each sample comes once.",
        examples=["balanced"],
    )

    _shuffle_alone = model_validator(mode="before")(written_alone("shuffle"))

    @property
    def is_usual(self) -> bool:
        """Whether each sample comes once, shuffled with all others."""
        return self.shuffle == "samples" and self.weights is None

    @model_validator(mode="after")
    def _drawn_from_all(self) -> Order:
        if self.weights is not None and self.shuffle == "blocks":
            raise PydanticCustomError(
                "drawn_blocks",
                "weights draw samples from anywhere, and shuffle: blocks has them come block by block",
                {"mend": "take one of them away"},
            )
        return self

    @model_validator(mode="after")
    def _goes_by_blocks(self) -> Order:
        for key in ("window", "block"):
            if self.shuffle == "samples" and key in self.model_fields_set:
                raise PydanticCustomError(
                    "no_blocks",
                    "{key} is for shuffle: blocks, and samples are shuffled with all others",
                    {"key": key, "mend": "add shuffle: blocks, or take it away"},
                )
        return self
