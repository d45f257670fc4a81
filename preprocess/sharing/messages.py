"""What a loader and the service of its node tell each other, and the channel that carries it."""

from __future__ import annotations

import select
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from preprocess.ring.control import RingShape
from preprocess.samples.block_order import BlockOrder
from preprocess.samples.corrupt import SkippedSample
from preprocess.samples.layout import SampleLayout
from preprocess.samples.stream import LaneSpec
from preprocess.sharing.message_codec import MessageCodec


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
        tail: places that are appended to the order, see `Itinerary`.
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
    """What the loader waits for will not come."""

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
ToStaff = FillLane | StopFilling
LoaderMessage = ToService | ToLoader | ToStaff
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
