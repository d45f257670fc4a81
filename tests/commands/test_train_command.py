"""`fleet train` as a user calls it: the bits of stock DDP, interrupts, and what may be wrong."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from fleet.commands.train import run_job
from fleet.commands.train_options import TrainOptions
from tests.commands.support.settings import kept_settings
from tests.live.support.processes import FLEET, MPIEXEC, Ended, Running, run, started
from trainers import read, write
from trainers.proof.comparison import compare_checkpoints

ROOT = Path(__file__).parents[2]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
NAMES = ["own ranks", "mpiexec", "torchrun"]
TASKS = "tests.commands.support.small_tasks"
STEPS = 7  # beyond the end of the first epoch


def train_words(task: str, checkpoint: str, steps: int, *more: object) -> list[str]:
    words = ["train", f"{TASKS}:{task}", "--virtual-workers", "3", "--steps", str(steps), "--checkpoint", checkpoint]
    return [*words, *map(str, more)]


def fleet_train(folder: Path, task: str, checkpoint: str, steps: int, *more: object) -> Ended:
    return run([*FLEET, *train_words(task, checkpoint, steps, *more)], folder)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the same job under stock DDP, on one, two and, from a checkpoint on, three trainers."""
    folder = tmp_path_factory.mktemp("made")
    runs: dict[str, tuple[list[str], tuple[object, ...]]] = {
        "ddp.h5": (FLEET, (STEPS, "--ddp")),
        "one.h5": (FLEET, (STEPS, "--trainers", 1)),
        "two.h5": ([*MPIEXEC, "-n", "2", *FLEET], (STEPS,)),
        "half.h5": (FLEET, (3, "--trainers", 1)),
        "three.h5": (FLEET, (STEPS, "--trainers", 3, "--resume", "half.h5")),
    }
    for name, (program, (steps, *more)) in runs.items():
        words = train_words("Small", name, int(str(steps)), *more)
        ended = run([*program, *words], folder)
        assert ended.code == 0, f"{name}: {ended.output}"
        (folder / f"{name}.txt").write_text(ended.output)
    return folder


@pytest.mark.parametrize("name", ["one.h5", "two.h5", "three.h5"])
def test_any_number_of_trainers_has_the_bits_of_stock_ddp(made: Path, name: str) -> None:
    result = compare_checkpoints(read(made / name), read(made / "ddp.h5"))
    assert result.is_equal, result.differences[0]
    assert sum(section.elements for section in result.sections) > 300_000


@pytest.mark.parametrize(("task", "tensors"), [("Averaging", 11), ("Adversarial", 1), ("Ragged", 0)])
def test_what_a_task_does_itself_has_the_bits_of_stock_ddp(tmp_path: Path, task: str, tensors: int) -> None:
    fleet_runs: dict[str, tuple[object, ...]] = {
        "ddp.h5": (STEPS, "--ddp"),
        "half.h5": (3, "--trainers", 2),
        "whole.h5": (STEPS, "--trainers", 1, "--resume", "half.h5"),
    }
    for name, (steps, *more) in fleet_runs.items():
        ended = fleet_train(tmp_path, task, name, int(str(steps)), *more)
        assert ended.code == 0, f"{name}: {ended.output}"
    result = compare_checkpoints(read(tmp_path / "whole.h5"), read(tmp_path / "ddp.h5"))
    assert result.is_equal, result.differences[0]
    assert next(part.tensors for part in result.sections if part.name == "task") == tensors
    histories = [read(tmp_path / name).history for name in ("ddp.h5", "whole.h5")]
    assert histories[0] == histories[1] and len(histories[0]) == 1


def test_resumed_job_differs_from_where_it_began(made: Path) -> None:
    result = compare_checkpoints(read(made / "half.h5"), read(made / "three.h5"))
    assert {difference.name.split("/")[0] for difference in result.differences} >= {"parameters", "buffers", "progress"}


def test_held_out_samples_are_measured_alike_and_told(made: Path) -> None:
    histories = [read(made / name).history for name in ("ddp.h5", "one.h5", "two.h5", "three.h5")]
    assert all(history == histories[0] for history in histories)
    assert set(histories[0][0]) == {"loss", "test_loss", "accuracy"}
    for name in ("ddp.h5", "one.h5", "two.h5", "three.h5"):
        told = re.findall(r"epoch 1 done at step 4: .*test_loss (\S+),", (made / f"{name}.txt").read_text())
        assert told == [f"{histories[0][0]['test_loss']:.4g}"]


@pytest.mark.slow
@pytest.mark.parametrize("launcher", [FLEET, [*MPIEXEC, "-n", "2", *FLEET], [*TORCHRUN, "-m", "fleet"]], ids=NAMES)
def test_torch_carries_the_same_bits(tmp_path: Path, made: Path, launcher: list[str]) -> None:
    words = [*launcher, *train_words("Small", "x.h5", STEPS, "--trainers", 2, "--reduce", "torch")]
    ended = run(words, tmp_path)
    assert ended.code == 0, ended.output
    result = compare_checkpoints(read(tmp_path / "x.h5"), read(made / "ddp.h5"))
    assert result.is_equal, result.differences[0]


@pytest.mark.slow
@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is a GPU here")
def test_gradients_between_gpus_need_gpus(tmp_path: Path) -> None:
    ended = fleet_train(tmp_path, "Small", "x.h5", STEPS, "--trainers", "2", "--reduce", "nccl")
    assert ended.code == 2 and ended.output.count("this job trains on the CPU") == 1 and "Traceback" not in ended.output


@pytest.mark.slow
def test_accumulation_and_clipping_have_the_bits_of_stock_ddp(tmp_path: Path, made: Path) -> None:
    for name, option in (("ddp.h5", ("--ddp",)), ("one.h5", ("--trainers", "1"))):
        assert fleet_train(tmp_path, "Parts", name, 3, *option).code == 0
    result = compare_checkpoints(read(tmp_path / "one.h5"), read(tmp_path / "ddp.h5"))
    assert result.is_equal, result.differences[0]
    assert not compare_checkpoints(read(tmp_path / "one.h5"), read(made / "half.h5")).is_equal


@pytest.mark.parametrize(
    "trainers, number",
    [
        pytest.param(1, signal.SIGUSR1, id="alone, SIGUSR1", marks=pytest.mark.slow),
        pytest.param(2, signal.SIGINT, id="two trainers, ctrl-C", marks=pytest.mark.slow),
    ],
)
def test_interrupted_job_goes_on_with_the_same_bits(tmp_path: Path, trainers: int, number: int) -> None:
    words = [*FLEET, *train_words("Small", "left.h5", 10**7, "--trainers", trainers)]
    with started(words, tmp_path) as running:
        wait_for_first_epoch(running)
        running.interrupt(number)
        ended = running.finish()
    assert ended.code == 75, ended.output
    steps = read(tmp_path / "left.h5").steps
    assert f"stopped after step {steps} of {10**7}; go on with --resume left.h5" in ended.output
    more = steps + 5
    for name, options in (("on.h5", ("--resume", "left.h5", "--trainers", 1)), ("whole.h5", ("--trainers", 1))):
        assert fleet_train(tmp_path, "Small", name, more, *options).code == 0
    result = compare_checkpoints(read(tmp_path / "on.h5"), read(tmp_path / "whole.h5"))
    assert result.is_equal, result.differences[0]


def wait_for_first_epoch(running: Running) -> None:
    running.wait_for(lambda: "epoch 1 done" in running.output or running.process.poll() is not None, "the first epoch")


@pytest.mark.slow
def test_interrupted_stock_ddp_leaves_nothing(tmp_path: Path) -> None:
    words = [*FLEET, *train_words("Small", "left.h5", 10**7, "--ddp")]
    with started(words, tmp_path) as running:
        wait_for_first_epoch(running)
        running.interrupt(signal.SIGTERM)
        ended = running.finish()
    assert ended.code == 75, ended.output
    assert not (tmp_path / "left.h5").exists()


@pytest.mark.parametrize(
    "option",
    [
        pytest.param(("--trainers", "1"), marks=pytest.mark.slow),
        ("--trainers", "2"),
        pytest.param(("--ddp",), marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_error_of_the_users_code_is_shown_where_it_is(tmp_path: Path, option: tuple[str, ...]) -> None:
    ended = fleet_train(tmp_path, "Torn", "x.h5", STEPS, *option)
    assert ended.code == 1, ended.output
    assert "small_tasks.py" in ended.output and "KeyError: 'page 7 is torn out'" in ended.output
    assert not (tmp_path / "x.h5").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("option", "code"), [(("--trainers", "2"), 70), (("--ddp",), 1)], ids=["trainers", "ddp"])
def test_killed_process_ends_all(tmp_path: Path, option: tuple[str, ...], code: int) -> None:
    ended = fleet_train(tmp_path, "Fatal", "x.h5", STEPS, *option)
    assert ended.code == code, ended.output
    assert "killed" in ended.output and "started" not in ended.output


# What is wrong before any process is started, or with the checkpoint: found in this process.


def options(folder: Path, task: str = f"{TASKS}:Small", **changed: Any) -> TrainOptions:
    values: dict[str, Any] = {"virtual_workers": 3, "steps": STEPS, "trainers": 1, "checkpoint": folder / "x.h5"}
    return TrainOptions(task, **{**values, **changed})


Changes = Callable[[Path], dict[str, Any]]
WRONG: dict[str, tuple[Changes, tuple[str, ...]]] = {
    "no module": (
        lambda _: {"task": "tests.commands.support.smal_tasks:Small"},
        ("'tests.commands.support.smal_tasks'", f"{TASKS}:Small"),
    ),
    "no class": (lambda _: {"task": f"{TASKS}:Smal"}, ("'Smal'", f"{TASKS}:Small")),
    "no task": (lambda _: {"task": f"{TASKS}:Noisy"}, ("no model", "no optimizer")),
    "no workers": (lambda _: {"virtual_workers": 0}, ("--virtual-workers 0",)),
    "no steps": (lambda _: {"steps": 0}, ("--steps 0",)),
    "too many trainers": (lambda _: {"trainers": 4}, ("4 trainers", "3 virtual workers", "at most 3")),
    "unknown level": (lambda _: {"level": "D9"}, ("D9", "D0, D1, D2")),
    "between GPUs without one": (
        lambda _: {"reduce": "device", "device": "cpu"},
        ("--reduce device", "cpu", "give mpi"),
    ),
    "device that is not known": (lambda _: {"device": "cdua"}, ("--device cdua", "cuda", "xpu")),
    "device that is not here": (lambda _: {"device": "xpu"}, ("--device xpu", "torch finds", "auto or cpu")),
    "folder for a file": (lambda made: {"checkpoint": made}, ("is a folder",)),
    "resume without a file": (lambda made: {"resume": made / "no.h5"}, ("no.h5", "no such file")),
    "resume from no checkpoint": (lambda made: {"resume": made / "ddp.h5.txt"}, ("ddp.h5.txt", "no checkpoint")),
    "steps below the checkpoint's": (lambda made: {"resume": made / "ddp.h5", "steps": 5}, ("--steps 5", "7 steps")),
    "another number of workers": (lambda made: {"resume": made / "half.h5", "virtual_workers": 2}, ("3", "2")),
    "another seed": (lambda made: {"resume": made / "half.h5", "task": f"{TASKS}:Other"}, ("seed", "3", "4")),
    "another optimizer": (lambda made: {"resume": made / "half.h5", "task": f"{TASKS}:Adam"}, ("optimizer", "betas")),
    "other buckets": (lambda made: {"resume": made / "half.h5", "task": f"{TASKS}:Frozen"}, ("buckets", "8", "6")),
    "other buffers": (lambda made: {"resume": made / "half.h5", "task": f"{TASKS}:Untracked"}, ("buffers", "1.")),
    "other threads": (lambda made: {"resume": made / "half.h5", "threads": 2}, ("threads was 1 and is 2",)),
    "stock DDP from a checkpoint": (lambda made: {"resume": made / "half.h5", "ddp": True}, ("--ddp --resume",)),
    "stock DDP on fewer trainers": (lambda _: {"ddp": True}, ("--ddp --trainers 1",)),
    "option of a step out of range": (lambda _: {"task": f"{TASKS}:Greedy"}, ("clip_norm", "-1.0")),
    "methods that take something else": (
        lambda _: {"task": f"{TASKS}:Otherwise"},
        ("called as dataset(train), and takes ()", "`def dataset(self, train)`", "`def metrics(self, model, batch)`"),
    ),
    "state that is kept by half": (lambda _: {"task": f"{TASKS}:Forgetful"}, ("has state()", "def load_state(state)")),
    "state of its own": (
        lambda made: {"resume": made / "half.h5", "task": f"{TASKS}:Averaging"},
        ("task's own state is not kept", "kept by state()"),
    ),
    "no samples": (lambda _: {"task": f"{TASKS}:Empty"}, ("no samples",)),
}


@pytest.fixture
def undisturbed() -> Iterator[None]:
    with kept_settings():
        yield


@pytest.mark.parametrize("what", WRONG)
def test_mistake_is_told_with_its_mend(
    what: str, made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], undisturbed: None
) -> None:
    changes, words = WRONG[what]
    assert run_job(options(tmp_path, **changes(made))) == 2
    told = capsys.readouterr().err
    assert told.startswith("fleet: ") and "Traceback" not in told
    assert all(word in told for word in words), told
    assert not (tmp_path / "x.h5").exists()


def test_checkpoint_of_another_model_is_refused(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], undisturbed: None
) -> None:
    tree = read(made / "half.h5").as_tree()
    tree["parameters"]["9.weight"] = tree["parameters"].pop("7.weight")
    write(tmp_path / "other.h5", type(read(made / "half.h5")).from_tree(tree))
    assert run_job(options(tmp_path, resume=tmp_path / "other.h5")) == 2
    assert "parameters" in capsys.readouterr().err


def test_trainers_and_ranks_have_to_agree(tmp_path: Path) -> None:
    words = train_words("Small", "x.h5", STEPS, "--trainers", 3)
    ended = run([*MPIEXEC, "-n", "2", *FLEET, *words], tmp_path)
    assert ended.code == 2
    assert "--trainers 3, but the launcher started 2 ranks" in ended.output
