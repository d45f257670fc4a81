"""Data and a network at which one rank hangs: HANG says whose and how ("trainer: loops"), HANG_FILE gets word of it."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import time
from pathlib import Path
from typing import NoReturn, SupportsFloat

import numpy as np
import torch

from benchmarks.clouds import WIDTH, Clouds

SAMPLES_BEFORE, STEPS_BEFORE = 2500, 150


class HangingClouds(Clouds):
    """The first preprocessor to read its 2500th sample hangs."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self._given = 0

    def __getitem__(self, index: int) -> tuple[np.ndarray, SupportsFloat]:  # type: ignore[type-arg]
        self._given += 1
        _hang("preprocessor", self._given == SAMPLES_BEFORE)
        return super().__getitem__(index)


class HangingNet(torch.nn.Module):
    """The first trainer to make its 150th pass hangs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(WIDTH, 3)
        self._calls = 0

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        """`points` is float of shape (batch, 16); returns logits of shape (batch, 3)."""
        self._calls += points.device.type != "meta"
        _hang("trainer", self._calls == STEPS_BEFORE)
        return torch.as_tensor(self.layer(points))


def _hang(who: str, now: bool) -> None:
    """Hang, if it is the turn of whom HANG names, and no other rank was first."""
    wanted, _, kind = os.environ["HANG"].partition(": ")
    if now and wanted == who:
        try:
            Path(os.environ["HANG_FILE"] + ".first").touch(exist_ok=False)
        except FileExistsError:
            return
        hangs_here(kind)


def hangs_here(kind: str) -> NoReturn:
    """Say when and who, then never come back."""
    entered = time.time()
    note = Path(os.environ["HANG_FILE"])
    note.with_suffix(".new").write_text(
        json.dumps({"at": entered, "rank": int(os.environ["OMPI_COMM_WORLD_RANK"]), "process": os.getpid()})
    )
    note.with_suffix(".new").rename(note)
    while kind != "loops" and time.time() < entered + 0.5:
        pass  # whoever cannot speak for itself is shown where it was seen, and looks are a quarter of a second apart
    if kind == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if kind == "holds the lock":
        ctypes.PyDLL(None).sleep(1000)
    while True:
        pass
