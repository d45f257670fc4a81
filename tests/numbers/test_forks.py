"""Pools of processes in a process that has taken signals over."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import os, signal, time
from multiprocessing import Pool
{taken}
if __name__ == "__main__":
    for _ in range(5):
        with Pool(2) as pool:
            assert list(pool.imap(float, range(8)))[7] == 7.0
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.01)
    print("lives on", {asked})
"""


@pytest.mark.parametrize(
    ("taken", "asked"),
    [
        ("from fleet.machine.launch.launched import StopFlag\nstop = StopFlag()\nstop.install()", "stop()"),
        (
            "from preprocess.files.modules import let_forks_end\nsignal.signal(signal.SIGTERM, lambda *_: None)\n"
            "let_forks_end([signal.SIGTERM])",
            "True",
        ),
    ],
)
def test_a_pool_ends_its_processes_and_a_signal_still_does_what_it_did(taken: str, asked: str) -> None:
    program = _PROGRAM.format(taken=taken, asked=asked)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "lives on True\n", done.stderr
