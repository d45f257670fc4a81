"""A rank ends at once with its code, when all that was registered for its end has been done."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import atexit, sys
from fleet.machine.launch.launched import QuickEnd

class Taken:
    def __del__(self):
        print("taken apart")

end, kept = QuickEnd(), Taken()
atexit.register(print, "registered later")
{last}
"""


@pytest.mark.parametrize(
    ("last", "code", "told"),
    [
        ("sys.exit(end.with_code(3))", 3, ["registered later"]),
        ("end.with_code(0)", 0, ["registered later"]),
        ("sys.exit(5)", 5, ["registered later", "taken apart"]),
        ("raise ValueError('broken')", 1, ["registered later", "taken apart"]),
    ],
)
def test_nothing_is_taken_apart_once_the_code_is_known(last: str, code: int, told: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(last=last)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.split("\n")[:-1]) == (code, told), done.stderr
    assert ("ValueError: broken" in done.stderr) == last.startswith("raise")


def test_mpi_is_ended_in_good_order() -> None:
    pytest.importorskip("mpi4py.MPI")
    last = "from mpi4py import MPI\natexit.register(lambda: print(MPI.Is_finalized()))\nsys.exit(end.with_code(4))"
    program = PROGRAM.format(last=last)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.split()) == (4, ["False", "registered", "later"]), done.stderr
