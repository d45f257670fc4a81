"""Sums over hosts while devices still meet, and from device to device from then on.

NCCL takes tenths of a second to make a communicator, and more, the more devices there are. A group that has just formed
need not wait for it: a sum has the same bits by either way, so its first steps go over hosts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.messages.group import Group
from trainers.messages.transport import Interrupted, PeerFailed, PeerSilent
from trainers.reduce.adder import Adder, InOrder
from trainers.reduce.communicators import Communicators
from trainers.reduce.device_sum import DeviceSum


class UntilMet:
    """`InOrder` until the members' devices have met, then `DeviceSum`.

    The master says after each step whether they go on from device to device, so all take the same way.
    """

    def __init__(self, group: Group, virtual_workers: int, device: torch.device, communicators: Communicators) -> None:
        self._group = group
        self._hosts = InOrder(group, virtual_workers, device)
        self._devices = DeviceSum(group, virtual_workers, device, communicators)
        self._used: Adder = self._devices
        self._has_begun = False

    @property
    def place(self) -> torch.device:
        """That of the way that sums take now: the host while devices meet."""
        return self._used.place

    @property
    def is_meeting(self) -> bool:
        """Whether sums still go over hosts."""
        return self._used is self._hosts

    def prepare(self) -> None:
        """Begin to meet; all members call it at once. PeerFailed, PeerSilent."""
        self._devices.prepare()

    def start(self, at_once: bool = False) -> None:
        """Be able to add; all members call it at once. PeerFailed, PeerSilent.

        at_once: do not wait for devices that still meet; only at the first start: later, vectors may lie on devices.
        """
        self._devices.prepare()
        goes_over_hosts = at_once and not self._has_begun and not self._group.agree(int(self._devices.is_due))
        self._has_begun = True
        if goes_over_hosts:
            self._used = self._hosts
        else:
            self._devices.start()

    def sum(self, vectors: Sequence[Tensor]) -> Tensor:
        return self._used.sum(vectors)

    def share(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return self._used.share(tensors)

    def share_ahead(self, tensors: Sequence[Tensor]) -> list[Tensor] | None:
        return self._used.share_ahead(tensors)

    def bring(self, tensors: Sequence[Tensor], origin: int) -> None:
        """Fill tensors on the members' devices with those of member `origin` (see `DeviceSum.bring`)."""
        self._devices.bring(tensors, origin)

    def follow(self) -> bool:
        return self._used.follow()

    def complete(self) -> None:
        """Return once all sums that were begun are there; the next ones go the way that is open then.

        PeerFailed, PeerSilent, Interrupted.
        """
        self._used.complete()
        if self.is_meeting and (self._group.agree(int(self._devices.is_due)) or self._devices.has_failed):
            self._devices.start()
            self._used = self._devices

    def take_waited(self) -> float:
        """Return the seconds spent waiting for other members since the last call."""
        return self._hosts.take_waited() + self._devices.take_waited()

    def interrupt(self) -> None:
        """End the waits of this member's other threads, now and from now on."""
        self._group.interrupt()

    def stop(self, together: bool) -> None:
        """Keep the communicator, if all members do, once they have met: nobody leaves one that others still make."""
        if self.is_meeting and together:
            together = self._have_met()
        self._used = self._devices
        self._devices.stop(together)

    def _have_met(self) -> bool:
        """Wait until the devices have met; whether they did. All steps are done, so nobody fails if they did not."""
        try:
            self._devices.start()
        except (PeerFailed, PeerSilent, Interrupted):
            return False
        return True


@dataclass(frozen=True)
class DeviceSums:
    """Makes adders of groups whose members send from device to device; one alone sends to nobody."""

    communicators: Communicators

    def __call__(self, group: Group, virtual_workers: int, device: torch.device) -> Adder:
        if group.size == 1:
            return InOrder(group, virtual_workers, device)
        return UntilMet(group, virtual_workers, device, self.communicators)
