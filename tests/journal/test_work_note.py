"""Notes of what trainers work at: a process that ends in the middle of it leaves its own, with how it ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fleet.journal.work_note import WorkNote, mark_gone, take_deaths

pytestmark = pytest.mark.usefixtures("started_cold")

ENDS = """
import ctypes, os, sys
from pathlib import Path
from fleet.journal.work_note import WorkNote

with WorkNote(Path(sys.argv[1]), 3).of("foggy"):
    {end}
"""


def end(folder: Path, code: str) -> None:
    """A process ends so while it works."""
    subprocess.run([sys.executable, "-c", ENDS.format(end=code), str(folder)], capture_output=True, timeout=60)


@pytest.mark.parametrize(("code", "says"), [("ctypes.string_at(0)", "Segmentation fault"), ("os.abort()", "Aborted")])
def test_a_crash_is_told_with_its_job_and_stack(code: str, says: str, tmp_path: Path) -> None:
    end(tmp_path / "at_work", code)
    (death,) = take_deaths(tmp_path / "at_work")
    assert (death.rank, death.job) == (3, "foggy")
    assert death.error == f"its code ended the process of rank 3: {says}" and "<string>" in death.stack
    assert not take_deaths(tmp_path / "at_work"), "it is told once"


def test_a_killed_process_is_blamed_for_nothing_but_its_end(tmp_path: Path) -> None:
    """Where nobody knows that it was lost alone, others may have ended it."""
    end(tmp_path, "os.kill(os.getpid(), 9)")
    assert not take_deaths(tmp_path)
    end(tmp_path, "os.kill(os.getpid(), 9)")
    mark_gone(tmp_path, [3, 4])
    (death,) = take_deaths(tmp_path)
    assert (death.job, death.stack, death.error) == ("foggy", "", "the process of rank 3 was killed")


def test_a_lack_of_room_in_shared_memory_is_not_called_the_jobs_fault(tmp_path: Path) -> None:
    end(tmp_path, "os.kill(os.getpid(), 7)")
    (death,) = take_deaths(tmp_path)
    assert death.stack == ""


def test_work_that_ends_leaves_nothing(tmp_path: Path) -> None:
    note = WorkNote(tmp_path / "at_work", 3)
    with note.of("foggy"):
        assert (tmp_path / "at_work" / "rank-3.txt").read_text() == "foggy\n"
    with pytest.raises(ValueError, match="leaks"), note.of("foggy"):
        raise ValueError("it leaks")
    assert not take_deaths(tmp_path / "at_work", [3])
    note.remove()
    assert not (tmp_path / "at_work").exists()
