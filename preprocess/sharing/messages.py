"""Messages between a loader and the service of its node: JSON over a local socket; nothing is unpickled."""

from __future__ import annotations

import json
import select
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, get_args

from pydantic import TypeAdapter

from preprocess.ring.lane_memory import RingShape
from preprocess.samples.errors import SkippedSample
from preprocess.samples.layout import SampleLayout
from preprocess.samples.order import BlockOrder
from preprocess.samples.stream import LaneSpec

M = TypeVar("M")


class MessageError(ValueError):
    """Something that is no message, or that no message can hold."""


class MessageCodec(Generic[M]):
    """Writes and reads messages: the name of the message's class in one line, then its fields.

    Args:
        kinds: the dataclasses of all messages.
    """

    def __init__(self, kinds: Iterable[type[M]]) -> None:
        self._kinds = {kind.__name__: kind for kind in kinds}
        self._adapters: dict[str, TypeAdapter[M]] = {}

    @property
    def kinds(self) -> tuple[type[M], ...]:
        """The dataclasses of all messages."""
        return tuple(self._kinds.values())

    def encode(self, message: M) -> bytes:
        """Return the message as UTF-8: numbers may be infinite or NaN, half a surrogate pair becomes "?".

        Raises:
            MessageError: a field holds what JSON cannot.
        """
        name = type(message).__name__
        try:
            plain = self._adapter(name).dump_python(message, warnings=False)  # NumPy scalars are plain below
            fields = json.dumps(plain, ensure_ascii=False, default=_plain)
        except (ValueError, TypeError, RecursionError) as error:
            raise MessageError(f"the message {name} cannot be written: {error}") from error
        return name.encode() + b"\n" + fields.encode(errors="replace")

    def decode(self, text: bytes) -> M:
        """Return the message that `text` holds.

        Raises:
            MessageError: it is none of ours.
        """
        head, _, fields = text.partition(b"\n")
        name = head.decode(errors="replace")
        if name not in self._kinds:
            raise MessageError(f"{head!r} is no message's name; there are {', '.join(self._kinds)}")
        try:
            return self._adapter(name).validate_json(fields)
        except ValueError as error:
            raise MessageError(str(error)) from error

    def _adapter(self, name: str) -> TypeAdapter[M]:
        """Made at the first message of its kind, as it takes its time, and most processes see few kinds."""
        if name not in self._adapters:
            self._adapters[name] = TypeAdapter(self._kinds[name])
        return self._adapters[name]


def _plain(value: Any) -> Any:
    """JSON for NumPy scalars."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{value!r} is of type {type(value).__name__}")


@dataclass(frozen=True)
class Hello:
    """A loader introduces itself: which data it means, how many processes it expects to read them."""

    digest: str
    expected: int


@dataclass(frozen=True)
class Welcome:
    """The service takes a loader on; the ring's memory comes with this message.

    Attributes:
        reader: the loader's number in the ring.
        shape: the dimensions of the ring.
        layout: the layout of the samples.
        length, held_out: samples of the data set.
        blocks: the order by blocks of its training samples; None: they are shuffled with all others.
    """

    reader: int
    shape: RingShape
    layout: SampleLayout
    length: int
    held_out: int
    blocks: BlockOrder | None = None


@dataclass(frozen=True)
class Refused:
    """The service does not take a loader on."""

    reason: str


@dataclass(frozen=True)
class Read:
    """A loader wants one epoch from a place on.

    Attributes:
        kind, seed, epoch: what it reads.
        place: from which on.
        tail: places that are appended to the order, see `LaneSchedule`.
        rate: samples/s that it reads while none is late; 0: it does not know yet.
    """

    kind: str
    seed: int
    epoch: int
    place: int
    tail: int
    rate: float = 0.0


@dataclass(frozen=True)
class Assigned:
    """The loader reads this opening of this lane from now on; position 0 is `first_place` of the epoch."""

    lane: int
    generation: int
    first_place: int
    readers: int


@dataclass(frozen=True)
class LaneLeft:
    """A loader has left its lane and wants no other now."""


@dataclass(frozen=True)
class Rested:
    """The service has heard that a loader left; it has said all that concerns what the loader read."""


@dataclass(frozen=True)
class Failed:
    """Word that what the loader waits for will not come."""

    reason: str


@dataclass(frozen=True)
class FillLane:
    """A preprocessor of the service shall fill a lane."""

    lane: LaneSpec


@dataclass(frozen=True)
class StopFilling:
    """A preprocessor of the service shall fill a lane no more."""

    lane: int


@dataclass(frozen=True)
class LaneFailed:
    """A preprocessor could not make a sample of a lane."""

    lane: int
    generation: int
    reason: str


@dataclass(frozen=True)
class Skipped:
    """A sample could not be made and another was taken."""

    sample: SkippedSample


ToService = Hello | Read | LaneLeft | LaneFailed | Skipped
ToLoader = Welcome | Refused | Assigned | Rested | Failed | Skipped
ToWorker = FillLane | StopFilling
LoaderMessage = ToService | ToLoader | ToWorker
LOADER_MESSAGES: MessageCodec[LoaderMessage] = MessageCodec(get_args(LoaderMessage))
_MOST_BYTES = 2**20


class ChannelClosed(ConnectionError):
    """The other side has gone."""


class Channel:
    """Messages as JSON over a local socket that keeps their bounds; file descriptors may go with them.

    Args:
        connection: a connected socket of type SOCK_SEQPACKET.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def fileno(self) -> int:
        """Return the socket's descriptor, for `select`."""
        return self._socket.fileno()

    def send(self, message: LoaderMessage, descriptors: Sequence[int] = ()) -> None:
        """Send a message.

        Raises:
            ChannelClosed: nobody will receive it, or the other side has not received for so long that it is full.
        """
        try:
            socket.send_fds(self._socket, [LOADER_MESSAGES.encode(message)], descriptors, socket.MSG_DONTWAIT)
        except OSError as cause:
            raise ChannelClosed(f"the message {type(message).__name__} could not be sent: {cause}") from cause

    def receive(self, timeout: float, descriptors: int = 0) -> tuple[LoaderMessage | None, list[int]]:
        """Return the next message, or None if none came within so many seconds, and what descriptors came with it.

        Raises:
            ChannelClosed: the other side has gone.
            ValueError: what came is no message.
        """
        if not self.is_readable(timeout):
            return None, []
        try:
            content, found, _, _ = socket.recv_fds(self._socket, _MOST_BYTES, descriptors)
        except OSError as cause:
            raise ChannelClosed(str(cause)) from cause
        if not content:
            raise ChannelClosed("the other side has closed the connection")
        return LOADER_MESSAGES.decode(content), found

    def is_readable(self, timeout: float = 0.0) -> bool:
        """Say whether something came within so many seconds: a message, or the end."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(max(timeout, 0.0) * 1000))

    @property
    def is_closed(self) -> bool:
        """Whether this side was closed."""
        return self._socket.fileno() < 0

    def close(self) -> None:
        """Close this side."""
        self._socket.close()
