"""The nursery of one pytest process, and what its tests give to the processes that they start."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
READY_SECONDS = 60.0
PYTHON_PATH = f"{Path(__file__).with_name('start')}{os.pathsep}{ROOT}"


@contextmanager
def warmed(**variables: str) -> Iterator[dict[str, str]]:
    """A nursery with these variables, such as libraries to load; gives what a process needs to be forked by it."""
    with tempfile.TemporaryDirectory(prefix="fleet-warm-") as folder:
        path = str(Path(folder) / "socket")
        libraries = f"{sys.prefix}/lib"  # where mpiexec has its ranks look
        python = {"PYTHONPATH": PYTHON_PATH, "OMP_NUM_THREADS": "1", "LD_LIBRARY_PATH": libraries}
        command = [sys.executable, "-m", "tests.warm.nursery", path]
        environment = os.environ | python | variables
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment, cwd=ROOT) as process:
            deadline = time.monotonic() + READY_SECONDS
            while not Path(path).exists() and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
            try:
                yield {"FLEET_WARM": path, "PYTHONPATH": PYTHON_PATH, **variables}
            finally:
                process.kill()


@pytest.fixture(autouse=True, scope="session")
def nursery() -> Iterator[None]:
    """Processes that start with PYTHON_PATH are forked, unless the nursery is not ready after a while.

    Each folder of tests that imports it has its own fixture; the first of a session serves them all.
    """
    if "FLEET_WARM" in os.environ:
        yield
        return
    with warmed() as given:
        before = dict(os.environ)
        os.environ |= given
        yield
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture
def started_cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of how processes start, stop and die: they start as they do elsewhere."""
    monkeypatch.delenv("FLEET_WARM", raising=False)
