"""What `fleet train` says of a task that fails: what, on which ranks, in which of its lines, and the mend, once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fleet.commands.train import run_job
from tests.commands.support.settings import kept_settings
from tests.commands.test_train_command import options
from tests.live.support.processes import FLEET, MPIEXEC, Ended, run

TASKS = "tests.commands.support.failing_tasks"
ANYWHERE: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "own ranks": (FLEET, ("--trainers", "3")),
    "mpiexec": ([*MPIEXEC, "-n", "3", *FLEET], ()),
    "ddp": (FLEET, ("--ddp",)),
}


def fails(folder: Path, task: str, program: list[str], *more: str) -> Ended:
    words = ["train", task, "--virtual-workers", "3", "--steps", "7", "--checkpoint", "x.h5", *more]
    ended = run([*program, *words], folder)
    assert ended.code not in (0, 70) and not (folder / "x.h5").exists(), ended.output
    assert not any(room in ended.output for room in ("Traceback", "/trainers/", "/fleet/commands")), ended.output
    return ended


@pytest.mark.parametrize("where", ANYWHERE)
def test_an_error_of_all_ranks_is_told_once_with_the_lines_of_the_task(tmp_path: Path, where: str) -> None:
    program, more = ANYWHERE[where]
    said = fails(tmp_path, f"{TASKS}:Narrow", program, *more).output
    assert said.count("mat1 and mat2 shapes cannot be multiplied") == said.count("it was raised in") == 1
    assert "self.layer(pictures.flatten(1))" in said and "mend that and run the same command again" in said
    told = r"the job failed on (all 3 ranks|ranks \d and \d|rank \d): RuntimeError"  # a late one hears of the others
    assert re.search(told, said) and said.count("the job failed") == 1


@pytest.mark.parametrize("where", ["mpiexec", "ddp"])
def test_an_error_of_one_rank_is_told_by_it_alone(tmp_path: Path, where: str) -> None:
    program, more = ANYWHERE[where]
    said = fails(tmp_path, "tests.commands.support.small_tasks:Torn", program, *more).output
    assert said.count("page 7 is torn out'\n") == 1 and "the job failed on rank " in said
    assert "a member of this group" not in said


def test_layers_of_torch_alone_are_told_without_lines_of_fleet(tmp_path: Path) -> None:
    said = fails(tmp_path, f"{TASKS}:Stacked", FLEET, "--trainers", "1").output
    assert "the job failed: RuntimeError: mat1 and mat2" in said and "nn/modules/linear.py" in said


@pytest.mark.parametrize("more", [("--trainers", "1"), ("--ddp",)], ids=["one", "ddp"])
def test_code_that_ends_the_process_is_told_of(tmp_path: Path, more: tuple[str, ...]) -> None:
    ended = fails(tmp_path, f"{TASKS}:Leaving", FLEET, *more)
    assert ended.code == 1 and "SystemExit: 0 (its code tried to end the process)" in ended.output
    assert "sys.exit(0)" in ended.output


WRONG = {
    "Sized": ("Sized cannot be made", "'width'", "give each one a default"),
    "NoModel": ("model() gives None, and must give the network", "is its `return` missing?"),
    "NoOptimizer": ("optimizer(model) gives a Sequential, and must give one of torch.optim",),
    "Flowing": ("dataset(True) gives a _Flow, and must give a map-style data set",),
    "Plateau": ("ReduceLROnPlateau needs a metric", "CosineAnnealingLR"),
    "Meaning": ("gives 0.5 as 'accuracy', and must give {name: (sum over the samples, number of samples)}",),
}


@pytest.mark.parametrize("task", WRONG)
def test_mistake_is_told_with_its_mend(task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with kept_settings():
        assert run_job(options(tmp_path, f"{TASKS}:{task}")) == 2
    said = capsys.readouterr().err
    assert said.startswith("fleet: ") and said.count("\n") == 1
    assert all(word in said for word in WRONG[task]), said
