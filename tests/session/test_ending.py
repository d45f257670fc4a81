"""How a rank ends: whose mistakes are told how, and what rank 0 finds out for all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleet.journal.directory import RunDirectoryError
from fleet.journal.whole_files import ProfileError
from fleet.machine.cluster_map import ClusterError
from fleet.machine.launch.launched import BAD_INPUT, DONE, FOLDER, STOPPED
from fleet.workers.agreement import BadInput, agree, await_all, exit_code
from fleet.workers.rank import Rank


@pytest.fixture
def world(rank: Callable[..., Rank]) -> Any:
    return rank().world


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a launch of our own, which reads the code there."""
    monkeypatch.setenv(FOLDER, str(tmp_path))
    return tmp_path / "code"


@pytest.mark.parametrize("code", [DONE, STOPPED])
def test_a_rank_that_launchers_started_ends_with_the_run_s_code(
    world: Any, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(FOLDER, raising=False)
    assert exit_code(world, lambda: code) == code


def test_a_rank_that_we_started_leaves_the_code_and_ends_quietly(world: Any, launch: Path) -> None:
    assert exit_code(world, lambda: STOPPED) == 0
    assert launch.read_text() == str(STOPPED)


@pytest.mark.parametrize("kind", [BadInput, ClusterError, ProfileError, RunDirectoryError])
def test_a_person_s_mistake_is_told_without_a_traceback(
    world: Any, launch: Path, capsys: pytest.CaptureFixture[str], kind: type[Exception]
) -> None:
    def work() -> int:
        raise kind("it is not there; put it there")

    assert exit_code(world, work) == 0
    assert launch.read_text() == str(BAD_INPUT)
    assert capsys.readouterr().err == "fleet: it is not there; put it there\n"


def test_one_rank_waits_for_nobody(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr("fleet.workers.agreement.abort", lambda world, code: ended.append(code))
    await_all(world, DONE, timeout=-1.0)  # too late from the start, should it wait
    assert not ended


def test_what_rank_0_finds_is_read_from_what_it_said(world: Any) -> None:
    assert agree(world, lambda: {"rank": [1, 2]}, tuple) == ("rank",)
    assert agree(world, lambda: "Grüße", str.upper) == "GRÜSSE"


def test_rank_0_raises_its_own_error(world: Any) -> None:
    error = BadInput("no such file")

    def find() -> None:
        raise error

    with pytest.raises(BadInput) as raised:
        agree(world, find, str)
    assert raised.value is error
