"""Messages over torch.distributed between ranks that an MPI launcher or torchrun started."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fleet.machine.launch.launched import launch_folder

if TYPE_CHECKING:
    from mpi4py import MPI

    from trainers.messages.torch_backend import TorchTransport

_TIMEOUT_SECONDS = 300.0
_TORCHRUN = ("TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def inside_torchrun(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether torchrun started this process."""
    return all(name in environment for name in _TORCHRUN)


def torchrun_place(environment: Mapping[str, str] = os.environ) -> tuple[int, int, int]:
    """This process's rank, how many there are, and its place on its node."""
    rank, size = int(environment["RANK"]), int(environment["WORLD_SIZE"])
    return rank, size, int(environment.get("LOCAL_RANK", rank))


def transport_of_torchrun() -> TorchTransport:
    """Between all of torchrun's processes."""
    import torch.distributed as dist

    dist.init_process_group("gloo", timeout=timedelta(seconds=_TIMEOUT_SECONDS))
    return _transport()


def transport_of_world(world: MPI.Intracomm, on_one_node: bool) -> TorchTransport:
    """Between all ranks of `world`; MPI only tells them where they meet.

    On one node that is a file in a folder of this user alone, and messages go over the loopback interface. On several
    it is a port on the interface of rank 0's host name, for which torch knows no secret.
    """
    import torch.distributed as dist

    from trainers.messages.torch_backend import joined_store, listening_store, on_loopback

    store, where, told = None, "", np.zeros(4096, dtype=np.uint8)
    if on_one_node:
        os.environ.update(on_loopback())
        where = _own_folder() if world.rank == 0 else ""
    elif world.rank == 0:
        store, where = listening_store(False, _TIMEOUT_SECONDS)
    told[: len(where.encode())] = np.frombuffer(where.encode(), dtype=np.uint8)
    world.Bcast(told, 0)
    where = told.tobytes().rstrip(b"\0").decode()
    if on_one_node:
        store = dist.FileStore(str(Path(where, "store")), world.size)  # type: ignore[attr-defined]
    elif store is None:
        store = joined_store(where, _TIMEOUT_SECONDS)
    timeout = timedelta(seconds=_TIMEOUT_SECONDS)
    dist.init_process_group("gloo", store=store, rank=world.rank, world_size=world.size, timeout=timeout)
    return _transport()


def _own_folder() -> str:
    """A folder that only this user can look into, which goes at the end: that of our own launch, or a new one."""
    for folder in launch_folder():
        return str(folder)
    made = tempfile.mkdtemp(prefix="fleet-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def _transport() -> TorchTransport:
    from trainers.messages.torch_backend import TorchTransport

    return TorchTransport(timeout=_TIMEOUT_SECONDS)
