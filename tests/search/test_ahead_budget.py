"""What trains ahead is bounded by what may be for nothing."""

from __future__ import annotations

from fleet.search import Search
from fleet.search.halving import Halving
from fleet.search.samplers import Random
from fleet.session.search.ahead import may_train_ahead
from tests.search.support.curves import value


def search(trials: int) -> Search:
    return Search(Halving([1, 3, 9], 3), Random({}, 0), lambda trial, values: 1, 4, trials)


def test_as_long_as_nothing_turned_out_to_be_wanted_all_counts_that_may_be_for_nothing() -> None:
    assert may_train_ahead(0.03, 100, 0, 0, 2) and not may_train_ahead(0.03, 100, 0, 0, 3)
    assert not may_train_ahead(0.03, 100, 3, 0, 0) and not may_train_ahead(0.03, 20, 0, 0, 0)
    assert may_train_ahead(1.0, 20, 4, 0, 15)


def test_what_was_wanted_before_lets_more_train() -> None:
    assert may_train_ahead(0.03, 100, 0, 9, 29) and not may_train_ahead(0.03, 100, 0, 9, 30)
    assert not may_train_ahead(0.03, 100, 3, 1000, 0)


def test_a_search_never_wants_fewer_epochs_than_it_says() -> None:
    mine, said = search(40), [search(40).least_epochs(True)]
    assert said == [40] and mine.least_epochs(False) == 4
    while not mine.is_over:
        segment = mine.needed()[-1]
        mine.tell(segment.trial, segment.end, value(segment.trial, segment.end))
        said.append(mine.least_epochs(True))
    assert said == sorted(said)
    assert (
        said[-1]
        == mine.least_epochs(False)
        == sum(one.end - one.start for one in mine.decisions if one.kind in ("start", "resume"))
    )
