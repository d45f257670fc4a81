"""Data sets, streams and lanes as control messages carry them, and the place of each sample in a lane.

Where preprocessors keep what they have prepared, one of them alone prepares each sample, its owner. So nobody else
reads, keeps or evicts it, and all nodes together keep it once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

import numpy as np

from preprocess.samples.errors import DataSpecError, spelling_advice
from preprocess.samples.layout import Indices, SampleLayout
from preprocess.samples.order import HELD_OUT, TRAIN, BlockOrder, EpochOrders, OrderSpec


@dataclass(frozen=True)
class Span:
    """Samples that follow each other in a lane and come from one part of one epoch.

    Attributes:
        epoch: the epoch.
        kind: "train" or "held_out".
        start: first place in that part; a train place p is sample order[p % n] of the epoch's order,
            a held-out place is the sample itself.
        count: how many samples.
    """

    epoch: int
    kind: str
    start: int
    count: int


@dataclass(frozen=True)
class LaneSchedule:
    """The endless row of samples that a lane carries: epoch after epoch, each in three parts.

    An epoch is the n training samples in its order, then the first `tail` of that order again (so that the order
    can be dealt to any number of virtual workers, as DistributedSampler pads it), then the held-out samples.

    Attributes:
        length: n, the training samples of an epoch.
        tail: how many places are appended to the order; more than n goes round again.
        held_out: h, the held-out samples that follow each epoch.
        first_epoch: epoch at lane position 0.
        first_place: place in that epoch at lane position 0, from 0 to n + tail.
        last_epoch: epoch after which the lane ends, or None if it never does.
    """

    length: int
    tail: int = 0
    held_out: int = 0
    first_epoch: int = 0
    first_place: int = 0
    last_epoch: int | None = None

    def __post_init__(self) -> None:
        if self.length < 1 or min(self.tail, self.held_out, self.first_epoch) < 0:
            raise ValueError(f"{self}: length is at least 1, tail, held_out and first_epoch at least 0")
        if not 0 <= self.first_place <= self.places:
            raise ValueError(f"first_place is {self.first_place}: an epoch has the places 0 to {self.places}")
        if self.last_epoch is not None and self.last_epoch < self.first_epoch:
            raise ValueError(f"last_epoch is {self.last_epoch}: it comes before the first, {self.first_epoch}")

    @property
    def places(self) -> int:
        """Training places of an epoch, n + tail."""
        return self.length + self.tail

    @property
    def epoch_samples(self) -> int:
        """Samples of one epoch, n + tail + h."""
        return self.places + self.held_out

    @property
    def end(self) -> int | None:
        """The lane position after the last sample, or None if the lane never ends."""
        return None if self.last_epoch is None else self._epoch_start(self.last_epoch + 1)

    def position(self, epoch: int, place: int) -> int:
        """Return the lane position of a training place of an epoch, 0 to n + tail (its held-out start).

        Raises:
            ValueError: the lane does not carry it.
        """
        if not 0 <= place <= self.places:
            raise ValueError(f"place {place}: an epoch has the places 0 to {self.places}")
        return self._carried(self._epoch_start(epoch) + place, f"epoch {epoch}, place {place}")

    def held_out_position(self, epoch: int, sample: int = 0) -> int:
        """Return the lane position of a held-out sample of an epoch, 0 to h (its end).

        Raises:
            ValueError: the lane does not carry it.
        """
        if not 0 <= sample <= self.held_out:
            raise ValueError(f"held-out sample {sample}: there are {self.held_out}")
        start = self._epoch_start(epoch) + self.places
        return self._carried(start + sample, f"epoch {epoch}, held-out sample {sample}")

    def spans(self, start: int, stop: int) -> Iterator[Span]:
        """Yield what lies at the lane positions start to stop - 1, in order; nothing lies past the lane's end."""
        stop = stop if self.end is None else min(stop, self.end)
        while start < stop:
            epoch, offset = divmod(start + self.first_place, self.epoch_samples)
            train = offset < self.places
            kind, place = (TRAIN, offset) if train else (HELD_OUT, offset - self.places)
            count = min(stop - start, (self.places if train else self.epoch_samples) - offset)
            yield Span(self.first_epoch + epoch, kind, place, count)
            start += count

    def _epoch_start(self, epoch: int) -> int:
        return (epoch - self.first_epoch) * self.epoch_samples - self.first_place

    def _carried(self, position: int, what: str) -> int:
        if position < 0 or (self.end is not None and position > self.end):
            last = "for ever" if self.last_epoch is None else f"to the end of epoch {self.last_epoch}"
            start = f"epoch {self.first_epoch}, place {self.first_place}"
            raise ValueError(f"{what} is not in this lane, which goes from {start} {last}")
        return position


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
    """Key of a stream: jobs with equal data set (with its transforms), seed and epoch can share a lane from there."""

    data: str
    seed: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.data}/seed {self.seed}/epoch {self.epoch}"


@dataclass(frozen=True)
class LaneSpec:
    """One opening of a lane: the stream that it carries, and its readers.

    Attributes:
        lane: number of the lane, the same on every node.
        generation: number of the opening, larger than all before in this lane.
        stream: what it carries, from `stream.epoch` on.
        schedule: which sample lies where.
        layout: shape and dtype of the samples, transforms applied.
        readers: node -> the readers there (ranks of the node's communicator); nodes that nobody reads on are left out.
        samples: how many samples the lane may hold at once on a node, or None for as many as fit.
        ahead: how many samples may lie ready for the foremost reader of a node; None: as many as the lane holds.
        makers: the preprocessors that fill it, by number: slot s is made by makers[s % P], P their number. None named:
            all. Which ones they are changes no sample.
        divided: every slot is made by all makers, each the samples that it owns, see `preprocess.samples.stream`: so
            each can keep what it has prepared of them.
        blocks: the order of each epoch, where it goes by blocks.
        awaited_from: the first epoch of the stream that others than the lane's readers have yet to read; None: no
            others do.
    """

    lane: int
    generation: int
    stream: StreamKey
    schedule: LaneSchedule
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


_KEPT_SLOTS = 64


def sample_keys(schedule: LaneSchedule, orders: EpochOrders, seed: int, start: int, stop: int) -> Indices:
    """The keys of the samples at the lane positions start to stop - 1: x of training sample x, n + y of held-out y."""
    keys = []
    for span in schedule.spans(start, stop):
        places = np.arange(span.start, span.start + span.count)
        is_train = span.kind == TRAIN
        keys.append(orders.of(seed, span.epoch)[places % orders.length] if is_train else orders.length + places)
    return np.concatenate(keys).astype(np.int64, copy=False) if keys else np.empty(0, np.int64)


def epoch_keys(schedule: LaneSchedule, orders: EpochOrders, seed: int, epoch: int) -> Indices:
    """The keys of the samples of an epoch, each once, in the order in which they are first read."""
    order = orders.of(seed, epoch)
    return np.concatenate([order, np.arange(orders.length, orders.length + schedule.held_out)])


class SampleOwners:
    """Owners of samples: sample x is preprocessor x mod W's, where that one is a maker, else another's.

    So a maker that is lost, or rests, changes nothing for the samples of the others. Where the order goes by blocks,
    all samples of a block have one owner: that of its stratum, or of a block of held-out samples.

    Args:
        writers: W, preprocessors of the run.
        makers: who fills the lane.
        blocks: the order by blocks; None: there is none.
    """

    def __init__(self, writers: int, makers: Sequence[int], blocks: BlockOrder | None = None) -> None:
        self._writers, self._blocks = writers, blocks
        self._makers = np.array(makers or range(writers), np.int64)
        self._at_home = np.zeros(writers, np.bool_)
        self._at_home[self._makers] = True

    def of(self, keys: Indices) -> Indices:
        """The owner of each sample, by its key, (count,)."""
        keys = keys if self._blocks is None else _by_blocks(keys, self._blocks)
        homes = keys % self._writers
        others = self._makers[keys // self._writers % len(self._makers)]
        return np.where(self._at_home[homes], homes, others)

    def stands_in(self, maker: int) -> bool:
        """Say whether a maker owns samples of one that makes none here."""
        return maker in self._makers.tolist() and not bool(self._at_home.all())


def _by_blocks(keys: Indices, blocks: BlockOrder) -> Indices:
    """Return the keys by which samples have owners: strata of training samples, blocks of held-out ones."""
    held_out = np.maximum(keys - blocks.length, 0)
    return np.where(keys < blocks.length, blocks.strata_of(keys), blocks.held_out_blocks_of(held_out))


class LanePortions:
    """Owners of the rows of each slot of a divided lane: a pure function of what the lane carries.

    Args:
        spec: the lane.
        slot_samples: samples of a slot.
        writers: preprocessors of the run.
        orders: the orders of the data set's epochs.
    """

    def __init__(self, spec: LaneSpec, slot_samples: int, writers: int, orders: EpochOrders) -> None:
        self.owners = SampleOwners(writers, spec.makers, orders.blocks)
        self._spec, self._size, self._orders = spec, slot_samples, orders
        self._slots: OrderedDict[int, tuple[Indices, Indices]] = OrderedDict()

    def rows(self, maker: int, sequence: int) -> Indices:
        """The rows of a slot that a maker fills, ascending, (any,)."""
        return np.flatnonzero(self._slot(sequence)[1] == maker)

    def portion(self, maker: int, sequence: int) -> tuple[Indices, Indices]:
        """The rows of a slot that a maker fills, and the keys of its samples there, (any,) each."""
        keys, owners = self._slot(sequence)
        rows = np.flatnonzero(owners == maker)
        return rows, keys[rows]

    def is_past_end(self, sequence: int) -> bool:
        """Say whether the lane ends before this slot."""
        end = self._spec.schedule.end
        return end is not None and sequence * self._size >= end

    def _slot(self, sequence: int) -> tuple[Indices, Indices]:
        """(keys, owners) of a slot's samples; the last ones asked for are kept, as makers ask one after the other."""
        if sequence not in self._slots:
            start, spec = sequence * self._size, self._spec
            keys = sample_keys(spec.schedule, self._orders, spec.stream.seed, start, start + self._size)
            self._slots[sequence] = keys, self.owners.of(keys)
            if len(self._slots) > _KEPT_SLOTS:
                self._slots.popitem(last=False)
        return self._slots[sequence]
