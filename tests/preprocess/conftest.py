"""What the tests of `preprocess` share: small data, and real MPI jobs."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.preprocess.support.commanded import CommandedLoader, wait_for_end_of_service
from tests.preprocess.support.counting import write_counted
from tests.preprocess.support.pictures import write_pictures
from tests.warm.starting import nursery, python_path, started_cold

__all__ = ["nursery", "started_cold"]

JOBS = Path(__file__).resolve().parent / "jobs"


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Paths of .npy files: 103 training images of 10 x 9, 17 held-out ones, and their targets."""
    folder = tmp_path_factory.mktemp("digits")
    rng = np.random.default_rng(0)
    paths = {}
    for name, count in (("train", 103), ("held_out", 17)):
        for what, array in (
            ("inputs", rng.integers(0, 256, (count, 10, 9), np.uint8)),
            ("targets", rng.integers(0, 10, count)),
        ):
            paths[f"{name}_{what}"] = str(folder / f"{name}_{what}.npy")
            np.save(paths[f"{name}_{what}"], array)
    return paths


@pytest.fixture(scope="session")
def data_values(digits: dict[str, str]) -> dict[str, object]:
    """The data set `digits` with random transforms, as a spec's values."""

    def source(kind: str) -> dict[str, object]:
        return {
            "source": "numpy",
            "arguments": {"inputs": digits[f"{kind}_inputs"], "targets": digits[f"{kind}_targets"]},
        }

    return {
        "name": "digits",
        "train": source("train"),
        "held_out": source("held_out"),
        "transforms": [{"random_crop": {"size": 8, "padding": 2}}, {"flip": {}}],
        "held_out_transforms": [{"center_crop": {"size": 8}}],
    }


@pytest.fixture(scope="session")
def mpi_job() -> Callable[..., str]:
    """Run tests/preprocess/jobs/NAME.py in real MPI ranks and return its output; fails if the job fails."""

    def run(
        name: str, ranks: int, *arguments: str, transport: str = "self,sm,tcp", prefix: tuple[str, ...] = ()
    ) -> str:
        options = ["--oversubscribe", "--bind-to", "none", "--mca", "osc", "^ucx", "--mca", "pml", "ob1"]
        options += ["--mca", "btl", transport, "-n", str(ranks)]
        python = [sys.executable, "-m", "mpi4py", str(JOBS / f"{name}.py"), *arguments]
        launcher = str(Path(sys.executable).parent / "mpiexec")
        environment = os.environ | {
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": python_path(),
        }
        command = [*prefix, launcher, *options, *python]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run


@pytest.fixture
def loader_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of the test's own for services, with the module `counted` in it; tmp_path is too long for a socket."""
    with tempfile.TemporaryDirectory(prefix="loader-") as name:
        folder = Path(name)
        write_counted(folder)
        monkeypatch.setenv("XDG_RUNTIME_DIR", name)
        monkeypatch.syspath_prepend(folder)
        yield folder
        wait_for_end_of_service(folder)  # it may still write there


@pytest.fixture
def start_loader(loader_folder: Path, data_values: dict[str, Any]) -> Iterator[Callable[..., CommandedLoader]]:
    """Start processes with a loader of the digits each, or with other arguments."""
    started = []

    def begin(**changes: Any) -> CommandedLoader:
        defaults = {"data": data_values, "batch_size": 8, "linger": 0.0, "seed": 3}
        started.append(CommandedLoader(defaults | changes, loader_folder))
        return started[-1]

    yield begin
    for loader in started:
        loader.end()


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of many sizes, in folders of two classes."""
    return write_pictures(tmp_path_factory.mktemp("pictures"))
