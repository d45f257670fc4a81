"""A rank that is stuck in a network's code: the run ends soon, and says which rank it is and where it stands."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.workers.watchdog import Board, Watchdog, forget_stacks, stuck_ranks
from tests.live.support.ensembles import faulty, mlp, write_ensemble
from tests.live.support.processes import ROOT, run

RESOURCES = {"device": "cpu", "ring_samples": 128, "slot_samples": 8, "timeout": 8.0}


@pytest.mark.slow
@pytest.mark.parametrize("members", [1, 2])
def test_the_stuck_rank_and_its_stack_are_named(members: int, tmp_path: Path) -> None:
    """With two members, one is stuck, and the other waits for it in vain."""
    jobs = [{**faulty("adrift", "stuck"), "virtual_workers": members}]
    ensemble = write_ensemble(tmp_path, jobs, resources={"trainers": members, **RESOURCES})
    ended = run(ensemble.plain("run"), tmp_path, 90)
    assert ended.code == 1, ended.output
    named = re.findall(r"fleet: rank (\d+) has not moved for 7.2 s; it is here:\n(?:  .*\n)*", ended.output)
    assert named and set(named) <= {"1", "2"}, ended.output
    assert "in _go_wrong" in ended.output and "adrift" in ended.output
    assert "the same command goes on without adrift" in ended.output
    error = ensemble.left("run").summary["jobs"]["adrift"]["error"]
    assert 1 <= error.count("has not moved for") <= members and "in _go_wrong" in error


@pytest.mark.slow
def test_a_stopped_process_is_named_and_the_run_ends(tmp_path: Path) -> None:
    jobs = [{**faulty("adrift", "stopped"), "virtual_workers": 2}]
    ensemble = write_ensemble(tmp_path, jobs, resources={"trainers": 2, **RESOURCES})
    ended = run(ensemble.plain("run"), tmp_path, 90)
    assert ended.code == 1, ended.output
    assert re.search(r"fleet: rank [12] has not moved for 7.2 s; its process is stopped \(kill -CONT \d+", ended.output)


STUCK = "import os, shutil, signal\nif os.environ.get('OMPI_COMM_WORLD_RANK') == '{rank}':\n    {how}\n"
IN_ITS_RING = (
    "import sys; usage, asked = shutil.disk_usage, []; "
    "shutil.disk_usage = lambda place: asked.extend(['mpi4py.MPI' in sys.modules]) or "
    "(signal.pause() if sum(asked) == 5 else usage(place))"  # its fifth use of shared memory
)
IN_THE_SPEC = "import fleet.session.main as main; main.SPEC_SECONDS = 2; main._read_spec = lambda *_: signal.pause()"


@pytest.mark.parametrize(
    ("rank", "how", "told"),
    [
        (0, IN_THE_SPEC, "rank 0 has not read the spec within"),
        pytest.param(
            1,
            "os.sched_getaffinity = lambda process: signal.pause()",
            "not every rank has said where it sits within 8 s",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            1, IN_ITS_RING, "not every rank has come to make its node's ring within 8 s", marks=pytest.mark.slow
        ),
    ],
)
def test_a_rank_that_is_stuck_as_it_begins_ends_the_run(
    tmp_path: Path, started_cold: None, rank: int, how: str, told: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(STUCK.format(rank=rank, how=how))
    ensemble = write_ensemble(tmp_path, [mlp()], resources={"trainers": 1, **RESOURCES})
    ended = run(ensemble.plain("run"), tmp_path, 90, PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert ended.code == 1, ended.output
    assert told in ended.output, ended.output


@pytest.mark.slow
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
            await_true(lambda: any(stuck_ranks(tmp_path).values()))  # its stack is written, too
            found.extend(stuck_ranks(tmp_path).values())

    thread = threading.Thread(target=drifting)
    thread.start()
    thread.join()
    assert "in drifting" in found[0]


def test_a_rank_that_cannot_speak_is_named_by_another_of_its_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its process is stopped, say: what it wrote on the board last is all that there is."""

    def last_seen() -> None:
        silent.is_seen(sys._getframe())

    board = Board.alone(3)
    silent = board.seat(1, 8)
    silent.take()
    last_seen()
    with (
        Watchdog(7, tmp_path, 0.2, board.seat(0, 7)) as speaking,
        Watchdog(9, tmp_path, 0.2, board.seat(2, 9)) as other,
    ):

        def silent_is_told() -> bool:
            speaking.moves()
            other.moves()
            return 8 in stuck_ranks(tmp_path)

        await_true(silent_is_told)
    told = stuck_ranks(tmp_path)[8]
    assert "rank 8 has not moved for 0.2 s; " in told and "in last_seen" in told and "silent.is_seen(" in told
    assert capsys.readouterr().err.count("rank 8 has not moved") == 1, "by one of the others alone"


def test_a_rank_whose_process_has_ended_is_not_called_stuck() -> None:
    board = Board.alone(2)
    silent, speaking = board.seat(1, 8), board.seat(0, 7)
    silent.take()
    speaking.take()
    with subprocess.Popen(["true"]) as ended:
        pass
    board.row(1)["process"] = ended.pid
    assert not list(speaking.silent(-1.0, fresh=1.0))


def test_a_stack_deeper_than_the_board_keeps_its_innermost_calls(tmp_path: Path) -> None:
    def deeper(left: int) -> None:
        if left:
            deeper(left - 1)
        else:
            silent.is_seen(sys._getframe())

    board = Board.alone(2)
    silent = board.seat(1, 8)
    silent.take()
    deeper(200)
    speaking = board.seat(0, 7)
    speaking.take()
    (found,) = speaking.silent(-1.0, fresh=1.0)
    assert found.rank == 8 and found.stack.rstrip().endswith("silent.is_seen(sys._getframe())")
    assert not list(speaking.silent(-1.0, fresh=1.0)), "once"
