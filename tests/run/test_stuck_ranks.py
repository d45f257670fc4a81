"""A rank that is stuck in a network's code: the run ends soon, and says which rank it is and where it stands."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ensembles import faulty, mlp, write_ensemble
from processes import run

from fleet.watchdog import Watchdog, forget_stacks, stuck_ranks

RESOURCES = {"device": "cpu", "ring_samples": 128, "slot_samples": 8, "timeout": 4.0}


@pytest.mark.parametrize("members", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_the_stuck_rank_and_its_stack_are_named(members: int, tmp_path: Path) -> None:
    """With two members, one is stuck, and the other waits for it in vain."""
    jobs = [{**faulty("adrift", "stuck"), "virtual_workers": members}]
    ensemble = write_ensemble(tmp_path, jobs, resources={"trainers": members, **RESOURCES})
    ended = run(ensemble.plain("run"), tmp_path, seconds=90)
    assert ended.code == 1, ended.output
    named = re.findall(r"fleet: rank (\d+) has not moved for 3.6 s; it is here:\n(?:  .*\n)*", ended.output)
    assert named and set(named) <= {"1", "2"}, ended.output
    assert "in _go_wrong" in ended.output and "adrift" in ended.output
    left = stuck_ranks(ensemble.left("run").path / "stacks")
    assert len(left) == 1 and "in _go_wrong" in next(iter(left.values())), "others moved on, and took theirs back"


def test_a_run_whose_steps_are_short_says_nothing(tmp_path: Path) -> None:
    ensemble = write_ensemble(tmp_path, [mlp()], resources={"trainers": 1, **RESOURCES})
    ended = run(ensemble.plain("run"), tmp_path)
    assert ended.code == 0 and "has not moved" not in ended.output, ended.output
    assert not (ensemble.left("run").path / "stacks").exists()


def await_true(holds: Callable[[], object], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_was_written_is_taken_back_when_the_rank_moves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Watchdog(3, tmp_path / "stacks", 0.2) as watchdog:
        await_true(lambda: stuck_ranks(tmp_path / "stacks"))
        (found,) = stuck_ranks(tmp_path / "stacks").items()
        assert found[0] == 3 and "in await_true" in found[1]
        watchdog.moves()
        assert not stuck_ranks(tmp_path / "stacks")
        await_true(lambda: stuck_ranks(tmp_path / "stacks"))
    assert capsys.readouterr().err.count("rank 3 has not moved") == 2
    forget_stacks(tmp_path / "stacks")
    assert not stuck_ranks(tmp_path / "stacks")


def test_it_watches_the_thread_that_entered_it(tmp_path: Path) -> None:
    found: list[str] = []

    def drifting() -> None:
        with Watchdog(0, tmp_path, 0.2):
            await_true(lambda: stuck_ranks(tmp_path))
            found.extend(stuck_ranks(tmp_path).values())

    thread = threading.Thread(target=drifting)
    thread.start()
    thread.join()
    assert "in drifting" in found[0]
