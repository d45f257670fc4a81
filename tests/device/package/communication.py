"""Makes torch.distributed know "rigccl", which joins devices of the rig as NCCL joins GPUs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch.distributed as dist

from . import _C

NAME = "rigccl"


def communicator(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    """Return a member's end of a communicator; members that do not come within the time-out are an error."""
    made: Any = dist
    gloo = made.ProcessGroupGloo(made.PrefixStore("gloo", store), rank, size, timeout)
    places = made.PrefixStore("rig", store)
    places.set_timeout(timeout)
    return _C.communicator(places, rank, size, gloo)


def register() -> None:
    dist.Backend.register_backend(NAME, communicator, devices=["rig"])
