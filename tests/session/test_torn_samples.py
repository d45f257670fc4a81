"""What is said where a run ends by a sample that cannot be made."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.workers.agreement import told_of
from preprocess import Dataset
from preprocess.samples.errors import SampleError
from preprocess.samples.order import TRAIN
from tests.preprocess.support.damaged import damaged_module, made, numbered


def test_the_mend_is_told_with_the_lines_that_raised_and_none_of_ours(tmp_path: Path) -> None:
    with damaged_module(tmp_path) as module, pytest.raises(SampleError) as caught:
        module.BROKEN[(True, 8)] = "raise"
        made(Dataset(numbered()), TRAIN, 1, 2)
    told = told_of(caught.value)
    assert "set data.numbers.on_corrupt to skip; the same command goes on then\nit was raised in\n" in told
    assert f"{tmp_path}" in told and "raise OSError(" in told and "/preprocess/making/" not in told


def test_where_others_could_not_be_made_either_the_mend_is_not_to_skip() -> None:
    told = told_of(SampleError("d", "train", 3, 0, "it was found corrupt before", "; none of 2 others: mend them"))
    assert told.endswith("mend them; the same command goes on then") and "on_corrupt" not in told


def test_of_a_tasks_own_data_the_spec_cannot_say_anything() -> None:
    told = told_of(SampleError("nets:Task#0a1b", "train", 3, 0, "it is no picture"))
    assert told.endswith("mend it or what reads it; the same command goes on then")
