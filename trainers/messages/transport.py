"""What a group needs from the network, and the network of a trainer that is alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

Parcel = tuple[int, np.ndarray]
"""(index of the peer, contiguous uint8 array to send from or receive into)."""


class PeerFailed(RuntimeError):
    """A member of the group gave up; `rank` says which one and `text` why."""

    def __init__(self, rank: int, text: str) -> None:
        super().__init__(f"rank {rank}, a member of this group, failed: {text}")
        self.rank = rank
        self.text = text


class PeerSilent(TimeoutError):
    """Members of the group did not answer in time; `ranks` says which ones."""

    def __init__(self, ranks: Sequence[int], seconds: float) -> None:
        names = ", ".join(str(rank) for rank in ranks)
        super().__init__(
            f"waited {seconds:g} s for rank{'s' if len(ranks) > 1 else ''} {names}: no message came; see what "
            f"held {'them' if len(ranks) > 1 else 'it'} up, or form the group with a longer timeout"
        )
        self.ranks = tuple(ranks)


class Interrupted(RuntimeError):
    """A wait was ended by `Transport.interrupt`."""


class Pending(Protocol):
    """A message under way. Its memory stays in use until `Transport.wait` has returned for it."""

    @property
    def done(self) -> bool:
        """Whether it is known to have ended; a look helps it on, and never waits."""


class Transport(Protocol):
    """Messages between the members 0 .. size-1 of a group.

    any_thread: whether another thread than that which made it may use it, one at a time.
    names: what the members are called in errors. timeout: seconds after which a wait gives up.
    interrupted: whether this member is about to give up.
    """

    index: int
    size: int
    any_thread: bool
    names: Sequence[int]
    timeout: float
    interrupted: bool

    def send(self, peer: int, memory: np.ndarray) -> Pending:
        """Begin to send; nothing goes out for an empty array. Messages to a peer arrive in the order of the calls."""

    def receive(self, peer: int, memory: np.ndarray) -> Pending:
        """Begin to fill `memory`; both sides know its size."""

    def wait(self, pending: Sequence[Pending]) -> float:
        """Return, once all are complete, the seconds that it took. PeerFailed, PeerSilent; Interrupted."""

    def interrupt(self) -> None:
        """End the waits of other threads, now and from now on: this member is about to give up."""

    def check(self) -> None:
        """Raise PeerFailed if another member has given up."""

    def abort(self, text: str) -> None:
        """Tell the others that this member gives up, and why."""

    def close(self) -> None:
        """Let go of the network; no message is under way."""


def exchange(transport: Transport, sends: Sequence[Parcel], receives: Sequence[Parcel]) -> float:
    """Complete all sends and receives; return the seconds waited."""
    pending = [transport.receive(peer, memory) for peer, memory in receives]
    pending += [transport.send(peer, memory) for peer, memory in sends]
    return transport.wait(pending)


class Alone:
    """The transport of a group of one: there is nobody to talk to."""

    index = 0
    size = 1
    any_thread = True
    names: Sequence[int] = (0,)
    timeout = 0.0
    interrupted = False

    def send(self, peer: int, memory: np.ndarray) -> Pending:
        raise ValueError(f"a group of one has no peers, got a message for member {peer}")

    def receive(self, peer: int, memory: np.ndarray) -> Pending:
        raise ValueError(f"a group of one has no peers, got a wait for member {peer}")

    def wait(self, pending: Sequence[Pending]) -> float:
        return 0.0

    def interrupt(self) -> None:
        return

    def check(self) -> None:
        return

    def abort(self, text: str) -> None:
        return

    def close(self) -> None:
        return
