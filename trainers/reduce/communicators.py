"""Communicators between devices, kept for groups that form again with the same members.

One takes NCCL tenths of a second and memory on each device; groups form, part and move all the time. Members may differ
in what they have kept: one gave a communicator up when the other had already left, or needed the room for others. So
each tells the master what it has, and the master's word holds: that one, where all have it, or a new one.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Collection
from itertools import count
from typing import Any

import torch

from trainers.messages.device_channel import DeviceChannel
from trainers.messages.group import Group
from trainers.messages.torch_backend import listening_store

_MOST = 8
_STORE_SECONDS = 300.0
_LAST_SECONDS = 5.0
"""For so long does an end wait for devices that still meet: a process that ends under a meeting is aborted by torch."""


class Communicators:
    """This process's ends, by the ranks of their members, the master first.

    lost: gives the ranks that are known to be gone. most: how many are kept; the one that was used last goes last.
    """

    def __init__(self, lost: Callable[[], Collection[int]] = tuple, most: int = _MOST) -> None:
        self._lost, self._most = lost, most
        self._kept: dict[tuple[int, ...], DeviceChannel] = {}
        self._unmet: list[DeviceChannel] = []
        self._given_up: list[DeviceChannel] = []  # what they hold is given back when nobody waits for this member
        self._stores: dict[bool, tuple[Any, str]] = {}  # where groups meet whose master this is: of one host, or more
        self._numbers = count()

    def take(self, group: Group, device: torch.device) -> DeviceChannel:
        """Return the one of the group's members, kept or new; all members call it at once. PeerFailed, PeerSilent.

        The members of a new one have begun to meet (see `DeviceChannel.met`).
        """
        lost = frozenset(self._lost())
        for ranks in [ranks for ranks in self._kept if not lost.isdisjoint(ranks)]:
            self.give_up(self._kept.pop(ranks))
        mine = self._kept.pop(group.ranks, None)
        try:
            name = self._agreed(group, mine.name if mine else "")
        except BaseException:
            if mine:
                self.give_up(mine)
            raise
        if mine and mine.name == name:
            mine.transport = group.transport
            return mine
        if mine:
            self.give_up(mine)
        self._keep_at_most(self._most - 1)
        made = DeviceChannel(name, group.transport, device)
        self._unmet = [*(channel for channel in self._unmet if channel.meets), made]
        return made

    def keep(self, group: Group, channel: DeviceChannel) -> None:
        """Take one back that its members leave together, with no message under way; others are to be given up."""
        self._kept[group.ranks] = channel
        self._given_up = []

    def give_up(self, channel: DeviceChannel) -> None:
        """Abort one that is of no use any more: its other members shall hear of it at once, and form anew."""
        channel.abort()
        self._given_up.append(channel)

    def end(self) -> None:
        """Abort all that are kept, and end the meetings under way: without its store none goes on."""
        self._keep_at_most(0)
        self._stores.clear()
        until = time.monotonic() + _LAST_SECONDS
        for channel in self._unmet:
            channel.leave_meeting(until - time.monotonic())
        self._unmet, self._given_up = [], []

    def _keep_at_most(self, most: int) -> None:
        while len(self._kept) > most:
            self.give_up(self._kept.pop(next(iter(self._kept))))

    def _agreed(self, group: Group, name: str) -> str:
        """Return the name of the communicator that all members use now."""
        told = [part.decode().split() for part in group.gather_bytes(f"{socket.gethostname()} {name}".encode())]
        if group.is_master and (not name or any(words[1:] != [name] for words in told)):
            on_one_host = len({words[0] for words in told}) == 1
            if on_one_host not in self._stores:
                self._stores[on_one_host] = listening_store(on_one_host, _STORE_SECONDS)
            name = f"{self._stores[on_one_host][1]}/{next(self._numbers)}"
        return group.bcast_bytes(name.encode()).decode()
