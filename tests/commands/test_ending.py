"""How commands end: one line on standard error, and an exit code."""

from __future__ import annotations

import pytest

from fleet.commands.entry import end, mendable
from fleet.machine.launch.launched import BAD_INPUT, FAILED, STOPPED
from fleet.machine.standard_streams import tell


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
