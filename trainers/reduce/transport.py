"""What a group needs from the network, and the network of a trainer that is alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

__all__ = ["Alone", "PeerFailed", "PeerSilent", "Parcel", "Transport"]

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


class Transport(Protocol):
    """Messages between the members 0 .. size-1 of a group.

    waited: seconds spent waiting for peers so far.
    """

    index: int
    size: int
    waited: float

    def exchange(self, sends: Sequence[Parcel], receives: Sequence[Parcel]) -> None:
        """Complete all sends and receives. PeerSilent after the time-out, PeerFailed when a peer has aborted."""

    def check(self) -> None:
        """Raise PeerFailed if a peer has aborted."""

    def abort(self, text: str) -> None:
        """Tell every peer that this member gave up."""

    def close(self) -> None:
        """Release what the transport holds; nothing is exchanged afterwards."""


class Alone:
    """The transport of a group of one: there is nobody to talk to."""

    index = 0
    size = 1
    waited = 0.0

    def exchange(self, sends: Sequence[Parcel], receives: Sequence[Parcel]) -> None:
        if sends or receives:
            raise ValueError(f"a group of one has no peers, got sends {sends} and receives {receives}")

    def check(self) -> None:
        return

    def abort(self, text: str) -> None:
        return

    def close(self) -> None:
        return
