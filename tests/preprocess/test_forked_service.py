"""A service is started from a process with threads: nothing that they hold, or once held, makes it stand still."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from preprocess import ServiceError, SharedLoader
from preprocess.samples.errors import RingTimeout
from preprocess.sharing.launch import ServicePlace

FOLDER = Path(__file__).resolve().parent
ADVICE = r"make the loader before threads start, or give the data by name"


class Doubled:
    """A data set that is an object of this process."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return np.full(3, 2 * index, np.int64), index


class Held(Doubled):
    """One that needs a lock which another thread of this process has, so that a copy of the process never gets it."""

    def __init__(self) -> None:
        self._owner = os.getpid()

    def __getitem__(self, index: int) -> tuple[Any, int]:
        if os.getpid() != self._owner:
            threading.Event().wait()
        return super().__getitem__(index)


def group_of(process: psutil.Process) -> int | None:
    try:
        return os.getpgid(process.pid)
    except ProcessLookupError:
        return None


def targets_of(loader: SharedLoader) -> list[int]:
    return sorted(int(target) for _, targets in loader for target in targets)


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("Resized", "object"),
        pytest.param("Summed", "name", marks=pytest.mark.slow),
        pytest.param("Resized", "name", marks=pytest.mark.slow),
        pytest.param("Summed", "object", marks=pytest.mark.slow),
    ],
)
def test_pools_of_threads_are_left_alone(loader_folder: Path, name: str, how: str) -> None:
    command = [sys.executable, str(FOLDER / "jobs" / "pooled_loader.py"), name, how]
    environment = os.environ | {"PYTHONPATH": f"{FOLDER.parents[1]}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert done.stdout.strip() == str([48 * index for index in range(10)]), done.stderr


class HeldOutput(io.StringIO):
    """Output on which another thread of the process has a lock, which a copy of the process never gets."""

    def __init__(self) -> None:
        super().__init__()
        self._owner = os.getpid()

    def flush(self) -> None:
        if os.getpid() != self._owner:
            threading.Event().wait()


def test_output_of_the_parent_is_left_alone(loader_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", HeldOutput())
    monkeypatch.setattr(sys, "stderr", HeldOutput())
    with SharedLoader(Doubled(), 4, linger=0.0, timeout=20.0) as loader:
        assert targets_of(loader) == list(range(10))


def test_named_data_need_no_copy_of_the_process(
    loader_folder: Path, data_values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fork() -> int:
        raise AssertionError("a thread that computes with OpenBLAS may make this stand still")

    monkeypatch.setattr(os, "fork", fork)
    with SharedLoader(data_values, 8, linger=0.0) as loader:
        assert len(list(loader)) == 13


def test_copy_that_does_not_start_is_ended_and_told(loader_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[psutil.Process] = []
    kill_group = os.killpg

    def noted(group: int, number: int) -> None:
        started.extend(process for process in psutil.process_iter() if group_of(process) == group)
        kill_group(group, number)

    parent = os.getpid()

    def log(place: ServicePlace) -> Path:
        if os.getpid() != parent:  # the copy waits for ever
            signal.pause()
        return place.folder / "log"

    monkeypatch.setattr(ServicePlace, "log", property(log))
    monkeypatch.setattr(os, "killpg", noted)
    with pytest.raises(ServiceError, match=rf"the service of 'x' was not ready within 1 s; it is a copy.*{ADVICE}"):
        SharedLoader(Doubled(), 4, name="x", timeout=1.0)
    assert started and not psutil.wait_procs(started, timeout=20)[1]


def test_preprocessor_that_stands_still_is_told_and_ended(loader_folder: Path) -> None:
    told = pytest.raises(RingTimeout, match=rf"from preprocessor 0 \(process \d+\) .*{ADVICE}")
    with SharedLoader(Held(), 4, linger=0.0, timeout=2.0) as loader:
        with told as error:
            list(loader)
        found = re.search(r"process (\d+)", str(error.value))
        assert found is not None
        standing = psutil.Process(int(found[1]))
    assert not psutil.wait_procs([standing], timeout=20)[1]
