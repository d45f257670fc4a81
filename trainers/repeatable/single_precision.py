"""Products of float32 in float32: no TF32 on GPUs, no bfloat16 on processors.

torch has an older and a newer set of switches for that. The newer ones win, and torch raises where somebody has set the
newer and asks for the older, so that both are set here.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import torch

_NEWER = ("cuda.matmul", "cudnn", "cudnn.conv", "cudnn.rnn", "mkldnn", "mkldnn.matmul", "mkldnn.conv", "mkldnn.rnn")


def keep_single_precision() -> None:
    """Set all switches, whatever has set them before."""
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    for switch in _newer_switches():
        switch.fp32_precision = "ieee"


def matmul_is_cut() -> bool:
    """Whether GPUs may multiply matrices in TF32."""
    matmul: Any = torch.backends.cuda.matmul
    if hasattr(matmul, "fp32_precision"):  # torch 2.9
        return str(matmul.fp32_precision) not in ("ieee", "none")
    return bool(matmul.allow_tf32)


def _newer_switches() -> Iterator[Any]:
    """The one for everything first: what has none of its own follows it."""
    if hasattr(torch.backends, "fp32_precision"):
        yield torch.backends
        yield from (attrgetter(name)(torch.backends) for name in _NEWER)
