"""What is said of one job that ends by an error: with the lines of a person's code, once for all ranks."""

from __future__ import annotations

import copy
import sys
import sysconfig
from copy import deepcopy
from pathlib import Path

import pytest
import torch

from fleet.commands import entry
from fleet.commands.train_errors import LastWords, tell_all
from fleet.machine.launch.launched import BAD_INPUT, FAILED
from tests.live.support.processes import MPIEXEC, run
from trainers import Diverged, PeerFailed
from trainers.task.loss import UnfitTask

LATE = """
from mpi4py import MPI
from fleet.commands import train_errors
from fleet.commands.train_errors import LastWords

train_errors.WORDS_SECONDS = train_errors.ANSWER_SECONDS = 0.5
world = MPI.COMM_WORLD
if world.rank == 1:
    assert train_errors.tell_together(world, LastWords(1, "RuntimeError", "the hull leaks", fails=True)) == 1
world.Barrier()
if world.rank == 0:
    assert train_errors.tell_together(world, LastWords(1, "PeerFailed", "rank 1 failed", echo=True)) == 1
world.Barrier()
"""


def raised(lines: str, filename: str) -> Exception:
    try:
        exec(compile(lines, filename, "exec"), {"deepcopy": deepcopy})
    except Exception as error:
        assert error.__traceback__ is not None
        return error.with_traceback(error.__traceback__.tb_next)  # without the frame of this test
    raise AssertionError("nothing was raised")


def told(capsys: pytest.CaptureFixture[str], *errors: BaseException, ranks: int = 1) -> str:
    tell_all({rank: LastWords.of(error) for rank, error in enumerate(errors)}, ranks)
    return capsys.readouterr().err


def test_a_failure_in_a_persons_code_is_told_with_their_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = tmp_path / "task.py"
    task.write_text("def loss():\n    return deepcopy(open)\n\ndeepcopy(object())\nloss().missing\n")
    said = told(capsys, raised(task.read_text(), str(task)))
    assert said.startswith("fleet: the job failed: AttributeError: ") and said.endswith("run the same command again\n")
    assert said.count("  File") == 1 and f'File "{task}", line 5' in said and "Traceback" not in said


def test_what_a_persons_code_called_is_told_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = told(capsys, raised("deepcopy(open(__file__ := '/dev/null'))", str(tmp_path / "task.py")))
    assert "task.py" in said and copy.__file__ in said and said.index("task.py") < said.index(copy.__file__)


def test_how_torch_calls_a_layer_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = "import torch\ntorch.nn.Linear(2, 3)(torch.zeros(4))"
    said = told(capsys, raised(lines, str(tmp_path / "task.py")))
    assert said.count("  File") == 2 and "nn/modules/linear.py" in said and "_call_impl" not in said


def test_a_failure_of_fleet_is_told_with_all_lines(capsys: pytest.CaptureFixture[str]) -> None:
    said = told(capsys, raised("raise ValueError('the cargo')", entry.__file__))
    assert said.startswith("fleet: the job failed: ValueError: the cargo\nit was raised in none of your lines")
    assert f'File "{entry.__file__}", line 1' in said


def test_what_torch_refuses_is_told_without_lines_of_fleet(capsys: pytest.CaptureFixture[str]) -> None:
    said = told(capsys, raised("import torch\ntorch.nn.functional.linear(torch.zeros(2), 3)", entry.__file__))
    assert entry.__file__ in said  # a function in C has no line: the caller's counts
    said = told(capsys, raised("import torch\ntorch.nn.Linear(2, 3)(torch.zeros(4))", entry.__file__))
    assert entry.__file__ not in said and "nn/modules/linear.py" in said and "none of these lines is yours" in said


def test_an_installed_package_is_a_persons_code_and_torch_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    packages = Path(sysconfig.get_path("purelib"))
    for file, theirs in ((packages / "networks" / "tall.py", True), (Path(torch.__file__), False)):
        said = told(capsys, raised("raise ValueError('too tall')", str(file)))
        assert ("of these lines is yours" not in said) == theirs, file


def test_what_ranks_say_alike_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    said = told(capsys, *(Diverged(f"the loss of virtual worker {rank} is nan") for rank in range(3)), ranks=3)
    assert said == "fleet: the loss of virtual worker 0 is nan (on all 3 ranks)\n"


def test_who_only_heard_of_a_failure_says_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    error = raised("raise KeyError('page 7')", str(tmp_path / "task.py"))
    said = told(capsys, PeerFailed(1, "KeyError"), error, error, ranks=4)
    assert said.startswith("fleet: the job failed on ranks 1 and 2: KeyError: 'page 7'\n") and "member" not in said
    assert told(capsys, PeerFailed(1, "KeyError"), ranks=4).count("rank 1, a member of this group, failed") == 1


def test_different_failures_are_all_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    errors = [raised(f"raise {kind}('torn')", str(tmp_path / "task.py")) for kind in ("KeyError", "OSError")]
    said = told(capsys, *errors, ranks=2)
    assert "failed on rank 0: KeyError: 'torn'" in said and "failed on rank 1: OSError: torn" in said


def test_a_mistake_has_the_code_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    mistake, failure = LastWords.of(UnfitTask("no optimizer")), LastWords.of(OSError("torn"))
    assert tell_all({0: LastWords.of(PeerFailed(1, "")), 1: mistake}, 2) == BAD_INPUT
    assert capsys.readouterr().err == "fleet: no optimizer\n"
    assert tell_all({0: failure, 1: mistake}, 2) == FAILED


def test_no_rank_waits_for_ever_for_another(tmp_path: Path) -> None:
    """Rank 1 fails while rank 0 trains yet, and rank 2 never answers: rank 1 tells of it, and rank 0 not once more."""
    ended = run([*MPIEXEC, "-n", "3", sys.executable, "-c", LATE], tmp_path)
    assert ended.code == 0, ended.output
    assert ended.output.count("the job failed on rank 1: the hull leaks") == 1 and "rank 1 failed" not in ended.output
