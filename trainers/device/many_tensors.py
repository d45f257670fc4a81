"""Many small tensors copied together: a device makes one kernel of those of one type, instead of one of each."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def copy_all(to: Sequence[Tensor], origin: Sequence[Tensor]) -> None:
    """Copy each of `origin` into the one of `to` in its place."""
    if to:  # many networks have no buffers, and each turn asks
        _copy_all(to, origin)


@torch.no_grad()
def _copy_all(to: Sequence[Tensor], origin: Sequence[Tensor]) -> None:
    for dtype in dict.fromkeys(tensor.dtype for tensor in to):
        chosen = [place for place, tensor in enumerate(to) if tensor.dtype == dtype]
        torch._foreach_copy_([to[place] for place in chosen], [origin[place] for place in chosen])


@torch.no_grad()
def copies_of(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return a copy of each."""
    copies = [torch.empty_like(tensor) for tensor in tensors]
    copy_all(copies, tensors)
    return copies
