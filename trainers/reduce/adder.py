"""What adds the gradients of a job's virtual workers, on one member of its group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from trainers.messages.group import Group
from trainers.reduce.ring import VirtualRing


class Adder(Protocol):
    """The sums over all virtual workers. Every member calls the same methods in the same order."""

    @property
    def place(self) -> torch.device:
        """Where the vectors should lie, if they find room there; else they lie on the host."""

    def prepare(self) -> None:
        """Begin to meet the other members, beside what is done before `start`; `stop` ends that too.

        PeerSilent, PeerFailed.
        """

    @property
    def is_meeting(self) -> bool:
        """Whether members add while they still meet, more slowly than later."""

    def start(self, at_once: bool = False) -> None:
        """Meet the other members; before the first sum. PeerSilent, PeerFailed.

        at_once: add without waiting for that, where it can be; steps that are timed should not.
        """

    def sum(self, vectors: Sequence[Tensor]) -> Tensor:
        """Return the sum over all virtual workers, or where it will be once `complete` has returned.

        vectors: the flat tensors of the own workers, in rank order, on the CPU or at `place`, where they are added on
        the current stream. The sum takes the place of the first.
        """

    def share(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return copies of the master's tensors; all members give some of the same shapes, dtypes and device."""

    def share_ahead(self, tensors: Sequence[Tensor]) -> list[Tensor] | None:
        """Begin `share`, whose copies are there once `complete` has returned; None where that saves no wait."""

    def follow(self) -> bool:
        """Let all later work on the member's device wait for the sums that were begun; whether that can be.

        Whoever then waits for the device, and not in `complete`, hears of no member that gives up.
        """

    def complete(self) -> None:
        """Return once the sums that were asked for are there. PeerFailed, PeerSilent, Interrupted."""

    def take_waited(self) -> float:
        """Return the seconds spent waiting for other members since the last call."""

    def interrupt(self) -> None:
        """End the waits of this member's other threads, now and from now on: it is about to give up."""

    def stop(self, together: bool) -> None:
        """Part from the other members, after the last sum; `start` may follow.

        together: all members do; else this one gives up, or another one has.
        """


AdderOf = Callable[[Group, int, torch.device], Adder]
"""Makes the adder of a group for so many virtual workers, whose model is on a device."""


class InOrder:
    """The ring that adds in the order of plain DDP over gloo (see `trainers.reduce.ring`).

    A member alone adds on its own device.
    """

    def __init__(self, group: Group, virtual_workers: int, device: torch.device) -> None:
        self._group = group
        self.place = device if group.size == 1 else torch.device("cpu")
        self._neighbours = group.neighbours()
        self._ring = VirtualRing(group.blocks(virtual_workers), group.index, self._neighbours)

    def prepare(self) -> None:
        return

    @property
    def is_meeting(self) -> bool:
        return False

    def start(self, at_once: bool = False) -> None:
        return

    def sum(self, vectors: Sequence[Tensor]) -> Tensor:
        return self._ring.sum(vectors)

    def share(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return self._group.bcast_copies(tensors)

    def share_ahead(self, tensors: Sequence[Tensor]) -> None:
        return

    def follow(self) -> bool:
        return False

    def complete(self) -> None:
        return

    def take_waited(self) -> float:
        return self._neighbours.take_waited()

    def interrupt(self) -> None:
        self._group.interrupt()

    def stop(self, together: bool) -> None:
        return
