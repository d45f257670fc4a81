"""Carries out, again and again, that a member of a population goes on from another one's weights.

Standard input: a list, in JSON, of [members' folder, variables of the environment]. For each a process; at the end a
list of what went wrong in these is printed, "" where nothing did.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

from fleet.search import Copy, Decision
from fleet.session.search.inheriting import Inheriting
from tests.trainers.support.members import trained
from trainers import file_name, write

DECISION = Decision(0, 0, 1, 2, "resume", Copy(1, 1, {"optimizer.arguments.lr": 0.25}))
"""Member 0 goes on from member 1."""


def of(folder: Path) -> Inheriting:
    """What carries out decisions on members that lie below a folder."""
    return Inheriting(str, lambda job: folder / job)


def compared(folder: Path) -> None:
    """Two members whose results are about to be told."""
    for member in range(2):
        saved = trained(member)
        write(folder / str(member) / file_name(saved), saved)
        of(folder).told(member, 1)


def carried_out(attempts: Sequence[tuple[Path, Mapping[str, str]]], variables: Mapping[str, str]) -> list[str]:
    """Start this; returns what it prints."""
    told = json.dumps([[str(folder), dict(more)] for folder, more in attempts])
    command = [sys.executable, "-m", __name__]
    ended = subprocess.run(command, input=told, env=dict(variables), capture_output=True, text=True, timeout=250)
    assert ended.returncode == 0, ended.stderr
    return list(json.loads(ended.stdout))


def _attempt(folder: str, variables: Mapping[str, str]) -> str:
    """What goes wrong in a process with more variables."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.environ.update(variables)
        try:
            of(Path(folder)).carry_out(DECISION)
        except BaseException:
            os.write(writing, traceback.format_exc().encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        wrong = said.read()
    os.waitpid(child, 0)
    return wrong


if __name__ == "__main__":
    print(json.dumps([_attempt(*each) for each in json.load(sys.stdin)]))
