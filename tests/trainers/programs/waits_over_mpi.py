"""The transport over MPI, whole and with each of its waits taken away. Argument: folder. Under mpiexec, 2 ranks.

Rank 0 writes what went wrong to told.json: by the mutant's name, "" where it is whole.
"""

from __future__ import annotations

import json
import sys
import weakref
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from tests.device.waits import MPI as MODULE
from tests.device.waits import OVER_MPI, text_of
from tests.trainers.support.without import made_of, without
from trainers.device.device_streams import backoff
from trainers.messages.transport import PeerFailed

WORLD = MPI.COMM_WORLD
TOKEN, TAGS = 1, count(100, 10)
LOOKS = 2000
"""After so many naps rank 0 has what it waits for, though it should have heard that rank 1 gave up."""
ALIVE: list[np.ndarray] = []
BYTES = 1 << 22
"""More than MPI sends before it is asked for."""


def naps_until(looks: int) -> tuple[Callable[[float], None], Callable[[], None]]:
    """What rank 0 does between two looks, and what lets rank 1 go, as it does by itself after so many looks."""
    left = [looks]

    def let_go() -> None:
        if left[0] != -1:
            left[0] = -1
            WORLD.Send(np.zeros(1, np.uint8), 1, TOKEN)

    def rest(elapsed: float) -> None:
        left[0] -= left[0] > 0
        if left[0] == 0:
            let_go()
        backoff(elapsed)

    return rest, let_go


def held_back(tag: int) -> None:
    """What rank 1 sends once it may."""
    WORLD.Recv(np.zeros(1, np.uint8), 0, TOKEN)
    WORLD.Send(np.full(8, 7, np.uint8), 0, tag)


def taken(tag: int, room: np.ndarray) -> None:
    """Take what rank 1 sends, unless it lands in the room."""
    late = WORLD.Irecv(np.zeros(8, np.uint8), 1, tag)
    while not room.any():
        if late.Test():
            return
    late.Cancel()
    late.Wait()


def late_message(made: Any, tag: int) -> str:
    """A message that goes once somebody waits for it is there when the wait ends."""
    transport, room = made.MpiTransport(WORLD, tag=tag), np.zeros(8, np.uint8)
    if WORLD.rank == 1:
        held_back(tag)
        return ""
    made.backoff, let_go = naps_until(1)
    pending = transport.receive(1, room)
    transport.wait([pending])
    told = "" if room.any() else "a message is used before it is there"
    let_go()
    MPI.Request.Waitall(pending.requests)
    return told


def given_up(made: Any, tag: int) -> str:
    """Who waits for a member that gives up hears why."""
    reason = f"out of memory {tag}"  # another each time: unread memory may hold an old one
    transport, room = made.MpiTransport(WORLD, tag=tag), np.zeros(8, np.uint8)
    if WORLD.rank == 1:
        WORLD.Send(np.frombuffer(reason.encode(), np.uint8), 0, tag + 1)
        WORLD.Barrier()
        held_back(tag)
        return ""
    WORLD.Barrier()
    made.backoff, let_go = naps_until(LOOKS)
    pending, told = transport.receive(1, room), ""
    try:
        transport.wait([pending])
        let_go()
        MPI.Request.Waitall(pending.requests)
        return "nobody heard of it"
    except PeerFailed as error:
        told = "" if error.text == reason else "the reason is another"
    let_go()
    taken(tag, room)
    return told


def landing(made: Any, tag: int) -> str:
    """Nothing lands with a member that has given up."""
    transport, room = made.MpiTransport(WORLD, tag=tag), np.zeros(8, np.uint8)
    if WORLD.rank == 1:
        held_back(tag)
        return ""
    transport.receive(1, room)
    transport.abort("")
    naps_until(1)[1]()
    taken(tag, room)
    return "it landed" if room.any() else ""


def kept(made: Any, tag: int) -> str:
    """What is being sent stays in memory until the other has it, though the sender has given up."""
    transport = made.MpiTransport(WORLD, tag=tag)
    if WORLD.rank == 1:
        WORLD.Recv(np.zeros(1, np.uint8), 0, TOKEN)
        WORLD.Recv(np.zeros(BYTES, np.uint8), 0, tag)
        return ""
    whole = np.full(BYTES, 7, np.uint8)
    ALIVE.append(whole)  # MPI reads it, whatever the mutant does with its view
    sent = whole[:]
    seen = weakref.ref(sent)
    transport.send(1, sent)
    del sent
    transport.abort("")
    told = "" if seen() is not None else "its memory was given away"
    naps_until(1)[1]()
    return told


LOOKED = (late_message, given_up, landing, kept)


def harm(make: Callable[[], Any]) -> str:
    """What goes wrong with a module."""
    told = []
    for look in LOOKED:
        told.append(look(make(), next(TAGS)))
        WORLD.Barrier()
    return "; ".join(each for each in told if each)


def main(folder: Path) -> None:
    told = {"": harm(partial(made_of, MODULE, text_of(MODULE)))}
    for mutant in OVER_MPI:
        told[mutant.name] = harm(partial(without, mutant))
    if WORLD.rank == 0:
        (folder / "told.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
