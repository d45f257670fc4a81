"""What rank 0 does for a trial does not grow with the number of trials."""

from __future__ import annotations

import sys
from collections import Counter
from types import FrameType
from typing import Any

import pytest

import fleet
from benchmarks.searched.coordinating import coordinated

FEW, MANY = 30, 120
ROUGHLY = 1.5
ENOUGH = 300
"""Calls: what is called more seldom cannot have looked at all trials for each."""


def calls_of(trials: int) -> tuple[Counter[str], int]:
    """How often each function of fleet is called, each step of a generator too, in a search of so many trials, and the
    epochs that they train.
    """
    found: Counter[str] = Counter()
    home = fleet.__path__[0]

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(home):
            found[f"{code.co_filename.removeprefix(home)}:{code.co_firstlineno} {code.co_name}"] += 1

    sys.setprofile(profile)
    try:
        epochs = coordinated(trials, devices=4).epochs
    finally:
        sys.setprofile(None)
    return found, epochs


def test_no_function_is_called_more_often_for_each_trial_where_there_are_many() -> None:
    pytest.importorskip("mpi4py.MPI")
    coordinated(4, devices=4)  # what is done once in a process is done
    few, epochs_of_few = calls_of(FEW)
    many, epochs_of_many = calls_of(MANY)
    most = ROUGHLY * max(MANY / FEW, epochs_of_many / epochs_of_few)
    grown = {name: (few[name], count) for name, count in many.items() if count > max(ENOUGH, most * few[name])}
    assert not grown, f"called so often with few and with many trials, of which {most:.1f} times as often may be"
