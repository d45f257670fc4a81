"""What other code prints while a command computes goes to standard error, and its answer stays whole."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.live.support.ensembles import mlp, write_ensemble
from tests.live.support.processes import FLEET, ROOT

PROGRAM = """
import ctypes, os, subprocess
from fleet.machine.standard_streams import others_on_standard_error

print("before")
try:
    with others_on_standard_error():
        print("by Python")
        ctypes.CDLL(None).printf(b"by C\\n")
        subprocess.run(["echo", "by a process"], check=True)
        raise KeyError
except KeyError:
    print("after")
"""
OF_A_RANK = """
import ctypes, os, threading
from fleet.machine.standard_streams import python_alone_on_standard_output

print("before")
with python_alone_on_standard_output():
    print("inside")
    ctypes.CDLL(None).printf(b"by C\\n")
    thread = threading.Thread(target=print, args=["by a thread"])
    thread.start()
    thread.join()
    os.system("echo by a process")
print("after", flush=True)
ctypes.CDLL(None).printf(b"by C, after\\n")
"""
BENCHMARK = """
import ctypes
import benchmarks.__main__ as command
import benchmarks.sia as benchmark

def loud(repetitions: int = 0) -> dict:
    print("by Python")
    ctypes.CDLL(None).printf(b"by C\\n")
    return {"bars": [{"ok": True}]}

benchmark.main = loud
command.main("sia", as_json=True)
"""
LOUD = """
import ctypes, os
from trainers.zoo import MLP

print("imported")

class Loud(MLP):
    def __init__(self, **arguments):
        print("built")
        ctypes.CDLL(None).printf(f"by C on rank {os.environ.get('OMPI_COMM_WORLD_RANK')}\\n".encode())
        ctypes.CDLL(None).fflush(None)
        super().__init__(**arguments)
"""


def test_what_is_printed_inside_goes_to_standard_error() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert ended.stdout == "before\nafter\n", ended.stderr
    assert set(ended.stderr.split("\n")) >= {"by Python", "by C", "by a process"}


def test_a_closed_standard_output_is_left_alone() -> None:
    closed = "import os; os.close(1)\nfrom fleet.machine.standard_streams import others_on_standard_error\n"
    closed += "with others_on_standard_error(): os.write(2, b'inside')"
    ended = subprocess.run([sys.executable, "-c", closed], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0 and ended.stderr == "inside"


def test_a_plan_can_be_read_where_networks_print(tmp_path: Path) -> None:
    ended = loud(tmp_path, "plan", "--json")
    assert list(json.loads(ended.stdout)["jobs"]) == ["mlp"], ended.stdout
    assert "imported" in ended.stderr and "built" in ended.stderr


def test_a_run_prints_its_own_lines_alone(tmp_path: Path) -> None:
    """On rank 0, where policies have libraries in C solve their programs."""
    ended = loud(tmp_path, "run", "--out", str(tmp_path / "out"))
    assert ended.returncode == 0 and "done" in ended.stdout and "report: " in ended.stdout, ended
    assert "by C on rank 0" in ended.stderr and "by C on rank 0" not in ended.stdout


def test_a_rank_leaves_standard_output_to_python() -> None:
    ended = subprocess.run([sys.executable, "-c", OF_A_RANK], capture_output=True, text=True, timeout=60)
    assert ended.stdout == "before\ninside\nby a thread\nafter\nby C, after\n", ended.stderr
    assert set(ended.stderr.split("\n")) >= {"by C", "by a process"}


def test_a_benchmark_prints_nothing_but_its_json() -> None:
    command = [sys.executable, "-c", BENCHMARK]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0 and json.loads(ended.stdout)["bars"], ended
    assert set(ended.stderr.split("\n")) >= {"by Python", "by C"}


def loud(folder: Path, command: str, *words: str) -> subprocess.CompletedProcess[str]:
    """What a command on a network that prints said where."""
    (folder / "loud.py").write_text(LOUD)
    job = mlp()
    ensemble = write_ensemble(folder, [{**job, "model": {**job["model"], "name": "loud:Loud"}}])
    whole = [*FLEET, command, str(ensemble.spec), *words]
    return subprocess.run(whole, cwd=folder, capture_output=True, text=True, timeout=120)
