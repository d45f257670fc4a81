"""What travels in control messages: data sets, streams and lanes, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

from preprocess.samples.block_order import BlockOrder, OrderSpec
from preprocess.samples.errors import DataSpecError, spelling_advice
from preprocess.samples.itinerary import Itinerary
from preprocess.samples.layout import SampleLayout

OnCorrupt = Literal["raise", "skip"]


@dataclass(frozen=True)
class SourceSpec:
    """A source, see `open_source`: by name, or inside one process a map-style data set itself."""

    source: str | Any
    arguments: Mapping[str, Any] = field(default_factory=dict)
    subset: int | Sequence[int] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return a dictionary of plain JSON values."""
        subset = self.subset if self.subset is None or isinstance(self.subset, int) else list(self.subset)
        return {"source": self.source, "arguments": dict(self.arguments), "subset": subset}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> SourceSpec:
        """Return the source that a spec, or `to_json`, describes.

        Raises:
            DataSpecError: a key is missing or unknown.
        """
        _check_keys(values, ("source", "arguments", "subset"), ("source",), "a source")
        return cls(values["source"], values.get("arguments") or {}, values.get("subset"))


@dataclass(frozen=True)
class DatasetSpec:
    """A data set: its name, its two sources and their transforms, see `build_transforms`.

    Attributes:
        on_corrupt: what happens when the source or a transform raises: "raise", or "skip" the sample and take another.
        corrupt_limit: how many different samples may be skipped.
        store: whether samples may be kept as they are after the transforms that draw nothing; None: unless the source
            is the user's own, whose reading may draw.
        order: how training samples are shuffled; None: all with all.
        seed: of the global generators while the user's own sources are constructed, each anew: so what they draw is
            the same in every process, and for both sources.

    Raises:
        DataSpecError: one of these two is none of what it can be.
    """

    name: str
    train: SourceSpec
    held_out: SourceSpec | None = None
    transforms: Sequence[Any] = ()
    held_out_transforms: Sequence[Any] = ()
    on_corrupt: OnCorrupt = "raise"
    corrupt_limit: int = 100
    store: bool | None = None
    order: OrderSpec | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        known = get_args(OnCorrupt)
        if self.on_corrupt not in known:
            raise DataSpecError(
                self.on_corrupt, "on_corrupt is raise or skip", spelling_advice(str(self.on_corrupt), known)
            )
        if type(self.corrupt_limit) is not int or self.corrupt_limit < 1:
            rule = "corrupt_limit is a whole number of samples, at least 1"
            raise DataSpecError(self.corrupt_limit, rule, "write on_corrupt: raise to allow none")

    def to_json(self) -> dict[str, Any]:
        """Return a dictionary of plain JSON values."""
        held_out = None if self.held_out is None else self.held_out.to_json()
        return asdict(self) | {"train": self.train.to_json(), "held_out": held_out}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> DatasetSpec:
        """Return the data set that `to_json` described.

        Raises:
            DataSpecError: a key is missing or unknown.
        """
        known = tuple(field.name for field in fields(cls))
        _check_keys(values, known, ("name", "train"), "a data set")
        held_out = values.get("held_out")
        return cls(
            values["name"],
            SourceSpec.from_json(values["train"]),
            None if held_out is None else SourceSpec.from_json(held_out),
            tuple(values.get("transforms") or ()),
            tuple(values.get("held_out_transforms") or ()),
            values.get("on_corrupt", "raise"),
            values.get("corrupt_limit", 100),
            values.get("store"),
            OrderSpec.from_json(values.get("order")),
            values.get("seed", 0),
        )


@dataclass(frozen=True)
class StreamKey:
    """What two jobs must have in common to share a lane from there on: data set (with its transforms), seed, epoch."""

    data: str
    seed: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.data}/seed {self.seed}/epoch {self.epoch}"


@dataclass(frozen=True)
class LaneSpec:
    """One opening of a lane: which stream it carries, and for whom.

    Attributes:
        lane: number of the lane, the same on every node.
        generation: number of the opening, larger than all before in this lane.
        stream: what it carries, from `stream.epoch` on.
        itinerary: which sample lies where.
        layout: shape and dtype of the samples, transforms applied.
        readers: node -> the readers there (ranks of the node's communicator); nodes that nobody reads on are left out.
        samples: how many samples the lane may hold at once on a node, or None for as many as fit.
        ahead: how many samples may lie ready for the foremost reader of a node; None: as many as the lane holds.
        makers: the preprocessors that fill it, by number: slot s is made by makers[s % P], P their number. None named:
            all. Which ones they are changes no sample.
        divided: every slot is made by all makers, each the samples that it owns, see `preprocess.samples.owners`: so
            each can keep what it has prepared of them.
        blocks: the order of each epoch, where it goes by blocks.
        awaited_from: the first epoch of the stream that others than the lane's readers have yet to read; None: no
            others do.
    """

    lane: int
    generation: int
    stream: StreamKey
    itinerary: Itinerary
    layout: SampleLayout
    readers: Mapping[int, tuple[int, ...]]
    samples: int | None = None
    makers: tuple[int, ...] = ()
    divided: bool = False
    blocks: BlockOrder | None = None
    ahead: int | None = None
    awaited_from: int | None = None

    def is_made_by(self, maker: int) -> bool:
        """Say whether a preprocessor fills a part of it."""
        return not self.makers or maker in self.makers


def _check_keys(values: Mapping[str, Any], known: Sequence[str], needed: Sequence[str], what: str) -> None:
    for key in values:
        if key not in known:
            raise DataSpecError(key, f"{what} has no such key", spelling_advice(str(key), known))
    for key in needed:
        if key not in values:
            raise DataSpecError(dict(values), f"{what} needs the key {key!r}", f"add {key}: ...")
