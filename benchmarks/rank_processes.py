"""The processes of a run that was started here: its ranks, below their launcher."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil


def ranks(launcher: subprocess.Popen[Any]) -> list[psutil.Process]:
    """Return those that live now."""
    with suppress(psutil.NoSuchProcess):
        return [each for each in psutil.Process(launcher.pid).children(recursive=True) if _is_rank(each)]
    return []


def rank(launcher: subprocess.Popen[Any], number: int) -> psutil.Process:
    """Return one of them.

    Raises:
        LookupError: if it does not live.
    """
    for each in ranks(launcher):
        with suppress(psutil.NoSuchProcess):
            if each.environ().get("OMPI_COMM_WORLD_RANK") == str(number):
                return each
    raise LookupError(f"rank {number} does not live")


def end(launcher: subprocess.Popen[Any]) -> None:
    """Kill what did not end by itself: the launcher and its ranks, stopped ones too."""
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(launcher.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                child.kill()
    launcher.kill()
    launcher.wait()


def _is_rank(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        words = process.cmdline()
        return "fleet" in words and Path(words[0]).name.startswith("python")
    return False
