"""`SharedLoader`: in the place of torch's DataLoader, for independent processes of one node that read the same data."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from hashlib import blake2b
from types import TracebackType
from typing import Any

import numpy as np

from preprocess.making.dataset import Dataset
from preprocess.ring.ring import LaneReader, Ring
from preprocess.samples.errors import DataSpecError, RingTimeout, ServiceError, SkippedSample, WriterLost
from preprocess.samples.layout import ITSELF, Array, Indices, InputPlace, places_in, tensor_in_place
from preprocess.samples.order import (
    HELD_OUT,
    TRAIN,
    BlockOrder,
    Mask,
    OrderSpec,
    kept_global_generators,
    mask_of,
    order_of,
)
from preprocess.samples.part import MemberOrder, Part
from preprocess.samples.stream import DatasetSpec, SourceSpec
from preprocess.sharing.launch import COPY_ADVICE, ServicePlace, ServiceSettings, digest_of
from preprocess.sharing.messages import (
    Assigned,
    Channel,
    ChannelClosed,
    Failed,
    Hello,
    LaneLeft,
    LoaderMessage,
    Read,
    Refused,
    Rested,
    Skipped,
    Welcome,
)
from preprocess.sharing.service import find_or_start
from preprocess.sources.map_style import check_map_style


class ReadingPace:
    """Takes the waiting out of what an epoch took, or a part of one. Times are seconds of any one clock.

    Attributes:
        rate: samples/s that the last one would have been read at without waiting; 0: none has been read yet.
    """

    def __init__(self) -> None:
        self.rate = 0.0
        self._begun: tuple[int, float, float] | None = None

    def begins(self, place: int, now: float, waited: float) -> None:
        """Note that the loader reads from a place on, and has waited so long in all."""
        self._begun = (place, now, waited)

    def ends(self, place: int, now: float, waited: float) -> None:
        """Note that it has read up to a place, and does something else from now on; nothing happens a second time."""
        if self._begun is None:
            return
        (begin, since, before), self._begun = self._begun, None
        own = now - since - (waited - before)
        if place > begin and own > 0:
            self.rate = (place - begin) / own


Places = range | Indices
"""Places of an epoch, ascending."""


class SubsetSamples:
    """The samples of one kind that are a loader's own, and where an epoch of the stream has them.

    Args:
        kind: "train" or "held_out".
        seed: the order is drawn from it.
        length, held_out: samples of the data set, at least one of the kind.
        blocks: the stream's order by blocks; None: its samples are shuffled with all others.
        part: which training samples are its own, and which fold of them is held out; None: all. Without a fold all
            held-out samples are its own.

    Attributes:
        count: m, how many are its own.
        mask: which samples of the kind are, (n,) or (h,); None: all.

    Raises:
        DataSpecError: the data set has too few samples for the part.
    """

    def __init__(
        self, kind: str, seed: int, length: int, held_out: int, part: Part | None, blocks: BlockOrder | None = None
    ) -> None:
        self._held_out: Indices | None = None
        self._order: MemberOrder | None = None
        self._stream = length, seed, blocks
        self.mask: Mask | None = None
        self.count = held_out if kind == HELD_OUT else length
        if part is None or (kind == HELD_OUT and part.fold is None):
            return
        try:
            own = part.held_out(length) if kind == HELD_OUT else part.train(length)
        except ValueError as error:
            rule = f"the data set has {length} training samples; {error}"
            raise DataSpecError(_short(part), rule, "mend the part, or name other data") from error
        self.count, self.mask = own.size, mask_of(own, held_out if kind == HELD_OUT else length)
        if kind == HELD_OUT:
            self._held_out = own
        else:
            self._order = MemberOrder(own, length, seed, blocks)

    def places(self, epoch: int, padded: int) -> Places:
        """Return where they lie in an epoch, in its order, padded from its start again to a length, (padded,)."""
        if self._held_out is not None:
            return self._held_out
        return range(padded) if self._order is None else self._order.padded_places(epoch, padded)

    def samples_at(self, epoch: int, places: Indices) -> Indices:
        """Return which samples lie at some places of an epoch, of those that are its own: indices in the data set."""
        if self._held_out is not None:
            return places
        length, seed, blocks = self._stream
        return order_of(length, seed, epoch, blocks)[places % length]

    def tail(self, epoch: int, padded: int) -> int:
        """Return how far an epoch of the stream must reach into its order again, to have all these places."""
        if self._order is not None:
            return self._order.tail(epoch, padded)
        return max(padded - self.count, 0)


def _checked_part(part: Part | None) -> Part | None:
    """Return a part as it is used: its subset an int, or a tuple of ints; None for all samples.

    Raises:
        DataSpecError: it is no part.
    """
    if part is None:
        return None
    if not isinstance(part, Part):
        example = "write Part(subset=..., fold=Fold(index=0, count=5, seed=0), bag=Bag(fraction=0.8, seed=0))"
        raise DataSpecError(part, "a part is a preprocess.Part", example)
    if part.subset is None:
        return None if part == Part() else part
    indices = np.asarray(part.subset)
    if indices.ndim > 1 or not np.issubdtype(indices.dtype, np.integer):
        rule = "a subset is how many of the first samples, or the indices of some"
        raise DataSpecError(part.subset, rule, "write subset=1000, or subset=(3, 17, 44)")
    return replace(part, subset=tuple(indices.tolist()) if indices.ndim else int(indices))


def _with_folds(data: DatasetSpec, part: Part | None) -> DatasetSpec:
    """Return what a service makes of data where a fold is held out: each training sample is a held-out one, too.

    Raises:
        DataSpecError: the data have held-out samples of their own.
    """
    if part is None or part.fold is None:
        return data
    if data.held_out is not None and data.held_out.to_json() != data.train.to_json():
        rule = f"each fold is held out in its turn, and the data {data.name!r} have held_out, which all evaluate on"
        raise DataSpecError(part.fold, rule, "take held_out away from the data, or the fold from the part")
    return replace(data, held_out=data.train)


def _part_label(part: Part | None) -> str:
    """Return a short name of a part, another for each; empty for all samples."""
    return "" if part is None else blake2b(repr(part).encode(), digest_size=8).hexdigest()


def _short(part: Part) -> Part:
    """The part as an error shows it: of a long subset its first indices."""
    return replace(part, subset=part.subset[:5]) if isinstance(part.subset, tuple) else part


class SubsetSubstitutes:
    """Makes them in the loader's own process. The data set is opened there when the first is wanted.

    Args:
        data: the data set; the service counts what is skipped.
        kind, seed: the loader's.
        own: its samples.
        on_skip: called with each sample that is found corrupt here.
    """

    def __init__(
        self, data: DatasetSpec, kind: str, seed: int, own: SubsetSamples, on_skip: Callable[[SkippedSample], None]
    ) -> None:
        self._data, self._kind, self._seed, self._own, self._on_skip = data, kind, seed, own, on_skip
        self._opened: Dataset | None = None

    def put(self, epoch: int, places: Indices, taken: Array, inputs: Array, targets: Array) -> None:
        """Put the loader's own where the stream has others.

        Args:
            places: of the samples in the epoch, (count,).
            taken: what lies there: `ITSELF`, or the index of the sample that was taken in its place, (count,).
            inputs, targets: what lies there, (count, ...).
        """
        rows = np.flatnonzero(taken != ITSELF)
        if rows.size and self._own.mask is not None:
            rows = rows[~self._own.mask[taken[rows]]]
            samples, place = self._own.samples_at(epoch, places[rows]), places_in(inputs)
            for row, sample in zip(rows.tolist(), samples.tolist()):
                self._make(epoch, sample, place(row), targets[row : row + 1])

    def _make(self, epoch: int, sample: int, input_place: InputPlace, target: Array) -> None:
        assert self._own.mask is not None
        with kept_global_generators(), _one_thread():
            if self._opened is None:
                self._opened = Dataset(replace(self._data, corrupt_limit=sys.maxsize), self._on_skip)
            self._opened.make_substitute(self._kind, self._seed, epoch, sample, input_place, target, self._own.mask)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch compute in this thread alone, as it does in the service."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


#: How often a loader starts again after the service has died, for one batch.
_MOST_RETURNS = 3

#: How long a loader waits for the service's last word on an epoch; without it, only news of skipped samples are late.
_REST_SECONDS = 5.0


class SharedStream:
    """One epoch after the other, read from lanes that the service gives and changes.

    Args:
        connect: finds the service, or starts it.
        hello: how this loader introduces itself.
        timeout: seconds that a wait for samples, or for the service, may take.
        on_skip: called with each sample that the service skipped while this loader was there.

    Attributes:
        layout: the layout of the samples.
        length, held_out: samples of the data set.
        blocks: the order by blocks of its training samples; None: they are shuffled with all others.
        readers: how many loaders read the present lane.
        seconds_waited: time spent waiting for samples and for other loaders.
    """

    def __init__(
        self, connect: Callable[[], Channel], hello: Hello, timeout: float, on_skip: Callable[[SkippedSample], None]
    ) -> None:
        self._connect, self._hello, self._timeout, self._on_skip = connect, hello, timeout, on_skip
        self._reader: LaneReader | None = None
        self._read: Read | None = None
        self._first_place = 0
        self._place = 0  # before it, all was released
        self._failure = ""
        self._returns = 0
        self._pace = ReadingPace()
        self.readers = 0
        self.seconds_waited = 0.0
        self._join()

    def read(self, request: Read) -> None:
        """Ask for an epoch, or for another place of it."""
        self._leave_lane()
        self._pace.ends(self._place, time.monotonic(), self.seconds_waited)
        self._read, self._place, self._failure = replace(request, rate=self._pace.rate), request.place, ""
        self._pace.begins(self._place, time.monotonic(), self.seconds_waited)
        self._send(self._read)

    def rest(self) -> None:
        """Read no more for now, and hear the last words on the samples that were read; nothing after `close`."""
        if self._channel.is_closed:
            return
        self._leave_lane()
        self._pace.ends(self._place, time.monotonic(), self.seconds_waited)
        self._read = None
        self._send(LaneLeft())
        deadline = time.monotonic() + _REST_SECONDS
        with suppress(ChannelClosed):
            while not isinstance(message := self._channel.receive(self._left(deadline))[0], Rested | None):
                self._note(message)

    def check(self) -> None:
        """Raise ServiceError if the service has said that something failed."""
        if self._failure:
            raise ServiceError(self._failure)

    def close(self) -> None:
        """Leave the service."""
        self._leave_lane()
        self._channel.close()

    def samples(self, places: Places, taken: Array | None = None) -> tuple[Array, Array]:
        """Wait for some places of the epoch and return (inputs, targets), (count, ...) each.

        Args:
            places: ascending, at least one; others' samples may lie between them.
            taken: (count,) int64 to write into what was taken in place of each, see `LaneReader.substitutes`; then all
                are copies. None: nobody asks.

        They are views that lie in shared memory where that is possible, valid until `release`, and not to be written.

        Raises:
            RingTimeout: they did not come in time.
            ServiceError: the service says why they will not come.
        """
        begin = time.monotonic()
        try:
            found = self._view(places) if isinstance(places, range) and taken is None else None
            return self._copied(np.asarray(places), taken) if found is None else found
        finally:
            self.seconds_waited += time.monotonic() - begin

    def release(self, place: int) -> None:
        """Give back what lies before a place of the epoch."""
        self._place = place
        if self._reader is not None:
            self._reader.release(place - self._first_place)

    def _view(self, places: range) -> tuple[Array, Array] | None:
        """Return what lies side by side, or None if the lane never holds it all at once."""
        deadline = time.monotonic() + self._timeout
        while True:
            reader = self._present_reader(deadline)
            first, last = places.start - self._first_place, places.stop - self._first_place
            if last - first > reader.samples - self._slot_samples:
                return None
            while last - reader.released > reader.samples:  # others of the lane are further behind
                if not self._await(reader, min(first, reader.released + reader.samples), deadline):
                    break
                reader.release(first)
            else:
                if self._await(reader, last, deadline):
                    return reader.view(first, last)

    def _copied(self, places: Indices, taken: Array | None) -> tuple[Array, Array]:
        """Copy samples as they come, and let pass what lies between them; each wait has its own time-out."""
        inputs, targets = self.layout.empty(places.size)
        done = 0
        while done < places.size:
            deadline = time.monotonic() + self._timeout
            reader = self._present_reader(deadline)
            self._place = int(places[done])  # from here on, where the service gives another lane
            position = self._place - self._first_place
            reader.release(position)
            if reader.available <= position:
                self._await(reader, reader.available + 1, deadline)
                continue
            here = done + int(np.searchsorted(places[done:], self._first_place + reader.available))
            reader.take(places[done:here] - self._first_place, (inputs[done:here], targets[done:here]))
            if taken is not None:
                taken[done:here] = reader.substitutes(places[done:here] - self._first_place)
            done = here
        return inputs, targets

    def _present_reader(self, deadline: float) -> LaneReader:
        """Do what the service has said, and return this loader's end of its lane as soon as it has one."""
        while True:
            self._hear()
            if self._reader is not None:
                return self._reader
            self._await_news(deadline, "the service to give a lane (it may wait for other loaders)")

    def _await(self, reader: LaneReader, position: int, deadline: float) -> bool:
        """Wait for what lies before a lane position; False if the service has to be heard first."""
        try:
            return reader.wait(position, self._left(deadline), self._channel.is_readable)
        except WriterLost:
            self._await_news(deadline, "the service to replace a preprocessor that died")
            return False

    def _hear(self) -> None:
        """Do what the service has said."""
        try:
            while (message := self._channel.receive(0.0)[0]) is not None:
                self._note(message)
        except ChannelClosed:
            self._return()
        self.check()

    def _note(self, message: LoaderMessage) -> None:
        if isinstance(message, Failed):
            self._failure = message.reason
        elif isinstance(message, Skipped):
            self._on_skip(message.sample)
        elif isinstance(message, Assigned) and self._read is not None:
            self._move(message)

    def _move(self, to: Assigned) -> None:
        """Go on in another lane, at the place where this loader is."""
        self._leave_lane()
        self._reader = self._ring.lanes[to.lane].reader(self._number, self.layout, to.generation, self._timeout)
        self._first_place, self.readers = to.first_place, to.readers
        self._reader.release(self._place - to.first_place)

    def _await_news(self, deadline: float, what: str) -> None:
        if not self._channel.is_readable(self._left(deadline)):
            raise RingTimeout(f"this loader waited {self._timeout:g} s for {what}")

    def _return(self) -> None:
        """Start again where this loader is, after the service has died."""
        self._leave_lane()
        self._channel.close()
        self._returns += 1
        if self._returns > _MOST_RETURNS:
            raise ServiceError(f"the service of this node's loaders died {self._returns} times")
        self._join()
        if self._read is not None:
            read = self._read
            self._send(replace(read, place=self._place))

    def _join(self) -> None:
        self._channel = self._connect()
        self._send(self._hello)
        answer, descriptors = self._channel.receive(self._timeout, descriptors=1)
        if isinstance(answer, Refused):
            raise ServiceError(answer.reason)
        if not isinstance(answer, Welcome):
            raise RingTimeout(f"the service of this node's loaders did not answer for {self._timeout:g} s")
        (descriptor,) = descriptors
        self._ring = Ring.received(answer.shape, descriptor)
        os.close(descriptor)
        self._number, self._slot_samples = answer.reader, answer.shape.slot_samples
        self.layout, self.length, self.held_out = answer.layout, answer.length, answer.held_out
        self.blocks = answer.blocks

    def _leave_lane(self) -> None:
        if self._reader is not None:
            self._reader.leave()
            self._reader = None

    def _send(self, message: Hello | Read | LaneLeft) -> None:
        try:
            self._channel.send(message)
        except ChannelClosed:
            return  # the next one who waits learns it, and returns

    def _left(self, deadline: float) -> float:
        return max(deadline - time.monotonic(), 0.0)


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
        self._part = _checked_part(part)
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
        """Number of loaders that read what this one reads, itself among them."""
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
            "part": _part_label(self._part),
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
        if state.get("part", "") != _part_label(self._part):
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

    def _own_samples(self, digest: str) -> SubsetSamples:
        stream, part = self._stream, self._part
        if self._kind == HELD_OUT and not stream.held_out:
            raise DataSpecError(digest, "this data set has no held-out samples", "leave held_out out")
        return SubsetSamples(self._kind, self.seed, stream.length, stream.held_out, part, stream.blocks)

    def _own_substitutes(self, data: DatasetSpec | None) -> SubsetSubstitutes | None:
        """Return what makes substitutes; None: those of the stream are taken."""
        if data is None or data.on_corrupt != "skip" or self._own.mask is None:
            return None
        return SubsetSubstitutes(data, self._kind, self.seed, self._own, self._note_skip)

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
        return _with_folds(spec, part)
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
