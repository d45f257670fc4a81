"""How commands end: one line on standard error, and an exit code."""

from __future__ import annotations

import copy
import sysconfig
from copy import deepcopy
from pathlib import Path

import pytest

from fleet.commands import ending
from fleet.commands.ending import end, failed, mendable
from fleet.machine.launch.exit_codes import BAD_INPUT, FAILED, STOPPED
from fleet.machine.standard_error import tell


class Lost(LookupError):
    """An error that is no ValueError."""


def test_what_is_told_is_marked_as_fleets_own_word(capsys: pytest.CaptureFixture[str]) -> None:
    tell("the disk is full")
    assert capsys.readouterr() == ("", "fleet: the disk is full\n")


def test_the_end_has_its_code_and_its_text(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        end(STOPPED, "stopped; the same command goes on")
    assert ended.value.code == STOPPED
    assert capsys.readouterr().err == "fleet: stopped; the same command goes on\n"


@pytest.mark.parametrize(
    ("kinds", "error"),
    [((), ValueError("no such job")), ((Lost,), Lost("no such job")), ((Lost, OSError), OSError("no such job"))],
)
def test_what_a_person_can_mend_is_told_without_a_traceback(
    kinds: tuple[type[Exception], ...], error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended, mendable(*kinds):
        raise error
    assert ended.value.code == BAD_INPUT
    assert capsys.readouterr().err == "fleet: no such job\n"


@pytest.mark.parametrize(("kinds", "error"), [((), Lost("a bug")), ((Lost,), ValueError("a bug"))])
def test_other_errors_pass(kinds: tuple[type[Exception], ...], error: Exception) -> None:
    with pytest.raises(type(error)) as passed, mendable(*kinds):
        raise error
    assert passed.value is error


def test_an_exit_inside_keeps_its_code() -> None:
    with pytest.raises(SystemExit) as ended, mendable():
        end(FAILED, "the scheduler refused")
    assert ended.value.code == FAILED


def raised(lines: str, filename: str) -> Exception:
    try:
        exec(compile(lines, filename, "exec"), {"deepcopy": deepcopy})
    except Exception as error:
        assert error.__traceback__ is not None
        return error.with_traceback(error.__traceback__.tb_next)  # without the frame of this test
    raise AssertionError("nothing was raised")


def test_a_failure_in_a_persons_code_is_told_with_their_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = tmp_path / "task.py"
    task.write_text("def loss():\n    return deepcopy(open)\n\ndeepcopy(object())\nloss().missing\n")
    assert failed(raised(task.read_text(), str(task)), " on rank 1") == FAILED
    told = capsys.readouterr().err
    assert told.startswith("fleet: the job failed on rank 1: AttributeError: ")
    assert told.count("  File") == 1 and f'File "{task}", line 5' in told and "Traceback" not in told


def test_what_a_persons_code_called_is_told_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert failed(raised("deepcopy(open(__file__ := '/dev/null'))", str(tmp_path / "task.py"))) == FAILED
    told = capsys.readouterr().err
    assert "task.py" in told and copy.__file__ in told and told.index("task.py") < told.index(copy.__file__)


def test_a_failure_of_fleet_is_told_with_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert failed(raised("raise ValueError('the cargo')", ending.__file__)) == FAILED
    told = capsys.readouterr().err
    assert told.startswith("fleet: the job failed:\nTraceback") and "ValueError: the cargo" in told


def test_an_installed_package_is_a_persons_code_and_torch_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    packages = Path(sysconfig.get_path("purelib"))
    for file, theirs in ((packages / "networks" / "tall.py", True), (Path(torch.__file__), False)):
        failed(raised("raise ValueError('too tall')", str(file)))
        assert ("Traceback" not in capsys.readouterr().err) == theirs, file
