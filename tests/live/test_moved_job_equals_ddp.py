"""A job of an ensemble that moves between flotillas of 1, 2 and 4 trainers equals stock DDP of that job alone."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import trainers
from tests.live.support import moved_tasks, stock_processes
from tests.live.support.ensembles import Ensemble, RunFolder, counting, mlp, write_ensemble, write_rates
from tests.live.support.processes import run, started

pytestmark = pytest.mark.slow

WORKERS, EPOCHS, SEED = 4, 25, 3
SESSIONS = ("4", "2")  # trainers of each


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    """Five networks for four devices: `moved` begins on one, shares them with `last`, and is alone in the end."""
    task: dict[str, Any] = {"task": {"name": "moved_tasks:Careful"}, "data": None, "optimizer": None, "metrics": []}
    moved = {"name": "moved", **task, "virtual_workers": WORKERS, "batch_size": moved_tasks.Careful.batch_size}
    short = {"virtual_workers": 1, "stop": {"epochs": 1}}
    jobs = [{**moved, "stop": {"epochs": EPOCHS}}, mlp("a", **short), counting("b", **short), mlp("c", **short)]
    jobs.append(mlp("last", virtual_workers=2, stop={"epochs": 2}))
    policy = {"name": "flotilla", "parameters": {"delta": "1000000%"}}
    ensemble = write_ensemble(tmp_path_factory.mktemp("moved"), jobs, policy=policy)
    shutil.copy(moved_tasks.__file__, ensemble.folder)
    rates = {"moved": 1e3, "a": 900.0, "b": 900.0, "c": 900.0, "last": 500.0}
    curves = {job: {1: rate, 2: 1.9 * rate, 4: 3.6 * rate} for job, rate in rates.items()}
    write_rates(ensemble.folder / "rates.json", curves)
    return ensemble


@pytest.fixture(scope="module")
def moved(ensemble: Ensemble) -> RunFolder:
    """Two sessions: the first is stopped while the job has four trainers, the second has two."""
    folder = ensemble.left("run")
    with started(ensemble.plain("run", "--trainers", SESSIONS[0]), ensemble.folder) as running:
        running.wait_for(lambda: widths(folder)[-1:] == [4] or running.process.poll() is not None, "four trainers")
        running.interrupt(signal.SIGINT)
        ended = running.finish()
    assert ended.code == 75, ended.output
    ended = run(ensemble.plain("run", "--trainers", SESSIONS[1]), ensemble.folder)
    assert ended.code == 0, ended.output
    return folder


def widths(folder: RunFolder) -> list[int]:
    """On how many trainers the job was started, one start after another."""
    return [len(event["devices"]) for event in folder.events("started", "moved")]


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory, ensemble: Ensemble) -> list[dict[str, np.ndarray]]:
    """What each process of stock DDP ends with."""
    folder = tmp_path_factory.mktemp("stock")
    program = [sys.executable, stock_processes.__file__]
    rest = [str(number) for number in (WORKERS, SEED, EPOCHS)]
    ranks = [subprocess.Popen([*program, str(rank), *rest, str(folder)]) for rank in range(WORKERS)]
    try:
        assert [process.wait(120) for process in ranks] == [0] * WORKERS
    finally:
        for process in ranks:
            process.kill()
    states = []
    for rank in range(WORKERS):
        with np.load(folder / f"rank-{rank}.npz") as arrays:
            states.append(dict(arrays))
    return states


def test_it_ran_on_one_two_and_four_trainers_beside_others(moved: RunFolder) -> None:
    assert set(widths(moved)) == {1, 2, 4} and widths(moved)[-1] == 2
    rounds = [round_["allocation"] for round_ in moved.summary["rounds"]]
    assert sum(len(allocation) > 1 for allocation in rounds) >= 2


def test_it_moved_in_place_wherever_its_state_was_in_memory(moved: RunFolder) -> None:
    """The first start has no state yet, and the second session finds it on the disk."""
    starts = moved.events("started", "moved")
    assert [event["moved"] for event in starts] == [False, *[True] * (len(starts) - 2), False]
    for stop in moved.events("stopped", "moved"):
        written = [(event["epoch"], event["step"]) for event in moved.events("checkpoint", "moved")]
        if stop["why"] == "policy" and stop["step"]:
            assert (stop["epoch"], stop["step"]) not in written, "a move needs no checkpoint"
        if stop["why"] == "signal":
            assert (stop["epoch"], stop["step"]) in written


def test_its_bits_are_those_of_stock_ddp(moved: RunFolder, stock: list[dict[str, np.ndarray]]) -> None:
    checkpoint = trainers.read(moved.summary["jobs"]["moved"]["checkpoint"])
    assert checkpoint.epoch == EPOCHS
    for rank, wanted in enumerate(stock):
        got = {f"parameter {name}": value for name, value in checkpoint.parameters.items()}
        got.update({f"buffer {name}": value for name, value in checkpoint.workers[rank]["buffers"].items()})
        for index, state in checkpoint.optimizer["state"].items():
            got.update({f"optimizer {index} {name}": value for name, value in state.items()})
        got["random"] = checkpoint.workers[rank]["random"]["torch_cpu"]
        assert got.keys() == wanted.keys()
        differing = [name for name in wanted if got[name].numpy().tobytes() != wanted[name].tobytes()]
        assert not differing, f"virtual worker {rank}: {differing}"
