"""A job under torch.distributed, a failing member and a silent one. Arguments: rank, ranks, folder.

Each rank writes what it saw to torch-R.json; the master writes its job's checkpoint to CASE-over-torch.h5.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.trainers.programs.cases import CASES
from tests.trainers.programs.drive import run
from trainers import Group, PeerFailed, PeerSilent, write
from trainers.messages.torch_backend import TorchTransport
from trainers.reduce.device_reduce import Communicators, DeviceReducers
from trainers.reduce.ordered_reduce import OrderedReduce


def collectives(group: Group) -> dict[str, Any]:
    return {
        "bytes": group.bcast_bytes(b"x" * 3001 if group.is_master else None).decode(),
        "gathered": [part.decode() for part in group.gather_bytes(f"{group.index}".encode() * group.index)],
    }


def training(folder: Path, ranks: int) -> None:
    for case in CASES:
        if case.virtual_workers == 3 and case.rule == "sgd":
            for name, reducer in (("torch", OrderedReduce), ("rounds", DeviceReducers(Communicators()))):
                checkpoint = run(case, Group.over(TorchTransport(timeout=60)), reducer=reducer).snapshot()
                if checkpoint is not None:
                    write(folder / f"{case.name}-over-{name}.h5", checkpoint)


def silent(rank: int, ranks: int) -> str:
    """The last rank says nothing to the first."""
    everyone = dist.new_group(list(range(ranks)))
    transport = TorchTransport(everyone, timeout=0.5)
    try:
        if rank == 0:
            Group.over(transport).gather_bytes(b"")
    except PeerSilent as error:
        return f"PeerSilent {list(error.ranks)}"
    return "elsewhere"


def silent_beside(rank: int, ranks: int) -> str:
    """The member after the first sends no gradients."""
    group = Group.over(TorchTransport(dist.new_group(list(range(ranks))), timeout=0.5))
    communicators = Communicators()  # members meet there
    channel = communicators.take(group, torch.device("cpu"))
    channel.connected()
    try:
        if rank == 0:
            channel.exchange([], [torch.zeros(3)])
    except PeerSilent as error:
        return f"PeerSilent {list(error.ranks)}"
    finally:
        dist.barrier()  # until then the channel stays open
    return "elsewhere"


def failing(rank: int, ranks: int, beside: bool) -> str:
    """The last member raises; the others are in the middle of a collective."""
    transport = TorchTransport(dist.new_group(list(range(ranks))), timeout=60)
    try:
        with Group.over(transport) as group:
            communicators = Communicators()  # members meet there
            channel = communicators.take(group, torch.device("cpu")) if beside else None
            if channel is not None:
                channel.connected()
            if rank == ranks - 1:
                if channel is not None:
                    channel.abort()
                raise ArithmeticError("the loss is nan")
            if channel is not None:
                channel.exchange([], [torch.zeros(3)])
            group.barrier()
    except PeerFailed as error:
        return f"PeerFailed {error.rank}: {error.text}"
    except ArithmeticError as error:
        return f"raised: {error}"
    return "went on"


def main(rank: int, ranks: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    seen: dict[str, Any] = {"collectives": collectives(Group.over(TorchTransport(timeout=60)))}
    training(folder, ranks)
    for way, beside in (("failing", False), ("failing beside", True)):
        seen[way] = failing(rank, ranks, beside)
        dist.barrier()
    seen["silent"] = silent(rank, ranks)
    dist.barrier()
    seen["silent beside"] = silent_beside(rank, ranks)
    (folder / f"torch-{rank}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
