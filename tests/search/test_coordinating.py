"""What rank 0 does for a trial does not grow with the number of trials."""

from __future__ import annotations

import sys
from collections import Counter
from types import FrameType
from typing import Any

import pytest

import fleet
from benchmarks.searched.coordinating import coordinated

FEW, MANY = 60, 180
ROUGHLY = 2.0
ENOUGH = 20 * MANY
"""Times: a line that runs more seldom cannot have looked at all trials for each. Some lines are for long runs alone."""


def lines_of(trials: int) -> tuple[Counter[str], int]:
    """How often each line of fleet runs in a search of so many trials, each turn of a loop counted, and the epochs that
    they train.
    """
    found: Counter[str] = Counter()
    home, before = fleet.__path__[0], sys.gettrace()

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            found[f"{frame.f_code.co_filename}:{frame.f_lineno}"] += 1
        return line

    def call(frame: FrameType, event: str, argument: Any) -> Any:
        return line if frame.f_code.co_filename.startswith(home) else None

    sys.settrace(call)
    try:
        epochs = coordinated(trials, devices=4).epochs
    finally:
        sys.settrace(before)
    return found, epochs


def test_no_line_runs_more_often_for_each_trial_where_there_are_many() -> None:
    pytest.importorskip("mpi4py.MPI")
    coordinated(4, devices=4)  # what is done once in a process is done
    few, epochs_of_few = lines_of(FEW)
    many, epochs_of_many = lines_of(MANY)
    most = ROUGHLY * max(MANY / FEW, epochs_of_many / epochs_of_few)
    grown = {name: (few[name], count) for name, count in many.items() if count > max(ENOUGH, most * few[name])}
    assert not grown, f"they ran so often with few and with many trials, of which {most:.1f} times as often may be"


@pytest.mark.parametrize("trials", [45, 60])
def test_devices_are_busy_while_there_are_new_trials(trials: int) -> None:
    """Also where nothing is needed yet, and more of the likely may not train for nothing."""
    pytest.importorskip("mpi4py.MPI")
    assert coordinated(trials, devices=2).idle < 0.03
