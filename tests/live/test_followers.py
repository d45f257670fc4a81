"""Networks that are told whom they follow on a device train as they would alone, whatever comes between."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import trainers
from tests.live.support.ensembles import Ensemble, RunFolder, mlp, write_ensemble
from tests.live.support.processes import FLEET, run, started

JOBS = [f"net-{number:02}" for number in range(12)]


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    """A sweep of short networks on two trainers, saved by time as runs are by default."""
    jobs = [mlp(name, seed=number) for number, name in enumerate(JOBS)]
    return write_ensemble(
        tmp_path_factory.mktemp("followers"), jobs, policy={"name": "local"}, checkpoints={"seconds": 2.0}
    )


@pytest.fixture(scope="module")
def alone(ensemble: Ensemble) -> dict[str, dict[str, torch.Tensor]]:
    """Each network's weights where one trains at a time and is saved at each epoch's end."""
    done = run(ensemble.plain("alone", "--trainers", "1", "--set", "checkpoints.seconds=0"), ensemble.folder)
    assert done.code == 0, done.output
    return weights(ensemble.left("alone"))


def weights(folder: RunFolder) -> dict[str, dict[str, torch.Tensor]]:
    return {name: dict(trainers.read(folder.checkpoints(name)[-1]).parameters) for name in JOBS}


def check(folder: RunFolder, alone: dict[str, dict[str, torch.Tensor]]) -> None:
    assert {name: job["status"] for name, job in folder.summary["jobs"].items()} == dict.fromkeys(JOBS, "done")
    found = weights(folder)
    for name, tensors in alone.items():
        assert all(torch.equal(tensors[key], found[name][key]) for key in tensors), name


def is_under_way(folder: RunFolder, done: int) -> Callable[[], bool]:
    return lambda: len(folder.events("done")) >= done


def test_a_sweep_has_the_bits_of_its_networks_alone(
    ensemble: Ensemble, alone: dict[str, dict[str, torch.Tensor]]
) -> None:
    done = run(ensemble.plain("sweep", "--trainers", "2"), ensemble.folder)
    assert done.code == 0, done.output
    check(ensemble.left("sweep"), alone)


@pytest.mark.parametrize("times", [1, 4])
@pytest.mark.parametrize("how", ["signal", "kill"])
def test_what_ends_between_followers_goes_on(
    ensemble: Ensemble, alone: dict[str, dict[str, torch.Tensor]], how: str, times: int
) -> None:
    out = f"{how}-{times}"
    folder = ensemble.left(out)
    with started(ensemble.plain(out, "--trainers", "2"), ensemble.folder) as it:
        it.wait_for(is_under_way(folder, times), "networks to be done")
        if how == "signal":
            it.process.send_signal(signal.SIGTERM)
            assert it.finish().code in (0, 75)
        else:
            it.kill()
    done = run(ensemble.plain(out, "--trainers", "2"), ensemble.folder)
    assert done.code == 0, done.output
    check(folder, alone)


def test_a_follower_that_is_stopped_by_name_leaves_the_others_as_they_are(
    ensemble: Ensemble, alone: dict[str, dict[str, torch.Tensor]], tmp_path: Path
) -> None:
    folder = ensemble.left("named")
    with started(ensemble.plain("named", "--trainers", "2"), ensemble.folder) as it:
        it.wait_for(is_under_way(folder, 1), "a network to be done")
        stopped = [name for name in JOBS if name not in {each["job"] for each in folder.events("started")}][:4]
        words = run([*FLEET, "stop", "named", *stopped], ensemble.folder)
        assert it.finish().code == 0, words.output
    left = {name for name, job in folder.summary["jobs"].items() if job["status"] != "done"}
    assert left <= set(stopped)
    if left:
        assert run([*FLEET, "stop", "named", *sorted(left), "--undo"], ensemble.folder).code == 0
        assert run(ensemble.plain("named", "--trainers", "2"), ensemble.folder).code == 0
    check(folder, alone)
