"""`--reduce horovod`: weights within rounding of those over MPI, and what is told where Horovod is not."""

from __future__ import annotations

import json
import signal
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from fleet.commands.cli import app
from tests.live.support.processes import FLEET, MPIEXEC, Ended, run, started
from trainers import read

TASKS = "tests.commands.support.small_tasks"
STEPS = 7  # beyond the end of the first epoch
TOLD = "within rounding, not bit for bit"

needs_horovod = pytest.mark.skipif(
    find_spec("horovod") is None, reason="no Horovod here: batch_scripts/install_horovod.sh"
)


def words(task: str, checkpoint: str, steps: int, *more: object) -> list[str]:
    job = ["train", f"{TASKS}:{task}", "--virtual-workers", "3", "--steps", str(steps), "--checkpoint", checkpoint]
    return [*job, "--reduce", "horovod", *map(str, more)]


def fleet_train(folder: Path, task: str, checkpoint: str, steps: int, *more: object) -> Ended:
    return run([*FLEET, *words(task, checkpoint, steps, *more)], folder)


@pytest.fixture(scope="module")
def over_mpi(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The job's state with sums in the order of DDP."""
    folder = tmp_path_factory.mktemp("mpi")
    ended = fleet_train(folder, "Small", "mpi.h5", STEPS, "--trainers", 1, "--reduce", "mpi")
    assert ended.code == 0, ended.output
    return folder / "mpi.h5"


def assert_close(left: Path, right: Path) -> None:
    mine, theirs = read(left), read(right)
    assert mine.steps == theirs.steps
    for name, weights in theirs.parameters.items():
        torch.testing.assert_close(mine.parameters[name], weights, rtol=1e-4, atol=1e-6)
    for one, other in zip(mine.history, theirs.history):
        assert one == pytest.approx(other, rel=1e-4)


@needs_horovod
@pytest.mark.slow
@pytest.mark.parametrize("trainers", [1, 2, 3])
def test_weights_are_those_over_mpi_within_rounding(tmp_path: Path, over_mpi: Path, trainers: int) -> None:
    ended = fleet_train(tmp_path, "Small", "half.h5", 3, "--trainers", trainers)
    assert ended.code == 0, ended.output
    assert (TOLD in ended.output) == (trainers > 1), "one trainer alone adds in order"
    launcher = [*MPIEXEC, "-n", str(trainers), *FLEET] if trainers > 1 else FLEET
    ended = run([*launcher, *words("Small", "whole.h5", STEPS, "--resume", "half.h5")], tmp_path)
    assert ended.code == 0, ended.output
    assert_close(tmp_path / "whole.h5", over_mpi)
    compared = run([*FLEET, "compare", "whole.h5", str(over_mpi)], tmp_path)
    assert compared.code == (trainers > 1), compared.output


@needs_horovod
@pytest.mark.slow
def test_interrupted_job_goes_on(tmp_path: Path) -> None:
    with started([*FLEET, *words("Small", "left.h5", 10**7, "--trainers", 2)], tmp_path) as running:
        running.wait_for(
            lambda: "epoch 1 done" in running.output or running.process.poll() is not None, "the first epoch"
        )
        running.interrupt(signal.SIGINT)
        ended = running.finish()
    assert ended.code == 75, ended.output
    more = read(tmp_path / "left.h5").steps + 3
    ended = fleet_train(tmp_path, "Small", "on.h5", more, "--trainers", 3, "--resume", "left.h5")
    assert ended.code == 0 and read(tmp_path / "on.h5").steps == more, ended.output


@needs_horovod
@pytest.mark.slow
def test_error_of_the_users_code_is_shown_where_it_is(tmp_path: Path) -> None:
    ended = fleet_train(tmp_path, "Torn", "x.h5", STEPS, "--trainers", 2)
    assert ended.code == 1, ended.output
    assert "small_tasks.py" in ended.output and "KeyError: 'page 7 is torn out'" in ended.output


@needs_horovod
@pytest.mark.slow
def test_killed_process_ends_all(tmp_path: Path) -> None:
    ended = fleet_train(tmp_path, "Fatal", "x.h5", STEPS, "--trainers", 2)
    assert ended.code == 70 and "Killed" in ended.output, ended.output


# Without Horovod, or with one that does not fit.

COMMANDS = [words("Small", "x.h5", STEPS, "--trainers", 2), ["run", "ensemble.yaml", "--reduce", "horovod"]]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_missing_horovod_is_told_with_its_mend_before_anything_starts(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fleet.machine.horovod.find_spec", lambda name: None)
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2, result.output
    told = result.output + capsys.readouterr().err
    assert told.count("fleet: ") == 1 and "Traceback" not in told
    for part in (
        "--reduce horovod",
        f"{sys.executable} has none",
        "batch_scripts/install_horovod.sh",
        "leave --reduce out",
    ):
        assert part in told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("built_for", "library", "said"),
    [("1.13.0+cpu", True, "built for torch 1.13.0+cpu, not"), (version("torch"), False, "built without torch")],
)
def test_horovod_that_does_not_fit_is_told(
    built_for: str, library: bool, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "horovod"
    (package / "torch").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "metadata.json").write_text(json.dumps({"pytorch": built_for}))
    if library:
        (package / "torch" / "mpi_lib_v2.so").touch()
    monkeypatch.delitem(sys.modules, "horovod", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    result = CliRunner().invoke(app, COMMANDS[0])
    assert result.exit_code == 2 and said in result.output, result.output


@pytest.mark.parametrize(
    ("options", "variables", "said"),
    [
        (["--ddp"], {}, "stock DDP adds gradients itself"),
        (
            [],
            {"TORCHELASTIC_RUN_ID": "x", "RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "here", "MASTER_PORT": "1"},
            "torchrun started this process",
        ),
    ],
    ids=["ddp", "torchrun"],
)
def test_what_horovod_cannot_is_told(
    options: list[str], variables: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    result = CliRunner().invoke(app, [*COMMANDS[0], *options])
    assert result.exit_code == 2 and said in result.output, result.output
