"""Makes torch.distributed know "rigccl", which joins devices of the rig as NCCL joins GPUs."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

from . import _C

NAME = "rigccl"


def communicator(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    """Return a member's end of a communicator; members that do not come within the time-out are an error."""
    made: Any = dist
    if "RIG_COMMUNICATORS" in os.environ:
        with Path(os.environ["RIG_COMMUNICATORS"]).open("a") as file:
            file.write(f"{os.getpid()} {size}\n")
    if os.environ.get("RIG_CUT") == str(rank):
        raise RuntimeError("rigccl: no device of another process can be reached")
    gloo = made.ProcessGroupGloo(made.PrefixStore("gloo", store), rank, size, timeout)
    places = made.PrefixStore("rig", store)
    places.set_timeout(timeout)
    return _C.communicator(places, rank, size, gloo)


def register() -> None:
    dist.Backend.register_backend(NAME, communicator, devices=["rig"])
