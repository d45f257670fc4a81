"""Trials that people train beside a search reach its sampler at a virtual time, and nothing else of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from fleet.search import OWN_TRIALS, Change, Record, Search
from fleet.search.halving import Halving
from fleet.search.space import check_values
from tests.search.support.sections import spec_of

OWN = Record(OWN_TRIALS, {"x": 0.5}, {1: 0.25}, "done")


class Noting:
    """Suggests nothing, and notes what it was shown."""

    prefetch: int | None = 0

    def __init__(self) -> None:
        self.shown: dict[int, list[Record]] = {}

    def suggest(self, trial: int, records: Sequence[Record]) -> Mapping[str, Any]:
        self.shown[trial] = list(records)
        return {"x": trial}


def driven(sampler: Noting, own_after: int) -> Search:
    """A search that is told of somebody's trial after so many results."""
    search = Search(Halving([1, 2], eta=2), sampler, lambda trial, values: 1, width=2, trials=6)
    results = 0
    while not search.is_over:
        if results == own_after:
            search.changed(Change(search.clock, own=OWN))
        segment = search.needed()[0]
        search.tell(segment.trial, segment.end, segment.trial / 8)
        results += 1
    return search


def test_a_sampler_knows_them_from_their_virtual_time_on() -> None:
    sampler = Noting()
    driven(sampler, own_after=2)
    seen = {trial: OWN in records for trial, records in sampler.shown.items()}
    first = min(trial for trial, there in seen.items() if there)
    assert 0 < first <= 5 and all(there == (trial >= first) for trial, there in seen.items())
    assert all(records[-1] == OWN for trial, records in sampler.shown.items() if seen[trial])


def test_they_change_no_other_decision() -> None:
    digests = {driven(Noting(), own_after).digest() for own_after in (0, 2, 5, 99)}
    assert len(digests) == 1


def test_values_that_a_search_could_not_have_drawn_are_refused() -> None:
    search = spec_of().search
    assert search is not None
    good = {
        "optimizer.arguments.lr": 0.01, "model.arguments.widths": [8, 16], "model.arguments.dropout": 0.25,
        "model.arguments.depth": 5, "model.arguments.shape": [1, [1, 2]],
    }  # fmt: skip
    check_values(search.over, good)
    for path, wrong in (
        ("optimizer.arguments.lr", 1.0), ("optimizer.arguments.lr", "fast"), ("model.arguments.depth", 2.5),
        ("model.arguments.widths", [8, 8, 8, 8]), ("model.arguments.widths", [7]), ("model.arguments.shape", [1]),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=path):
            check_values(search.over, {**good, path: wrong})
    with pytest.raises(ValueError, match=r"depth has no value; .*did you mean model\.arguments\.depth"):
        check_values(search.over, {key: good[key] for key in list(good)[:3]} | {"model.arguments.deph": 2})
