"""Messages from rank to rank: as bytes over MPI, with an inbox for each role."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from fleet.coordination.failures import acknowledge, is_loss
from fleet.coordination.protocol import MESSAGES, Message

if TYPE_CHECKING:
    from mpi4py import MPI


_SHORTEST, _USUAL, _LONGEST = 0.0002, 0.005, 0.02
"""Seconds between two looks for a message: at first, soon after another one, and after a long silence."""
_LATE = 0.01
"""At most this part of a silence passes until its end is seen. A look each 5 ms takes 1.6 % of a processor, and idle
ranks are many."""
_WHERE_RUNG = 0.05
"""Seconds between two looks where who sends rings a bell: for signals, and what MPI has to do."""
_AT_ONCE = 4096
"""Bytes of a message that MPI sends without the sender's further help, on any node."""
_MOST_KEPT = 64
"""Messages whose bytes are kept before it is looked which of them have gone: each look lets busy ranks of the host go
first."""


class Bell(Protocol):
    """Wakes who waits for a message; the message itself is looked for in MPI."""

    @property
    def reaches_all(self) -> bool:
        """Whether every rank that may send a message rings."""
        ...

    def ring(self, rank: int, inbox: int) -> None:
        """Wake who waits at an inbox, if the bell reaches that rank."""
        ...

    def wait(self, inbox: int, seconds: float) -> bool:
        """Wait until somebody rings at an inbox of this rank, for at most so many seconds; whether somebody did."""
        ...


@dataclass
class Mailbox:
    """Inbox of one role, which also sends to others. Waits sleep; they never spin.

    Attributes:
        comm: all ranks.
        inbox: of this role.
        bell: rung for each message to a rank that it reaches; None: everybody looks for messages now and then.
    """

    comm: MPI.Intracomm
    inbox: int
    bell: Bell | None = None
    _going: list[MPI.Request] = field(default_factory=list)  # of large messages
    _sent: list[tuple[MPI.Request, np.ndarray]] = field(default_factory=list)
    _heard: float = field(default_factory=time.monotonic)  # when the last message came

    def send(self, rank: int, inbox: int, message: Message) -> None:
        """Send without waiting; the bytes are kept until MPI has taken them."""
        self.send_all((rank,), inbox, message)

    def send_all(self, ranks: Iterable[int], inbox: int, message: Message) -> None:
        """Send the same to several, as `send` does; it is written as bytes once."""
        data = np.frombuffer(MESSAGES.encode(message), dtype=np.uint8)
        for rank in ranks:
            self._post(rank, inbox, data)

    def _post(self, rank: int, inbox: int, data: np.ndarray) -> None:
        from mpi4py import MPI

        if len(self._sent) >= _MOST_KEPT:
            self._sent = [(request, kept) for request, kept in self._sent if not _is_over(request)]
        try:
            request = self.comm.Isend(data, dest=rank, tag=inbox)
        except MPI.Exception as error:
            acknowledge(self.comm, error)  # there is nobody to read it
            return
        self._sent.append((request, data))
        if data.nbytes > _AT_ONCE:
            self._going.append(request)
        if self.bell is not None:
            self.bell.ring(rank, inbox)

    def poll(self) -> Message | None:
        """Return the next message; None: there is none now.

        Raises:
            RanksLost: rank 0 is lost, or the run is being ended. Another lost rank is passed over here.
        """
        from mpi4py import MPI

        status = MPI.Status()
        try:
            matched = self.comm.Improbe(source=MPI.ANY_SOURCE, tag=self.inbox, status=status)
            if matched is None:
                return None
            self._heard = time.monotonic()
            data = np.empty(status.Get_count(MPI.BYTE), dtype=np.uint8)
            matched.Recv(data)
        except MPI.Exception as error:
            acknowledge(self.comm, error)
            return None
        return MESSAGES.decode(data.tobytes())

    def look(self) -> Message | None:
        """Poll after a long pause: MPI's first probe may only take in what has come since its last call, as Open MPI's
        does, and find none of it.
        """
        message = self.poll()
        return self.poll() if message is None else message

    @property
    def pause(self) -> float:
        """Seconds between two looks for a message now, unless somebody rings."""
        if self.bell is not None and self.bell.reaches_all and not self._is_sending:
            return _WHERE_RUNG
        return max(_USUAL, min(_LATE * (time.monotonic() - self._heard), _LONGEST))

    @property
    def _is_sending(self) -> bool:
        """Whether a large message has not gone: MPI goes on with it when somebody looks."""
        self._going = [request for request in self._going if not _is_over(request)]
        return bool(self._going)

    @property
    def _first_pause(self) -> float:
        return _SHORTEST if self.bell is None or not self.bell.reaches_all else self.pause

    def rest(self, seconds: float) -> bool:
        """Sleep so many seconds, or until somebody rings; return whether somebody did."""
        if self.bell is not None:
            return self.bell.wait(self.inbox, seconds)
        time.sleep(seconds)
        return False

    def receive(self, timeout: float, until: Callable[[], bool] | None = None) -> Message | None:
        """Return the next message; None after `timeout` seconds, or as soon as `until()` holds at a look."""
        deadline, pause, rung = time.monotonic() + timeout, self._first_pause, False
        longest = _WHERE_RUNG if until is None else _LONGEST
        while True:
            message, now = self.look() if rung else self.poll(), time.monotonic()
            if message is not None or (until is not None and until()) or now >= deadline:
                return message
            rung = self.rest(min(pause, longest, deadline - now))
            pause = _SHORTEST if rung else min(1.5 * pause, self.pause)

    def flush(self, timeout: float = 10.0) -> None:
        """Wait, at most `timeout` seconds, until all sent messages have gone."""
        deadline = time.monotonic() + timeout
        while self._sent and time.monotonic() < deadline:
            self._sent = [(request, kept) for request, kept in self._sent if not _is_over(request)]
            time.sleep(0.001)


def _is_over(request: MPI.Request) -> bool:
    """Return whether a message has gone, or nobody is left to receive it."""
    from mpi4py import MPI

    try:
        return bool(request.Test())
    except MPI.Exception as error:
        if not is_loss(error):
            raise
        return True
