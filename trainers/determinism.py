"""What a process must hold still for its results to repeat, set and described in one place.

Levels are EasyScale's (SC'23, 3.3): D0 repeats on the same devices, D1 also on another number of them. Both need the
same settings; D1's ordered reduction and bucket layout are not optional in this package.
"""

from __future__ import annotations

import os
import platform
import warnings
from collections.abc import Mapping

import torch

__all__ = ["ConsistencyWarning", "PinsDiffer", "compare_pins", "pin", "pins"]

LEVELS = ("D0", "D1")
_ENVIRONMENT = (
    "ATEN_CPU_CAPABILITY",
    "ONEDNN_MAX_CPU_ISA",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "CUBLAS_WORKSPACE_CONFIG",
)
_CHOSEN = ("threads", "deterministic", "cudnn_benchmark", "tf32", *_ENVIRONMENT)
"""Pins that a run can set; the others describe the machine and its software."""


class PinsDiffer(ValueError):
    """A checkpoint was made under settings that this process does not have, though it could."""


class ConsistencyWarning(UserWarning):
    """Results from here on may differ in their last bits from those of an uninterrupted run."""


def pin(threads: int | None = None, level: str = "D1") -> None:
    """Hold this process's arithmetic still: deterministic algorithms, no trial of kernels, no TF32, fixed CPU threads.

    Call it before the first work on a GPU, as cuBLAS reads its workspace setting when it starts.
    threads: None leaves torch's number; it changes results and must be the same for a whole job.
    """
    if level not in LEVELS:
        raise ValueError(f"determinism level {level!r} is unknown; choose one of {', '.join(LEVELS)}")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    # It costs time, and nothing here reads uninitialised memory.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    if threads is not None:
        torch.set_num_threads(threads)


def pins(device: torch.device) -> dict[str, str]:
    """Return everything outside the job that its bits depend on, by name, as it is in this process."""
    return {
        "torch": torch.__version__,
        "machine": platform.machine(),
        "device": _device_name(device),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "onednn": str(torch.backends.mkldnn.is_available()),
        "threads": str(torch.get_num_threads()),
        "deterministic": str(torch.are_deterministic_algorithms_enabled()),
        "cudnn_benchmark": str(torch.backends.cudnn.benchmark),
        "tf32": str(torch.backends.cuda.matmul.allow_tf32),
        **{name: os.environ.get(name, "") for name in _ENVIRONMENT},
    }


def compare_pins(saved: Mapping[str, str], current: Mapping[str, str]) -> None:
    """Hold a checkpoint's pins against this process's.

    PinsDiffer where a setting differs, with the mend; ConsistencyWarning where the machine or its software does.
    """
    differing = [name for name in saved if saved[name] != current.get(name)]
    settings = [_sentence(name, saved, current) for name in differing if name in _CHOSEN]
    if settings:
        raise PinsDiffer(
            "the checkpoint was made under other settings: "
            + "; ".join(settings)
            + ". Start with the checkpoint's settings to go on with the same bits"
        )
    if differing:
        warnings.warn(
            "the checkpoint was made on another system: "
            + "; ".join(_sentence(n, saved, current) for n in differing)
            + ". Training goes on, but its last bits may differ from an uninterrupted run's",
            ConsistencyWarning,
            stacklevel=2,
        )


def _sentence(name: str, saved: Mapping[str, str], current: Mapping[str, str]) -> str:
    return f"{name} was {saved[name] or 'unset'} and is {current.get(name) or 'unset'}"


def _device_name(device: torch.device) -> str:
    if device.type == "cpu":
        return "cpu"
    return str(torch.get_device_module(device).get_device_name(device))
