"""The service of a node: gives lanes to loaders, and keeps the preprocessors that fill them."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable
from selectors import EVENT_READ, DefaultSelector

from preprocess.making.dataset import Dataset
from preprocess.making.stores import has_own_blocks
from preprocess.making.worth import sample_costs
from preprocess.ring.ring import Ring
from preprocess.samples.corrupt import CorruptSamples
from preprocess.samples.errors import CorruptLimitError
from preprocess.samples.order import HELD_OUT
from preprocess.sharing.kept import SecondLanes, kept_budget
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
from preprocess.sharing.openings import Openings, first_place
from preprocess.sharing.place import ServicePlace
from preprocess.sharing.reading_groups import ReadingGroup, ReadingGroups, StreamName
from preprocess.sharing.settings import ServiceSettings
from preprocess.sharing.staff import Staff

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
        budget = kept_budget(dataset, settings, costs)
        self._staff = Staff(self._ring, dataset, self._close_in_children, budget)
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
        self._staff.hire()
        while not self._may_end():
            for key, _ in self._selector.select(_TICK_SECONDS):
                key.data()
            self._hear_staff()
            to_open = self._groups.form(time.monotonic(), self._openings.present_places())
            if self._staff.replace_the_dead():
                to_open = self._groups.form_anew(self._openings.present_places())
            for group in to_open:
                self._open(group)
        self._staff.dismiss()

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
            self._hear_staff()  # a preprocessor speaks of a sample before it hands it over
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
            self._staff.order(StopFilling(before.lane))
        self._staff.order(FillLane(spec))
        readers = spec.readers[0]
        self._tell(readers, Assigned(spec.lane, spec.generation, first_place(spec), len(readers)))

    def _fail(self, failure: LaneFailed) -> None:
        readers = self._openings.readers_of(failure.lane, failure.generation)
        self._staff.order(StopFilling(failure.lane))
        self._tell(readers, Failed(failure.reason))

    def _hear_staff(self) -> None:
        for said in self._staff.hear():
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
