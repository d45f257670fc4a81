"""Collectives, a failing member, a silent one, and groups formed afterwards. Argument: folder. Under mpiexec, 4 ranks.

Each rank writes what it saw to rank-R.json.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mpi4py import MPI

import trainers.messages.mpi
from trainers import Group, PeerFailed, PeerSilent, blocks_of
from trainers.messages.group import GroupNeighbours
from trainers.messages.transport import Pending
from trainers.reduce.ordered_reduce import VirtualRing

WORLD = MPI.COMM_WORLD
ORDER = [2, 0, 3, 1]


def collectives(group: Group) -> dict[str, Any]:
    tensor = torch.arange(5.0) if group.is_master else torch.zeros(5)
    group.bcast(tensor)
    tree: dict[str, Any] = {"a": (1, None), "t": torch.ones(2, dtype=torch.bfloat16)}
    received = group.bcast_tree(tree if group.is_master else None)
    return {
        "index": group.index,
        "bcast": tensor.tolist(),
        "bytes": group.bcast_bytes(b"x" * 3001 if group.is_master else None).decode(),
        "agree": group.agree(-7 if group.is_master else 0),
        "gathered": [part.decode() for part in group.gather_bytes(f"{group.index}".encode() * group.index)],
        "trees": [member["index"] for member in group.gather_trees({"index": group.index})],
        "tree": received["a"] == (1, None) and torch.equal(received["t"], tree["t"]),
    }


def traffic(group: Group, virtual_workers: int, elements: int) -> dict[str, int]:
    """Sum vectors over the ring; count the bytes that this member sends."""
    sent = 0

    class Counted(GroupNeighbours):
        def send(self, outgoing: torch.Tensor) -> Pending:
            nonlocal sent
            sent += outgoing.numel() * outgoing.element_size()
            return super().send(outgoing)

    ring = VirtualRing(blocks_of(virtual_workers, group.size), group.index, Counted(group._transport))
    total = ring.sum([torch.full((elements,), float(rank)) for rank in group.block(virtual_workers)])
    return {"sent": sent, "right": bool((total == sum(range(virtual_workers))).all())}


def failing() -> str:
    """Member 1 raises; the others are in the middle of a collective."""
    try:
        with Group.form(WORLD, ORDER[:3], 20, timeout=60) as group:
            if group.index == 1:
                raise ArithmeticError("the loss is nan")
            group.gather_bytes(bytes(100_000))  # more than MPI sends unasked
            group.agree()
    except PeerFailed as error:
        return f"PeerFailed {error.rank}: {error.text}"
    except ArithmeticError as error:
        return f"raised: {error}"
    return "went on"


def failing_while_waiting_for_data() -> str:
    """Member 0 fails; member 1 does not talk to it but looks now and then, as one does who waits for samples."""
    group = Group.form(WORLD, [1, 3], 30, timeout=60)
    if group.is_master:
        group.abort("out of memory")
        return "aborted"
    try:
        while True:
            group.check()
    except PeerFailed as error:
        return f"PeerFailed {error.rank}: {error.text}"


def landing_late() -> list[int]:
    """Member 1 waits for one of two transfers as member 0 gives up, and then gets what member 0 had sent before."""
    group = Group.form(WORLD, [1, 3], 35, timeout=60)
    rooms = [np.zeros(8, dtype=np.uint8) for _ in range(2)]
    if group.is_master:
        group.abort("out of memory")
        WORLD.Barrier()
        for _ in rooms:
            WORLD.Send(np.ones(8, dtype=np.uint8), 3, 35)
    else:
        pending = [group.transport.receive(0, room) for room in rooms]
        try:
            group.transport.wait(pending[:1])
        except PeerFailed:
            WORLD.Barrier()
        late = [WORLD.Irecv(np.zeros(8, dtype=np.uint8), 1, 35) for _ in rooms]
        end = time.monotonic() + 5
        while not all(each.Test() for each in late) and time.monotonic() < end:
            time.sleep(0.001)
    return [int(room.sum()) for room in rooms]


def silent() -> str:
    """Rank 1 never comes to a group."""
    if WORLD.rank == 1:
        return "elsewhere"
    try:
        Group.form(WORLD, [0, 1, 2, 3], 40, timeout=0.5)
    except PeerSilent as error:
        return f"PeerSilent {list(error.ranks)}"
    return "formed"


def hearing_members_alone() -> str:
    """Rank 2, no member, has left a message with the tag of the group's aborts; then member 0 gives up."""
    if WORLD.rank == 2:
        WORLD.Send(np.ones(8, dtype=np.uint8), 3, 61)
    WORLD.Barrier()
    if WORLD.rank not in (1, 3):
        return ""
    group = Group.form(WORLD, [1, 3], 60, timeout=60)
    if group.is_master:
        group.abort("out of memory")
        return "aborted"
    try:
        group.agree()
    except PeerFailed as error:
        return f"PeerFailed {error.rank}: {error.text}"
    return "went on"


def main(folder: Path) -> None:
    seen: dict[str, Any] = {}
    with Group.form(WORLD, ORDER, 10, timeout=60) as group:
        seen["collectives"] = collectives(group)
        trainers.messages.mpi._LARGEST_MESSAGE = 1000
        seen["in pieces"] = collectives(group)
        seen["traffic"] = traffic(group, 6, 6000)
    if WORLD.rank in ORDER[:3]:
        seen["failing"] = failing()
    if WORLD.rank in (1, 3):
        seen["checking"] = failing_while_waiting_for_data()
    if WORLD.rank in (1, 3):
        seen["landing"] = landing_late()
    else:
        WORLD.Barrier()
    seen["leftover"] = hearing_members_alone()
    seen["silent"] = silent()
    with Group.form(WORLD, [3, 1, 0, 2], 50, timeout=60) as group:
        seen["afterwards"] = group.agree(WORLD.rank)
    (folder / f"rank-{WORLD.rank}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
