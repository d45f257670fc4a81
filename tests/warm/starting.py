"""The nursery of one pytest process, and what its tests give to the processes that they start."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
READY_SECONDS = 120.0
RIG_FOLDER = "FLEET_TEST_RIG"
"""The variable that names the folder of the compiled rig, where tests use it (see tests/conftest.py)."""
RIG_SOCKET = "FLEET_TEST_RIG_SOCKET"
"""The variable that names the socket of the one nursery that knows the rig, where workers share it."""


def python_path(*folders: str | Path) -> str:
    """PYTHONPATH of the processes that tests start; those that start with it are forked by the nursery."""
    known = [Path(__file__).with_name("start"), ROOT, os.environ.get(RIG_FOLDER), *folders]
    return os.pathsep.join(str(folder) for folder in known if folder)


@contextmanager
def _started(**variables: str) -> Iterator[tuple[dict[str, str], Callable[[], bool]]]:
    """A nursery that gets ready: what a process needs to be forked by it, and whether it lives."""
    with tempfile.TemporaryDirectory(prefix="fleet-warm-") as folder:
        path = str(Path(folder) / "socket")
        with _becoming("tests.warm.nursery", path, **variables) as process:
            yield {"FLEET_WARM": path, "PYTHONPATH": python_path(), **variables}, lambda: process.poll() is None


@contextmanager
def _becoming(module: str, path: str, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that becomes a nursery, whose socket has this path."""
    libraries = f"{sys.prefix}/lib"  # where mpiexec has its ranks look
    python = {"PYTHONPATH": python_path(), "OMP_NUM_THREADS": "1", "LD_LIBRARY_PATH": libraries}
    command, environment = [sys.executable, "-m", module, path], os.environ | python | variables
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def rig_warming() -> Iterator[None]:
    """The one nursery that knows the rig, for all workers of a session; nobody waits for it yet."""
    with _becoming("tests.device.warming", os.environ[RIG_SOCKET]):
        yield


@contextmanager
def rig_warmed(folder: Path) -> Iterator[dict[str, str]]:
    """The same, once it is ready, or this process's own; gives what a process needs to be forked by it.

    folder: of the compiled rig.
    """
    if RIG_SOCKET not in os.environ:
        with warmed(PYTHONPATH=python_path(folder)) as given:
            yield given
        return
    _await(os.environ[RIG_SOCKET])
    yield {"FLEET_WARM": os.environ[RIG_SOCKET], "PYTHONPATH": python_path(folder)}


@contextmanager
def warmed(**variables: str) -> Iterator[dict[str, str]]:
    """A nursery with these variables, such as libraries to load; gives what a process needs to be forked by it."""
    with _started(**variables) as (given, lives):
        _await(given["FLEET_WARM"], lives)
        yield given


def _await(path: str, lives: Callable[[], bool] = lambda: True) -> None:
    """Wait until the nursery of this socket is ready, as long as it lives."""
    deadline = time.monotonic() + READY_SECONDS
    while not Path(path).exists() and lives() and time.monotonic() < deadline:
        time.sleep(0.05)


@pytest.fixture(autouse=True, scope="session")
def nursery() -> Iterator[None]:
    """Processes that start with `python_path()` are forked, unless the nursery is not ready after a while.

    Each folder of tests that imports it has its own fixture; the first of a session serves them all, unless the workers
    of a session share one (see tests/conftest.py).
    """
    if "FLEET_WARM" in os.environ:
        _await(os.environ["FLEET_WARM"])
        yield
        return
    with warmed() as given:
        before = dict(os.environ)
        os.environ |= given
        yield
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture(scope="session")
def pinned() -> Iterator[dict[str, str]]:
    """What processes need to be forked that keep to an instruction set (D2): they need not begin again."""
    from trainers.repeatable.instruction_sets import environment  # imports torch

    with warmed(**environment("avx2")) as given:
        yield given


@pytest.fixture
def started_cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of how processes start, stop and die: they start as they do elsewhere."""
    monkeypatch.delenv("FLEET_WARM", raising=False)
