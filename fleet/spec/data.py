"""The data sections of a spec: sources, transforms, order and batches of samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator

from fleet.spec.values import Arguments, Count, Integer, Named, Positive, Real, Section, Text, refusal, written_alone


class Source(Section):
    """Where samples come from."""

    source: Text = Field(
        description="`module:Name` of a map-style data set of (input, target), or a built-in source: `idx`, `hdf5`, "
        "`numpy`, `image_folder`, `tar`, `tokens`, `parquet`, `arrow`, `zarr`, `netcdf`, `lmdb`.",
        examples=["examples.digits:Digits"],
    )
    arguments: Arguments = Field(
        default_factory=dict, description="The keyword arguments with which it is made.", examples=[{"train": True}]
    )

    subset: tuple[Integer, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=3,
        description="How many of its first samples to use, or [start, stop] or [start, stop, step] of a slice; null: "
        "all.",
        examples=[[1000]],
    )

    @field_validator("subset", mode="before")
    @classmethod
    def _number_alone(cls, value: Any) -> Any:
        return [value] if type(value) is int else value

    _source_alone = model_validator(mode="before")(written_alone("source"))


class Transform(Named):
    """One step of augmentation, written ``{name: {arguments}}`` or ``name``."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and len(value) == 1 and "name" not in value:
            ((name, arguments),) = value.items()
            return {"name": name, "arguments": {} if arguments is None else arguments}
        return value

    @property
    def step(self) -> dict[str, dict[str, Any]]:
        """``{name: arguments}``, as ``preprocess.transforms.transform.build_transforms`` takes it."""
        return {self.name: dict(self.arguments)}

    @model_serializer
    def _as_written(self) -> dict[str, Any]:
        return self.step


class Normalise(Section):
    """What is taken away from each channel of an input, and what it is then divided by.

    Images are scaled to 0..1 before.
    """

    mean: tuple[Real, ...] = Field(
        min_length=1, description="One value a channel, or one for all.", examples=[[0.1307]]
    )
    std: tuple[Positive, ...] = Field(
        min_length=1, description="One value above 0 a channel, or one for all.", examples=[[0.3081]]
    )
    dtype: Literal["float32", "float16", "bfloat16"] = Field(
        default="float32",
        description="The dtype that the network gets; all is computed in float32 and rounded once.",
        examples=["bfloat16"],
    )

    @model_serializer(mode="wrap")
    def _without_default(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Left out where it is float32, so that the digest of a spec without it stays what it was."""
        values: dict[str, Any] = serialize(self)
        if self.dtype == "float32":
            values.pop("dtype", None)
        return values

    @model_validator(mode="after")
    def _same_length(self) -> Normalise:
        if len(self.mean) != len(self.std):
            rule = f"mean has {len(self.mean)} values and std has {len(self.std)}: both need one a channel"
            raise refusal(rule, "give mean and std the same number of values")
        return self


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
            rule = "weights draw samples from anywhere, and shuffle: blocks has them come block by block"
            raise refusal(rule, "take one of them away")
        return self

    @model_validator(mode="after")
    def _goes_by_blocks(self) -> Order:
        for key in ("window", "block"):
            if self.shuffle == "samples" and key in self.model_fields_set:
                rule = f"{key} is for shuffle: blocks, and samples are shuffled with all others"
                raise refusal(rule, "add shuffle: blocks, or take it away")
        return self


_COLLATING = ("collate", "sample_bytes")


class Data(Section):
    """One data set: its training and held-out samples, and what preprocessors and trainers do to each of them."""

    train: Source = Field(description="The samples to train on.", examples=[{"source": "examples.digits:Digits"}])
    held_out: Source | None = Field(
        default=None,
        description="The samples to evaluate on after each epoch; null: none.",
        examples=[{"source": "examples.digits:Digits"}],
    )
    transforms: tuple[Transform, ...] = Field(
        default=(),
        description="What preprocessors do to each training sample, in this order.",
        examples=[[{"random_crop": {"size": 28}}]],
    )
    held_out_transforms: tuple[Transform, ...] = Field(
        default=(), description="What preprocessors do to each held-out sample.", examples=[[]]
    )
    normalise: Normalise | None = Field(
        default=None,
        description="How the trainer normalises inputs, on its device; null: images of bytes are scaled to 0..1, all "
        "else stays as it is.",
        examples=[{"mean": [0.1307], "std": [0.3081]}],
    )
    collate: Named | None = Field(
        default=None,
        description="What makes a batch of samples of any shape: `pad`, or `module:Name` of a function of a list of "
        "samples, or of a class whose instances are such functions; null: samples have one shape.",
        examples=["pad"],
    )
    sample_bytes: Count | None = Field(
        default=None,
        description="With `collate`, the most bytes that a sample takes; null: all samples are read once to find out.",
        examples=[4096],
    )
    on_corrupt: Literal["raise", "skip"] = Field(
        default="raise",
        description="What happens when a sample cannot be read or transformed: `raise` names it and ends the "
        "training on these data, `skip` takes another sample of the network's part in its place and writes that down. "
        "All others stay the same.",
        examples=["skip"],
    )
    corrupt_limit: Count = Field(
        default=100,
        description="How many different samples a run may skip, all its sessions together; one more ends the training "
        "on these data.",
        examples=[100],
    )

    store: bool | None = Field(
        default=None,
        description="Whether samples may be kept as they are before the first transform that draws, see "
        "`resources.store`. null: where that is worth it, and the source is not one's own; true: of one's own source, "
        "too, whose reading then draws nothing; false: never, and finished ones are not kept either.",
        examples=[True],
    )

    order: Order = Field(
        default_factory=Order, description="How training samples are shuffled.", examples=[{"shuffle": "blocks"}]
    )

    @model_serializer(mode="wrap")
    def _without_later(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without what older specs did not have, where it is not asked for: their digests stay what they were."""
        values: dict[str, Any] = serialize(self)
        if self.order.is_usual:
            values.pop("order", None)
        elif self.order.weights is not None:
            values["order"] = {"weights": self.order.weights}
        else:
            values["order"].pop("weights", None)
        return {key: value for key, value in values.items() if value is not None or key not in _COLLATING}
