"""How a process computes on a device, set before each timed run, as ways to step take turns in one process.

What a trainer pins when it is made does not last here: each way brings its own setting, the same for all that are
compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch

_SWITCHES = ("cuda.matmul", "cudnn", "cudnn.conv", "cudnn.rnn", "mkldnn", "mkldnn.matmul", "mkldnn.conv")
"""Those of mkldnn are for Intel's GPUs."""


@dataclass(frozen=True)
class Arithmetic:
    """precision: "fp32" (IEEE 754's), "TF32", or "bf16" under autocast. free: any kernels, those that trials favour."""

    precision: str
    free: bool = False

    @property
    def autocast(self) -> str | None:
        """As a task's."""
        return "bfloat16" if self.precision == "bf16" else None

    def apply(self) -> None:
        """Let this process compute so from now on."""
        torch.use_deterministic_algorithms(not self.free)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        torch.backends.cudnn.deterministic = not self.free
        torch.backends.cudnn.benchmark = self.free
        if hasattr(torch.backends, "fp32_precision"):
            for switch in _newer_switches():
                switch.fp32_precision = "tf32" if self.precision == "TF32" else "ieee"
        else:
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = self.precision == "TF32"


def _newer_switches() -> Iterator[Any]:
    yield from (attrgetter(name)(torch.backends) for name in _SWITCHES)
