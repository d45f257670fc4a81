"""Messages over torch.distributed between ranks that an MPI launcher or torchrun started."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np

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
    """Between all ranks of `world`; MPI only tells them where they meet, at a port that the system chooses."""
    import torch.distributed as dist

    timeout = timedelta(seconds=_TIMEOUT_SECONDS)
    if on_one_node:
        for name in {name for _, name in socket.if_nameindex()} & {"lo", "lo0"}:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
    host = "127.0.0.1" if on_one_node else socket.gethostname()
    store, address = None, np.zeros(256, dtype=np.uint8)
    if world.rank == 0:
        store = dist.TCPStore(  # type: ignore[attr-defined]
            host, 0, world.size, is_master=True, timeout=timeout, wait_for_workers=False
        )
        text = np.frombuffer(f"{host}:{store.port}".encode(), dtype=np.uint8)
        address[: text.size] = text
    world.Bcast(address, 0)
    if store is None:
        host, _, port = address.tobytes().rstrip(b"\0").decode().rpartition(":")
        store = dist.TCPStore(  # type: ignore[attr-defined]
            host, int(port), world.size, is_master=False, timeout=timeout
        )
    dist.init_process_group("gloo", store=store, rank=world.rank, world_size=world.size, timeout=timeout)
    return _transport()


def _transport() -> TorchTransport:
    from trainers.messages.torch_backend import TorchTransport

    return TorchTransport(timeout=_TIMEOUT_SECONDS)
