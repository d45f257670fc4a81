"""What other code prints while a command computes goes to standard error, and its answer stays whole."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.run.support.ensembles import mlp, write_ensemble
from tests.run.support.processes import FLEET

PROGRAM = """
import ctypes, os, subprocess
from fleet.machine.standard_output import others_on_standard_error

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
LOUD = """
from trainers.zoo import MLP

print("imported")

class Loud(MLP):
    def __init__(self, **arguments):
        print("built")
        super().__init__(**arguments)
"""


def test_what_is_printed_inside_goes_to_standard_error() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert ended.stdout == "before\nafter\n", ended.stderr
    assert set(ended.stderr.split("\n")) >= {"by Python", "by C", "by a process"}


def test_a_closed_standard_output_is_left_alone() -> None:
    closed = "import os; os.close(1)\nfrom fleet.machine.standard_output import others_on_standard_error\n"
    closed += "with others_on_standard_error(): os.write(2, b'inside')"
    ended = subprocess.run([sys.executable, "-c", closed], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0 and ended.stderr == "inside"


def test_a_plan_can_be_read_where_networks_print(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(LOUD)
    job = mlp()
    ensemble = write_ensemble(tmp_path, [{**job, "model": {**job["model"], "name": "loud:Loud"}}])
    command = [*FLEET, "plan", str(ensemble.spec), "--json"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert list(json.loads(ended.stdout)["jobs"]) == ["mlp"], ended.stdout
    assert "imported" in ended.stderr and "built" in ended.stderr
