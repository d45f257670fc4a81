"""Virtual workers on a device have the bits of stock DDP there, on one trainer, on several, and after a restart.

A plain checkout with torch, NumPy, h5py and pytest runs them on a GPU: `pytest -m gpu tests/gpu`. The same tests run on
the CPU in the full suite, so that they are known to work where nobody has a GPU.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainers.support.side_by_side import run_side_by_side
from tests.warm.starting import python_path
from trainers import Checkpoint, Group, Trainer, read
from trainers.job.single_job import SingleJob, TaskDatasets
from trainers.proof.comparison import compare_checkpoints
from trainers.proof.ddp import DdpJob, train_with_ddp

HERE = Path(__file__).parent
STEPS = 10
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
ON_RIG = {"RIG_DEVICES": "8"}  # one for each process of DDP
CONVOLUTIONS = [("Convolutions", workers) for workers in (2, 3, 8)]
CASES = [*CONVOLUTIONS, ("Residual", 3), ("Halves", 4), ("Attention", 3)]


def accelerator() -> str | None:
    return str(torch.accelerator.current_accelerator()) if torch.accelerator.is_available() else None


@pytest.fixture(params=[pytest.param("cpu", marks=pytest.mark.slow), pytest.param("gpu", marks=pytest.mark.gpu)])
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "cpu":
        return "cpu"
    found = accelerator()
    if found is None:
        pytest.skip("torch sees no GPU here")
    return found.partition(":")[0]


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PYTHONPATH", python_path())
    for name, value in (ENVIRONMENT | ON_RIG).items():
        monkeypatch.setenv(name, value)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def stock() -> Callable[[str, int, str], Checkpoint]:
    """Stock DDP: one process a rank, all on the one GPU where there is only one; each case is trained once."""
    known: dict[Any, Checkpoint] = {}

    def train(task: str, ranks: int, kind: str) -> Checkpoint:
        if (task, ranks, kind) not in known:
            job = DdpJob(f"tests.gpu.device_tasks:{task}", ranks, STEPS, kind, timeout=120)
            known[task, ranks, kind] = train_with_ddp(job)
        return known[task, ranks, kind]

    return train


def alone(task: str, workers: int, kind: str) -> Checkpoint:
    from tests.gpu import device_tasks

    made = getattr(device_tasks, task)()
    trainer = Trainer(made, workers, Group.alone(), kind)
    SingleJob(trainer, TaskDatasets(made), lambda news: None, lambda: False).run(STEPS)
    state = trainer.snapshot()
    assert state is not None
    return state


def together(
    task: str, workers: int, steps: int, kind: str, members: int, folder: Path, *start: Path, way: str = "host"
) -> Path:
    """Train on several trainers; return the checkpoint's path."""
    folder.mkdir()
    words = [task, str(workers), str(steps), kind]
    command = [sys.executable, str(HERE / "device_member.py"), *words]
    rest = [str(members), str(folder), way, *map(str, start)]
    commands = [[*command, str(member), *rest] for member in range(members)]
    run_side_by_side(commands, os.environ, 240)
    return folder / "state.h5"


def assert_equal(got: Checkpoint, wanted: Checkpoint) -> None:
    comparison = compare_checkpoints(got, wanted)
    assert comparison.is_equal, "; ".join(str(difference) for difference in comparison.differences[:5])


@pytest.mark.parametrize(("task", "workers"), CASES)
def test_workers_on_one_device_equal_stock_ddp(
    stock: Callable[[str, int, str], Checkpoint], task: str, workers: int, kind: str
) -> None:
    assert_equal(alone(task, workers, kind), stock(task, workers, kind))


@pytest.mark.parametrize("task", ["Convolutions", "Halves"])
def test_several_trainers_and_a_restart_on_fewer_equal_stock_ddp(
    stock: Callable[[str, int, str], Checkpoint], tmp_path: Path, task: str, kind: str
) -> None:
    half = together(task, 3, STEPS // 2, kind, 3, tmp_path / "three")
    rest = together(task, 3, STEPS, kind, 2, tmp_path / "two", half)
    assert_equal(read(rest), stock(task, 3, kind))


@pytest.mark.parametrize("members", [2, 3])
def test_gradients_that_go_from_device_to_device_equal_stock_ddp(
    stock: Callable[[str, int, str], Checkpoint], tmp_path: Path, members: int, kind: str
) -> None:
    if kind != "cpu" and torch.accelerator.device_count() < members:
        pytest.skip(f"NCCL wants a GPU for each of {members} trainers")
    state = together("Convolutions", 3, STEPS, kind, members, tmp_path / "trained", way="device")
    assert_equal(read(state), stock("Convolutions", 3, kind))


def test_another_number_of_workers_is_told_apart(stock: Callable[[str, int, str], Checkpoint], kind: str) -> None:
    assert not compare_checkpoints(alone("Convolutions", 2, kind), stock("Convolutions", 3, kind)).is_equal


@pytest.mark.gpu
def test_a_device_s_memory_grows_by_the_workers_gradients_alone() -> None:
    found = accelerator()
    if found is None:
        pytest.skip("torch sees no GPU here")
    module = torch.get_device_module(found)
    peaks = []
    for workers in (1, 1, 8):  # the first also loads kernels
        gc.collect()  # the trainer before, whose parts know each other
        module.empty_cache()
        module.reset_peak_memory_stats()
        state = alone("Halves", workers, found)
        peaks.append(module.max_memory_allocated())
    gradients = sum(tensor.nbytes for tensor in state.parameters.values())
    kept = 8 + 1 + 1  # each worker's, their sum where the update reads it, and what backward has made last
    assert peaks[2] <= 1.02 * (peaks[1] + kept * gradients)  # blocks are rounded up
