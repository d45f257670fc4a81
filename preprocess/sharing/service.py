"""The service of a node: gives lanes to loaders, and keeps the preprocessors that fill them.

Loaders that want the same epoch of the same data share a lane. Three rules decide who waits for whom:

* start: the first readers of a service wait for as many as they said they expect;
* companions: the first that comes to the next epoch waits for those with which it read the last; they are paced
  by the slowest anyway (FLEET, MLSys'20, section 3), and would otherwise never meet again;
* catching up: a loader that comes to an epoch that others are reading joins them if that costs all of them less than
  making the rest of the epoch twice: see `preprocess.sharing.joining`. As long as somebody's pace, or what making a
  sample takes, is not known, it joins if the foremost waits for no more samples than are left of the epoch then.

The first two waits are bounded by `patience`; somebody who was waited for in vain is not waited for again.
"""

from __future__ import annotations

import json
import os
import socket
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from select import POLLIN, poll
from selectors import EVENT_READ, DefaultSelector
from typing import Any, BinaryIO

from preprocess.files.memory import memory_to_keep_samples
from preprocess.making.costs import SampleCosts, has_own_blocks, is_divided, sample_costs
from preprocess.making.dataset import Dataset
from preprocess.ring.ring import Ring
from preprocess.samples.errors import CorruptLimitError, CorruptSamples, DataSpecError, ServiceError
from preprocess.samples.order import HELD_OUT, TRAIN
from preprocess.samples.stream import LaneSchedule, LaneSpec, StreamKey
from preprocess.sharing.joining import PreparingCosts, Reader, joins
from preprocess.sharing.launch import COPY_ADVICE, ServicePlace, ServiceSettings, end_launched, execute, fork
from preprocess.sharing.messages import (
    Assigned,
    Channel,
    ChannelClosed,
    Failed,
    FillLane,
    Hello,
    LaneFailed,
    LaneLeft,
    LoaderMessage,
    Read,
    Refused,
    Rested,
    Skipped,
    StopFilling,
    Welcome,
)
from preprocess.sharing.worker_pool import WorkerPool
from preprocess.store.sample_store import StoreBudget


@dataclass(frozen=True, order=True)
class StreamName:
    """The part of the data, seed and epoch that loaders must have in common to read together."""

    kind: str
    seed: int
    epoch: int


@dataclass(frozen=True)
class ReadingGroup:
    """Loaders that shall read together, from the rearmost place of them on.

    Attributes:
        number: its name; a group that is joined or left keeps it.
        stream: what they read.
        places: the place of each loader in the epoch.
        tail: the most places that one of them wants appended to the order.
    """

    number: int
    stream: StreamName
    places: Mapping[int, int]
    tail: int

    @property
    def first_place(self) -> int:
        """The rearmost place."""
        return min(self.places.values())


@dataclass(frozen=True)
class _Wish:
    stream: StreamName
    place: int
    tail: int
    since: float


@dataclass
class ReadingGroups:
    """Groups of loaders that read together, and loaders that wait.

    Args:
        patience: seconds that a loader waits for others at the start of an epoch.
        length: gives the number of places of a stream with a tail.
        costs: gives what making samples of a kind takes with a second lane so many places behind the first; None:
            nobody knows.
    """

    patience: float
    length: Callable[[StreamName, int], int]
    costs: Callable[[str, int], PreparingCosts | None] = lambda kind, lag: None
    groups: list[ReadingGroup] = field(default_factory=list)
    _formed: int = 0
    _expected: dict[int, int] = field(default_factory=dict)
    _begun: dict[str, int] = field(default_factory=dict)
    _companions: dict[int, frozenset[int]] = field(default_factory=dict)
    _wishes: dict[int, _Wish] = field(default_factory=dict)
    _rates: dict[int, float | None] = field(default_factory=dict)

    def arrive(self, loader: int, expected: int) -> None:
        """Note a loader that is there, and how many it expects to be."""
        self._expected[loader] = expected

    def depart(self, loader: int) -> None:
        """Forget a loader."""
        self.rest(loader)
        self._expected.pop(loader, None)
        self._companions.pop(loader, None)
        self._rates.pop(loader, None)

    def rest(self, loader: int) -> None:
        """Note that a loader reads nothing now."""
        self._wishes.pop(loader, None)
        group = self.group_of(loader)
        if group is not None:
            self._remove(group, loader)

    def want(self, loader: int, stream: StreamName, place: int, tail: int, now: float, rate: float = 0.0) -> None:
        """Note what a loader wants to read from now on.

        Args:
            rate: samples/s that it reads while none is late; 0: nobody knows.
        """
        self._rates[loader] = rate or None
        self.rest(loader)
        if loader not in self._companions:
            self._begun[stream.kind] = self._begun.get(stream.kind, 0) + 1
            self._companions[loader] = frozenset()
        self._wishes[loader] = _Wish(stream, place, tail, now)

    def form(self, now: float, places: Mapping[int, int]) -> list[ReadingGroup]:
        """Return the groups to form now; they are then among `groups`.

        Args:
            now: seconds of any clock, the same as in `want`.
            places: the present place of each loader that reads.
        """
        return [group for stream in self._streams_wanted() for group in self._form(stream, now, places)]

    def form_anew(self, places: Mapping[int, int]) -> list[ReadingGroup]:
        """Form every group again from the present places of its members."""
        for number, group in enumerate(self.groups):
            present = {member: places.get(member, place) for member, place in group.places.items()}
            self.groups[number] = replace(group, places=present)
        return list(self.groups)

    def group_of(self, loader: int) -> ReadingGroup | None:
        """Return the group in which a loader reads."""
        return next((group for group in self.groups if loader in group.places), None)

    def _streams_wanted(self) -> list[StreamName]:
        return sorted({wish.stream for wish in self._wishes.values()})

    def _form(self, stream: StreamName, now: float, places: Mapping[int, int]) -> Iterable[ReadingGroup]:
        waiting = {loader: wish for loader, wish in self._wishes.items() if wish.stream == stream}
        must_wait = self._must_wait(stream, waiting, now)
        for loader, wish in sorted(waiting.items(), key=lambda item: (item[1].place, item[0])):
            group = self._group_to_join(stream, loader, places)
            if group is None and must_wait:
                continue
            self._add(group or self._new_group(stream), loader, wish, places)
            del self._wishes[loader]
        return [group for group in self.groups if group.places.keys() & waiting.keys() - self._wishes.keys()]

    def _new_group(self, stream: StreamName) -> ReadingGroup:
        self._formed += 1
        self.groups.append(ReadingGroup(self._formed, stream, {}, 0))
        return self.groups[-1]

    def _group_to_join(self, stream: StreamName, loader: int, places: Mapping[int, int]) -> ReadingGroup | None:
        mine, rate = self._wishes[loader].place, self._rates[loader]
        for group in self.groups:
            if group.stream != stream or not group.places:
                continue
            members = [places.get(member, place) for member, place in group.places.items()]
            rear, front = min(*members, mine), max(*members, mine)
            end = self.length(stream, max(group.tail, self._wishes[loader].tail))
            follows = mine == rear  # else the group does, and the loader waits
            rates = [known for member in group.places if (known := self._rates[member]) is not None]
            theirs = min(rates) if len(rates) == len(members) else None
            others = Reader(front if follows else rear, end, len(members), theirs)
            own = Reader(rear if follows else front, end, 1, rate)
            if joins(others, own, self.costs(stream.kind, front - rear)):
                return group
        return None

    def _must_wait(self, stream: StreamName, waiting: Mapping[int, _Wish], now: float) -> bool:
        """Say whether those who wait for a stream should go on waiting for others."""
        if now - min(wish.since for wish in waiting.values()) >= self.patience:
            return False
        if self._begun[stream.kind] < max(self._expected[loader] for loader in waiting):
            return True
        companions = frozenset[int]().union(*(self._companions[loader] for loader in waiting))
        return any(self._may_come(loader, stream) for loader in companions & self._expected.keys() - waiting.keys())

    def _may_come(self, loader: int, stream: StreamName) -> bool:
        """Say whether a companion may still want the stream: it does not wait for, or read, a later one already."""
        wish, group = self._wishes.get(loader), self.group_of(loader)
        at = wish.stream if wish else group.stream if group else None
        return at is None or ((at.kind, at.seed) == (stream.kind, stream.seed) and at.epoch < stream.epoch)

    def _add(self, group: ReadingGroup, loader: int, wish: _Wish, places: Mapping[int, int]) -> None:
        members = {member: places.get(member, place) for member, place in group.places.items()}
        joined = replace(group, places=members | {loader: wish.place}, tail=max(group.tail, wish.tail))
        self.groups[self.groups.index(group)] = joined
        for member in joined.places:
            self._companions[member] = frozenset(joined.places)

    def _remove(self, group: ReadingGroup, loader: int) -> None:
        left = {member: place for member, place in group.places.items() if member != loader}
        self.groups.remove(group)
        if left:
            self.groups.append(replace(group, places=left))


class Openings:
    """The lanes that are open, by the number of the group.

    Args:
        ring: its lanes are given out.
        dataset: what they carry.
        samples: how many a lane holds.
        divided: preprocessors make the samples of a slot together, each those that it keeps, or those of its blocks.
    """

    def __init__(self, ring: Ring, dataset: Dataset, samples: int, divided: bool) -> None:
        self._ring, self._dataset, self._samples, self._divided = ring, dataset, samples, divided
        self._generation = 0
        self._specs: dict[int, LaneSpec] = {}

    def open(self, group: ReadingGroup) -> LaneSpec | None:
        """Open an idle lane for a group from its rearmost place on, or return None if there is none."""
        lane = next((lane for lane in self._ring.lanes if lane.is_idle), None)
        if lane is None:
            return None
        self._generation += 1
        spec = self._spec(lane.number, group)
        lane.open(
            spec.layout,
            spec.readers[0],
            spec.generation,
            samples=spec.samples,
            timeout=0.0,
            divided=spec.divided,
            ahead=spec.ahead,
        )
        self._specs[group.number] = spec
        return spec

    def of(self, group: ReadingGroup) -> LaneSpec | None:
        """Return the opening of a group."""
        return self._specs.get(group.number)

    def readers_of(self, lane: int, generation: int) -> tuple[int, ...]:
        """Return the loaders for which this opening was made, if it is the last of their group."""
        found = (spec for spec in self._specs.values() if (spec.lane, spec.generation) == (lane, generation))
        return next((spec.readers[0] for spec in found), ())

    def keep(self, groups: Iterable[ReadingGroup]) -> None:
        """Forget the openings of all other groups."""
        numbers = {group.number for group in groups}
        self._specs = {number: spec for number, spec in self._specs.items() if number in numbers}

    def present_places(self) -> dict[int, int]:
        """Return the place in the epoch up to which each loader has read."""
        return {
            reader: first_place(spec) + self._ring.lanes[spec.lane].cursor(reader)
            for spec in self._specs.values()
            for reader in spec.readers[0]
        }

    def _spec(self, lane: int, group: ReadingGroup) -> LaneSpec:
        stream, dataset = group.stream, self._dataset
        held_out = stream.kind == HELD_OUT
        schedule = LaneSchedule(
            dataset.length,
            tail=0 if held_out else group.tail,
            held_out=dataset.held_out if held_out else 0,
            first_epoch=stream.epoch,
            first_place=dataset.length if held_out else group.first_place,
            last_epoch=stream.epoch,
        )
        key = StreamKey(dataset.name, stream.seed, stream.epoch)
        readers = tuple(sorted(group.places))
        return LaneSpec(
            lane,
            self._generation,
            key,
            schedule,
            dataset.layout,
            {0: readers},
            self._samples,
            divided=self._divided,
            blocks=dataset.orders.blocks,
        )


def first_place(spec: LaneSpec) -> int:
    """Return the place in its part of the epoch at which a lane begins; held-out samples begin at the first."""
    schedule = spec.schedule
    return 0 if schedule.first_place == schedule.places else schedule.first_place


@dataclass(frozen=True)
class SecondLanes:
    """Costs of making samples where a stream has a second lane.

    Attributes:
        costs: what a sample costs; None: nobody knows.
        kept: samples that are kept; a lane that follows another no further behind finds what that has prepared.
        workers: how many compute at the same time.
    """

    costs: SampleCosts | None
    kept: float
    workers: int

    @classmethod
    def of(cls, settings: ServiceSettings, costs: SampleCosts | None, budget: StoreBudget | None) -> SecondLanes:
        """The costs of a service's second lanes."""
        kept = 0.0 if budget is None or costs is None else settings.workers * budget.memory / costs.nbytes
        return cls(costs, kept, min(settings.workers, len(os.sched_getaffinity(0))))

    def beside(self, kind: str, lag: int) -> PreparingCosts | None:
        """The costs of a lane that follows another so many samples behind; None: nobody knows."""
        if self.costs is None or kind != TRAIN:
            return None
        first, second = self.costs.seconds(False), self.costs.seconds(lag <= self.kept)
        return PreparingCosts(first, second, self.workers) if first and second else None


def _kept_budget(dataset: Dataset, settings: ServiceSettings, costs: SampleCosts | None) -> StoreBudget | None:
    """Each preprocessor's part; None where prepared samples are not kept."""
    if settings.store == 0:
        return None
    if not is_divided(dataset.length, dataset.held_out, settings.workers, dataset.orders.blocks):
        return None
    if costs is None or not costs.is_worth_keeping:
        return None
    memory = memory_to_keep_samples() if settings.store is None else settings.store
    return StoreBudget(memory // settings.workers)


_TICK_SECONDS = 0.25


class Service:
    """Serves the loaders of one data set until none has been there for a while.

    Args:
        place: where loaders find it.
        settings: what it was started with.
        dataset: makes the samples.
        listener: the socket on which loaders come.
    """

    def __init__(
        self, place: ServicePlace, settings: ServiceSettings, dataset: Dataset, listener: socket.socket
    ) -> None:
        self._place, self._settings, self._dataset, self._listener = place, settings, dataset, listener
        self._shape = settings.ring_shape(dataset.layout)
        self._ring, self._descriptor = Ring.passed(self._shape, 2 * self._shape.lane_bytes)
        costs = sample_costs(dataset)
        budget = _kept_budget(dataset, settings, costs)
        self._workers = WorkerPool(self._ring, dataset, self._close_in_children, budget)
        second = SecondLanes.of(settings, costs, budget)
        self._groups = ReadingGroups(settings.patience, self._places, second.beside)
        self._loaders: dict[int, Channel] = {}
        limit = settings.data.corrupt_limit if settings.data else 0
        self._corrupt = CorruptSamples(dataset.name, limit, lambda sample: self._tell(self._loaders, Skipped(sample)))
        self._newcomers: list[Channel] = []
        divided = budget is not None or has_own_blocks(dataset, settings.workers)
        self._openings = Openings(self._ring, dataset, settings.lane_samples, divided)
        self._idle_since = time.monotonic()
        self._selector = DefaultSelector()
        self._selector.register(listener, EVENT_READ, self._accept)

    def run(self) -> None:
        """Serve: hear what has come, form groups, look after the preprocessors."""
        self._workers.start()
        while not self._may_end():
            for key, _ in self._selector.select(_TICK_SECONDS):
                key.data()
            self._hear_workers()
            to_open = self._groups.form(time.monotonic(), self._openings.present_places())
            if self._workers.replace_the_dead():
                to_open = self._groups.form_anew(self._openings.present_places())
            for group in to_open:
                self._open(group)
        self._workers.stop()

    def _may_end(self) -> bool:
        """Say whether nobody has been here for long; then nobody can come any more."""
        if self._loaders or self._newcomers or time.monotonic() - self._idle_since < self._settings.linger:
            return False
        with self._place.lock():
            self._listener.setblocking(False)
            try:
                self._accept()
            except BlockingIOError:
                self._place.address.unlink(missing_ok=True)
                return True
            return False

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        channel = Channel(connection)
        self._newcomers.append(channel)
        self._selector.register(channel, EVENT_READ, lambda: self._welcome(channel))

    def _welcome(self, channel: Channel) -> None:
        """Take a newcomer on, or say why not."""
        self._selector.unregister(channel)
        self._newcomers.remove(channel)
        try:
            hello, _ = channel.receive(0.0)
            refusal = self._refusal(hello)
            if not isinstance(hello, Hello) or refusal:
                channel.send(Refused(refusal))
                channel.close()
                return
            reader = min(set(range(self._shape.readers)) - self._loaders.keys())
            data = self._dataset
            welcome = Welcome(reader, self._shape, data.layout, data.length, data.held_out, data.orders.blocks)
            channel.send(welcome, [self._descriptor])
        except (ChannelClosed, ValueError):
            channel.close()
            return
        self._loaders[reader] = channel
        self._groups.arrive(reader, hello.expected)
        self._selector.register(channel, EVENT_READ, lambda: self._hear(reader))

    def _refusal(self, hello: LoaderMessage | None) -> str:
        if not isinstance(hello, Hello):
            return "the first message was no greeting"
        if hello.digest != self._settings.digest:
            data = "another data set, or without folds"
            return f"the service of this name makes samples of {data}; give the loader another name"
        if len(self._loaders) >= self._shape.readers:
            return f"the service has {len(self._loaders)} loaders already, no more fit"
        return ""

    def _hear(self, reader: int) -> None:
        """Do what a loader wants."""
        try:
            message, _ = self._loaders[reader].receive(0.0)
        except (ChannelClosed, ValueError):
            self._part_with(reader)
            return
        if isinstance(message, Read):
            stream = StreamName(message.kind, message.seed, message.epoch)
            self._groups.want(reader, stream, message.place, message.tail, time.monotonic(), message.rate)
        elif isinstance(message, LaneLeft):
            self._groups.rest(reader)
            self._hear_workers()  # a preprocessor speaks of a sample before it hands it over
            self._tell([reader], Rested())
        self._openings.keep(self._groups.groups)

    def _part_with(self, reader: int) -> None:
        """Forget a loader that has gone, however it went."""
        channel = self._loaders.pop(reader)
        self._selector.unregister(channel)
        channel.close()
        self._groups.depart(reader)
        for lane in self._ring.lanes:
            lane.dismiss(reader)
        self._openings.keep(self._groups.groups)
        self._idle_since = time.monotonic()

    def _open(self, group: ReadingGroup) -> None:
        """Give a group a lane from its rearmost place on; those that read together already move there."""
        before = self._openings.of(group)
        spec = self._openings.open(group)
        if spec is None:
            reason = "all lanes are in use: too many loaders are at different places of the data"
            self._tell(group.places, Failed(reason))
            return
        if before is not None:
            self._workers.order(StopFilling(before.lane))
        self._workers.order(FillLane(spec))
        readers = spec.readers[0]
        self._tell(readers, Assigned(spec.lane, spec.generation, first_place(spec), len(readers)))

    def _fail(self, failure: LaneFailed) -> None:
        readers = self._openings.readers_of(failure.lane, failure.generation)
        self._workers.order(StopFilling(failure.lane))
        self._tell(readers, Failed(failure.reason))

    def _hear_workers(self) -> None:
        for said in self._workers.hear():
            self._note_skip(said) if isinstance(said, Skipped) else self._fail(said)

    def _note_skip(self, skipped: Skipped) -> None:
        """Tell all loaders of a sample that was skipped, and count it: there may be too many in all."""
        try:
            self._corrupt.add(skipped.sample)
        except CorruptLimitError as error:
            self._tell(self._loaders, Failed(str(error)))

    def _tell(self, readers: Iterable[int], message: LoaderMessage) -> None:
        for reader in readers:
            try:
                self._loaders[reader].send(message)
            except (KeyError, ChannelClosed):
                continue  # it has gone, and the selector will say so

    def _places(self, stream: StreamName, tail: int) -> int:
        return self._dataset.held_out if stream.kind == HELD_OUT else self._dataset.length + tail

    def _close_in_children(self) -> None:
        """Close what would keep a connection open after the service has gone."""
        for channel in (*self._loaders.values(), *self._newcomers):
            channel.close()
        self._listener.close()


#: In which a copy is ready: the data set is open, there is only memory to allocate.
_COPY_SECONDS = 60.0


def find_or_start(place: ServicePlace, settings: ServiceSettings, dataset: Dataset | None, timeout: float) -> Channel:
    """Return a channel to the service, which is started if none runs.

    Args:
        place: where it is.
        settings: what it is started with.
        dataset: an opened data set to hand over to a new service, if settings name none.
        timeout: seconds that the start may take.

    Raises:
        ServiceError: it did not start; the text says why, or where its log is.
    """
    with place.lock(timeout) as lock:
        connection = place.connect()
        if connection is None:
            _start(place, settings, dataset, lock, timeout)
            connection = place.connect()
    if connection is None:
        raise ServiceError(f"the service of {place.name!r} ended as soon as it had started; see {place.log}")
    return Channel(connection)


def serve(place: ServicePlace, settings: ServiceSettings, dataset: Dataset | None, ready: int) -> None:
    """Be the service of a place whose lock the caller's parent holds, until no loader needs it.

    Args:
        place: where loaders will look.
        settings: what to serve.
        dataset: the opened data set, if settings name none.
        ready: descriptor to which one line of JSON is written once loaders may come, or why they may not.
    """
    try:
        if dataset is None:
            assert settings.data is not None
            dataset = Dataset(settings.data)
        service = Service(place, settings, dataset, place.listen())
    except Exception as cause:
        told = str(cause) if isinstance(cause, DataSpecError) else f"{type(cause).__name__}: {cause}"
        _say(ready, {"error": told})
        traceback.print_exc()
        return
    _say(ready, {"ready": True})
    service.run()


def _start(place: ServicePlace, settings: ServiceSettings, dataset: Dataset | None, lock: int, timeout: float) -> None:
    """Start a service and wait until it says that it is ready; one that does not is killed."""
    seconds = timeout if dataset is None else min(timeout, _COPY_SECONDS)
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream:
        try:
            if dataset is None:
                first = execute(place, settings, writing)
            else:
                first = fork(place, lambda: serve(place, settings, dataset, writing), (reading, lock))
        finally:
            os.close(writing)
        answer = _answer(stream, first, seconds)
    if answer is None:
        advice = "" if dataset is None else f"; {COPY_ADVICE}"
        raise ServiceError(f"the service of {place.name!r} was not ready within {seconds:g} s{advice}; see {place.log}")
    if not answer:
        raise ServiceError(f"the service of {place.name!r} ended before it was ready; see {place.log}")
    if "error" in answer:
        raise ServiceError(f"the service of {place.name!r} could not start: {answer['error']}")


def _answer(stream: BinaryIO, first: int, timeout: float) -> dict[str, Any] | None:
    """Return what a service says, and see its first process off; kill all of it if it says nothing in time."""
    answer = None
    try:
        answer = _read_line(stream, timeout)
    finally:
        if answer is None:
            end_launched(first)
        os.waitpid(first, 0)
    return answer


def _say(descriptor: int, answer: dict[str, Any]) -> None:
    os.write(descriptor, json.dumps(answer).encode() + b"\n")
    os.close(descriptor)


def _read_line(stream: BinaryIO, timeout: float) -> dict[str, Any] | None:
    """Return the other side's words, nothing if it has gone, or None if it was silent for so many seconds."""
    waiting = poll()
    waiting.register(stream, POLLIN)
    if not waiting.poll(timeout * 1000):
        return None
    line = stream.readline()
    return json.loads(line) if line else {}
