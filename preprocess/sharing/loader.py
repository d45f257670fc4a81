"""`SharedLoader`: in the place of torch's DataLoader, for independent processes of one node that read the same data."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from types import TracebackType
from typing import Any

import numpy as np

from preprocess.making.dataset import Dataset
from preprocess.samples.block_order import OrderSpec
from preprocess.samples.corrupt import SkippedSample
from preprocess.samples.errors import DataSpecError, RingTimeout
from preprocess.samples.layout import Array
from preprocess.samples.order import HELD_OUT, TRAIN
from preprocess.samples.part import Part
from preprocess.samples.stream import DatasetSpec, SourceSpec
from preprocess.samples.tensors import tensor_in_place
from preprocess.sharing.launch import COPY_ADVICE
from preprocess.sharing.messages import Channel, Hello, Read
from preprocess.sharing.own_samples import OwnSamples, Places, checked_part, part_label, with_folds
from preprocess.sharing.own_substitutes import OwnSubstitutes
from preprocess.sharing.place import ServicePlace
from preprocess.sharing.settings import ServiceSettings, digest_of
from preprocess.sharing.shared_stream import SharedStream
from preprocess.sharing.start import find_or_start
from preprocess.sources.map_style import check_map_style

_MOST_SLOT_SAMPLES = 128


class SharedLoader:
    """Batches of an epoch, prepared once for all processes of this node that ask for them.

    The first loader of a name starts a service in the background; the others of that name find it. All that are at the
    same epoch read the same memory, paced by the slowest as far as the buffer does not even it out. The service ends
    by itself when nobody has used it for a while.

    The order is torch's DistributedSampler's for (seed, epoch), or one by blocks, and every random draw is a function
    of (seed, epoch, sample): the batches are the same bytes with any other readers, with any number of workers, and
    after a restart.

        loader = SharedLoader({"name": "digits", "train": {"source": "hdf5", "arguments": {"path": "digits.h5"}}}, 32)
        for epoch in range(10):
            for inputs, targets in loader:
                ...

    With a part it gives the script's own samples alone: in the stream's order, without the others'. They are the bytes
    of a plain DataLoader over `torch.utils.data.Subset(data, order)`. Scripts with other parts read the same stream:

        part = Part(fold=Fold(index=2, count=5, seed=0), bag=Bag(fraction=0.8, seed=7))
        train, test = SharedLoader(DATA, 32, part=part), SharedLoader(DATA, 256, part=part, held_out=True)

    Args:
        data: a `DatasetSpec`, or the mapping that a spec's data section is; or a map-style data set, an object with
            len and [index] -> (input, target), of which the service gets a copy by fork: make the loader before
            threads of this process hold locks that the samples need.
        batch_size: B, samples of one batch.
        held_out: read the held-out samples, in their own order, the same in every epoch; they are dealt to ranks
            without padding, so that the last batch of a rank may be smaller, or empty. With a part that has a fold they
            are that fold's samples, through the held-out transforms.
        part: the training samples that are this script's own: a subset of all, without its fold, of the rest a bag;
            None: all. Of data with a fold all training samples may be held out, so the data have no `held_out`, or the
            same one as `train`; and their service is not that of scripts without folds, unless both say the latter.
        seed: seed of the order and of the transforms.
        replicas: R, over how many ranks an epoch is dealt, as by DistributedSampler.
        ranks: which of them this process is: with one, each item is a batch (inputs, targets); with several (the
            virtual workers of one trainer) it is a tuple of batches, in their order.
        drop_last: leave out a last batch that is smaller than B.
        prepare: called with (inputs, targets), tensors that lie in shared memory, must not be written to, and are
            others' as soon as it returns; what it returns is the batch. Without it a batch is a copy of one's own.
        workers: preprocessors of the service, if this loader is the one that starts it.
        buffer: batches that are prepared ahead, likewise.
        readers: how many processes are expected to read: the first epoch starts when they are there.
        name: loaders of the same name share; by default loaders of the same data.
        patience: seconds that a loader waits at an epoch's start for those that it shared the last one with.
        linger: seconds for which the service stays when the last loader has gone.
        timeout: seconds that a batch may take; with a part, seconds from one sample of the stream to the next.
        store: GiB of memory in which the service keeps prepared samples, for all seeds and epochs: what reading,
            decoding and fixed resizing give; None: at most half of what is free; 0: none. It changes no batch.
        order: how training samples are shuffled, an `OrderSpec` or the mapping that a spec's `order` is, such as
            {"shuffle": "blocks", "window": 16}; None: as the data say, else all with all.

    Attributes:
        skipped: samples for which others were taken while this loader read, where the data say `on_corrupt: skip`;
            a warning tells of each.

    Raises:
        DataSpecError: something of the above is not usable.
        ServiceError: the service could not start; the text says why.
    """

    def __init__(
        self,
        data: DatasetSpec | Mapping[str, Any] | Any,
        batch_size: int = 1,
        *,
        held_out: bool = False,
        part: Part | None = None,
        seed: int = 0,
        replicas: int = 1,
        ranks: Sequence[int] = (0,),
        drop_last: bool = False,
        prepare: Callable[[Any, Any], Any] | None = None,
        workers: int = 1,
        buffer: int = 4,
        readers: int = 1,
        name: str | None = None,
        patience: float = 30.0,
        linger: float = 5.0,
        timeout: float = 300.0,
        store: float | None = None,
        order: OrderSpec | Mapping[str, Any] | None = None,
    ) -> None:
        _check(batch_size=batch_size, replicas=replicas, workers=workers, buffer=buffer, readers=readers)
        if not ranks or not all(0 <= rank < replicas for rank in ranks):
            raise DataSpecError(list(ranks), f"ranks are among 0 to {replicas - 1}", "mend ranks or replicas")
        self.batch_size, self.replicas, self.ranks, self.seed = batch_size, replicas, tuple(ranks), seed
        self.drop_last = drop_last
        self._kind = HELD_OUT if held_out else TRAIN
        self._prepare = prepare
        self._part = checked_part(part)
        data = _read_by(data, self._part)
        self._next = self._now = (0, 0)  # (epoch, batch) of the next iteration; up to where this one has come
        shuffled = OrderSpec.from_json(order)
        if shuffled is not None and shuffled.weights is not None and part is not None:
            rule = "samples that are drawn by weights, some of them several times, have no part"
            raise DataSpecError(shuffled.weights, rule, "take the part or the weights away")
        data = _with_order(data, shuffled)
        settings = _settings(data, batch_size * replicas, workers, buffer, patience, linger, store, shuffled)
        dataset = None if settings.data else _opened(data, shuffled)
        self._handed_over = dataset is not None
        place = ServicePlace.of(name or (settings.digest if settings.data else f"{os.getpid()}-{id(data)}"))

        def connect() -> Channel:
            return find_or_start(place, settings, dataset, timeout)

        self.skipped: list[SkippedSample] = []
        self._stream = SharedStream(connect, Hello(settings.digest, readers), timeout, self._note_skip)
        try:
            self._own = self._own_samples(settings.digest)
            self._substitutes = self._own_substitutes(settings.data)
        except DataSpecError:
            self.close()
            raise

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        whole, part = divmod(self._per_rank, self.batch_size)
        return whole if self.drop_last or not part else whole + 1

    def __iter__(self) -> Iterator[Any]:
        """Return an iterator over the batches of the next epoch, or the rest of it after `load_state_dict`.

        They are prepared from now on. Another iterator of this loader ends this one.
        """
        epoch, start = self._now = self._next
        self._next = (epoch + 1, 0)
        padded = self._per_rank * self.replicas if self._kind == TRAIN else self._own.count
        places, first = self._own.places(epoch, padded), start * self.batch_size * self.replicas
        place = int(places[first]) if first < padded else int(places[-1]) + 1
        self._stream.read(Read(self._kind, self.seed, epoch, place, self._own.tail(epoch, padded)))
        return self._batches(epoch, start, places)

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration reads."""
        return self._next[0]

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration read this epoch from its start."""
        self._next = (epoch, 0)

    @property
    def sharers(self) -> int:
        """How many loaders read what this one reads, itself among them."""
        return self._stream.readers

    @property
    def seconds_waited(self) -> float:
        """Seconds that this loader has waited for samples and for other loaders."""
        return self._stream.seconds_waited

    def state_dict(self) -> dict[str, Any]:
        """Return where this loader is: after the batches that were yielded, whatever was prepared beyond them."""
        epoch, batches = self._now
        if batches >= len(self):
            epoch, batches = self._next
        return {
            "epoch": epoch,
            "batches": batches,
            "batch_size": self.batch_size,
            "replicas": self.replicas,
            "seed": self.seed,
            "part": part_label(self._part),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration go on where `state_dict` was taken.

        Raises:
            DataSpecError: it is of a loader with other batches.
        """
        for key in ("batch_size", "replicas", "seed"):
            if state[key] != getattr(self, key):
                rule = f"the state is of a loader with {key} {state[key]}, this one has {getattr(self, key)}"
                raise DataSpecError(state[key], rule, f"make the loader with {key}={state[key]}")
        if state.get("part", "") != part_label(self._part):
            rule = "the state is of a loader with another part of the samples"
            raise DataSpecError(state.get("part", ""), rule, "make the loader with the part that it had")
        self._next = self._now = (state["epoch"], state["batches"])

    def close(self) -> None:
        """Leave the service; the loader is of no use afterwards."""
        self._stream.close()

    def __enter__(self) -> SharedLoader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _note_skip(self, sample: SkippedSample) -> None:
        if (sample.kind, sample.sample) in {(known.kind, known.sample) for known in self.skipped}:
            return  # the service met it, too
        self.skipped.append(sample)
        warnings.warn(f"another sample was taken for {sample}", stacklevel=2)

    def _own_samples(self, digest: str) -> OwnSamples:
        stream, part = self._stream, self._part
        if self._kind == HELD_OUT and not stream.held_out:
            raise DataSpecError(digest, "this data set has no held-out samples", "leave held_out out")
        return OwnSamples(self._kind, self.seed, stream.length, stream.held_out, part, stream.blocks)

    def _own_substitutes(self, data: DatasetSpec | None) -> OwnSubstitutes | None:
        """What makes them; None: those of the stream are taken."""
        if data is None or data.on_corrupt != "skip" or self._own.mask is None:
            return None
        return OwnSubstitutes(data, self._kind, self.seed, self._own, self._note_skip)

    @property
    def _per_rank(self) -> int:
        return -(-self._own.count // self.replicas)

    def _batches(self, epoch: int, start: int, places: Places) -> Iterator[Any]:
        width = self.batch_size * self.replicas
        try:
            for batch in range(start, len(self)):
                if self._now[0] != epoch:
                    raise RuntimeError(f"epoch {epoch} is over: this loader has begun epoch {self._now[0]} since")
                item = self._batch(places[batch * width : (batch + 1) * width])
                self._now = (epoch, batch + 1)
                yield item
        finally:
            if self._now[0] == epoch:
                self._stream.rest()
        self._stream.check()

    def _batch(self, places: Places) -> Any:
        """Return the item for some places of the epoch."""
        import torch

        inputs, targets = self._samples_at(places)
        items = []
        for rank in self.ranks:
            pair = inputs[rank :: self.replicas], targets[rank :: self.replicas]
            if self._prepare is None:
                items.append(tuple(torch.from_numpy(part.copy()) for part in pair))
            else:
                items.append(self._prepare(*(tensor_in_place(part) for part in pair)))
        self._stream.release(int(places[-1]) + 1)
        return items[0] if len(items) == 1 else tuple(items)

    def _samples_at(self, places: Places) -> tuple[Array, Array]:
        try:
            if self._substitutes is None:
                return self._stream.samples(places)
            taken, places = np.empty(len(places), np.int64), np.asarray(places)
            inputs, targets = self._stream.samples(places, taken)
            self._substitutes.put(self._now[0], places, taken, inputs, targets)
            return inputs, targets
        except RingTimeout as error:
            if not self._handed_over:
                raise
            raise RingTimeout(f"{error}; if it is the service that stands still: {COPY_ADVICE}") from error


def _read_by(data: Any, part: Part | None) -> DatasetSpec | Any:
    """Return the data set by its names, for a loader of a part, or the object that was handed over."""
    spec = DatasetSpec.from_json(data) if isinstance(data, Mapping) else data
    if isinstance(spec, DatasetSpec):
        return with_folds(spec, part)
    check_map_style(data, type(data).__qualname__)
    return data


def _settings(
    data: Any,
    width: int,
    workers: int,
    buffer: int,
    patience: float,
    linger: float,
    store: float | None,
    order: OrderSpec | None,
) -> ServiceSettings:
    """Return what a service for this loader is started with."""
    slot_samples = min(max(width // workers, 1), _MOST_SLOT_SAMPLES)
    named = isinstance(data, DatasetSpec)
    return ServiceSettings(
        data=data if named else None,
        digest=digest_of(data.to_json() if named else _object_values(data, order)),
        workers=workers,
        lane_samples=buffer * width + slot_samples,
        slot_samples=slot_samples,
        patience=patience,
        linger=linger,
        paths=tuple(path or os.getcwd() for path in sys.path),
        store=None if store is None else int(store * 2**30),
    )


def _with_order(data: Any, order: OrderSpec | None) -> Any:
    """Return the data set by names, with the order that the loader asks for; one that is an object as it is."""
    return replace(data, order=order) if order is not None and isinstance(data, DatasetSpec) else data


def _object_values(data: Any, order: OrderSpec | None) -> dict[str, Any]:
    """Return what tells a data set that is an object from others."""
    values = {"object": type(data).__qualname__, "length": len(data)}
    return values if order is None else values | {"order": asdict(order)}


def _opened(data: Any, order: OrderSpec | None) -> Dataset:
    """Return a data set whose samples, of both kinds, are an object's."""
    source = SourceSpec(data)
    return Dataset(DatasetSpec(type(data).__qualname__, source, source, order=order))


def _check(**numbers: int) -> None:
    for name, value in numbers.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise DataSpecError(value, f"{name} is a whole number of at least 1", f"mend {name}")
