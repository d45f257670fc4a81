"""The search that a spec asks for."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.search.halving import Halving, Hyperband, SynchronousHalving
from fleet.search.of_spec import rule_of, search_of
from fleet.search.to_the_end import Median, Whole
from tests.search.support.curves import cost, value
from tests.search.support.driving import drive
from tests.search.support.sections import spec_of


@pytest.mark.parametrize(
    ("stopping", "kind", "end"),
    [
        ("none", Whole, 9),
        ("halving", Halving, 1),
        ({"name": "halving", "rungs": [2, 9]}, Halving, 2),
        ({"name": "halving", "synchronous": True}, SynchronousHalving, 1),
        ("hyperband", Hyperband, 1),
        ({"name": "median", "grace": 4}, Median, 4),
    ],
)
def test_rules(stopping: Any, kind: type, end: int) -> None:
    search = spec_of(stopping=stopping).search
    assert search is not None
    rule = rule_of(search, 0)
    assert type(rule) is kind and min(rule.first(trial).end for trial in range(20)) == end


def test_bounds_seed_and_direction_are_those_of_the_section() -> None:
    found = search_of(spec_of(width=3, trials=7, metric="accuracy"), cost)
    assert len(found.needed()) == 3
    drive(found, lambda trial, epoch: float(trial))
    assert found.begun == 7 and found.best() == (6, 6.0)
    assert found.values(0) == search_of(spec_of(seed=5), cost).values(0)
    assert found.values(0) != search_of(spec_of(seed=6), cost).values(0)
    assert drive(search_of(spec_of(trials=None, budget={"epochs": 30}), cost), value).begun == 3
    assert drive(search_of(spec_of(mode="min", metric="accuracy"), cost), lambda trial, _: float(trial)).best() == (
        0,
        0.0,
    )


def test_a_grid_without_trials_has_all() -> None:
    over = {"a": {"choice": [1, 2]}, "b": {"integer": [1, 3]}}
    assert drive(search_of(spec_of(sampler="grid", over=over, trials=None), cost), value).begun == 6
