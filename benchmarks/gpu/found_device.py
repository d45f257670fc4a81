"""The device that is measured, as a process of its own sees it: whoever asks holds no memory there, and cannot hang.

python -m benchmarks.gpu.found_device    prints what it finds as JSON
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

PATIENCE_SECONDS = 120.0


class NoDevice(RuntimeError):
    """There is no accelerator that torch can use; the text says why, and the mend where there is one."""


@dataclass(frozen=True)
class FoundDevice:
    """What is known of it.

    kind, name: torch's name, and its maker's. count: how many there are. memory: bytes of one. versions: by name.
    """

    kind: str
    name: str
    count: int
    memory: int
    versions: Mapping[str, str]

    @property
    def is_real(self) -> bool:
        """Whether its figures are those of a device, and not of the rig on a CPU."""
        return self.kind != "rig"


def find() -> FoundDevice:
    """Ask a process of its own. NoDevice."""
    command = [sys.executable, "-m", "benchmarks.gpu.found_device"]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        raise NoDevice(f"torch has not found out in {PATIENCE_SECONDS:g} s which devices there are") from None
    if ended.returncode:
        raise NoDevice((ended.stderr.strip().splitlines() or ["torch did not say which devices there are"])[-1])
    return FoundDevice(**json.loads(ended.stdout.splitlines()[-1]))


def _look() -> FoundDevice:
    import torch

    from fleet.machine.devices import NoSuchDevice, found_kind, model_of

    try:
        kind = found_kind()
    except NoSuchDevice as error:
        raise NoDevice(str(error)) from None
    if kind == "cpu":
        raise NoDevice("torch sees no accelerator here, and this benchmark is of one; try it with --device rig")
    properties: Any = torch.get_device_module(kind).get_device_properties(0)
    memory = int(getattr(properties, "total_memory", 0))
    return FoundDevice(kind, model_of(kind), torch.accelerator.device_count(), memory, _versions(kind))


def _versions(kind: str) -> dict[str, str]:
    import torch

    from trainers.repeatable.determinism import device_pins

    pins = {name: value for name, value in device_pins(torch.device(kind, 0)).items() if value}
    host = {"python": platform.python_version(), "processor": platform.processor() or platform.machine()}
    nccl = {"nccl": ".".join(map(str, torch.cuda.nccl.version()))} if kind == "cuda" else {}  # RCCL's, with ROCm
    return {"torch": torch.__version__, **pins, **nccl, **host, "cores": str(os.cpu_count())}


if __name__ == "__main__":
    try:
        print(json.dumps(asdict(_look())))
    except NoDevice as error:
        sys.exit(str(error))
