"""Decisions are the same whatever the order in which results arrive."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.search import Change, Decision, Record, Search, Segment
from fleet.search.halving import Halving
from fleet.search.to_the_end import Whole
from tests.search.support.curves import cost, value
from tests.search.support.devices import train_on
from tests.search.support.driving import drive
from tests.search.support.numbered import Looking, Numbered


def halving(width: int = 4, trials: int = 30, prefetch: int | None = None, epochs: int | None = None) -> Search:
    sampler = Numbered() if prefetch is None else Looking(prefetch)
    return Search(Halving((1, 3, 9), 3), sampler, cost, width, trials, epochs)


@given(seed=st.integers(0, 10**6), width=st.sampled_from([1, 3, 8]), prefetch=st.sampled_from([None, 0, 2, 9]))
@settings(max_examples=40, deadline=None)
def test_any_order_of_results_gives_one_list_of_decisions(seed: int, width: int, prefetch: int | None) -> None:
    in_order = drive(halving(width, prefetch=prefetch), value, early=0)
    other = drive(halving(width, prefetch=prefetch), value, seed, early=0.5)
    assert other.decisions == in_order.decisions and len(in_order.decisions) > 60
    assert other.digest() == in_order.digest()
    assert other.best() == in_order.best()


@pytest.mark.parametrize("prefetch", [None, 3])
def test_any_number_of_devices_gives_one_list_of_decisions_whatever_is_lost(prefetch: int | None) -> None:
    in_order = drive(halving(prefetch=prefetch), value, early=0)
    lost = 0
    for seed, devices in enumerate((1, 2, 3, 5, 8, 16, 64)):
        other = halving(prefetch=prefetch)
        lost += train_on(other, value, devices, seed)
        assert other.digest() == in_order.digest()
    assert lost > 20


def test_another_result_gives_another_digest() -> None:
    def other(trial: int, epoch: int) -> float | None:
        return 0.0 if trial == 7 else value(trial, epoch)

    assert drive(halving(), value).digest() != drive(halving(), other).digest()


def test_the_first_results_by_hand() -> None:
    """Two slots, eta 2, all costs 1: written out on paper."""
    search = Search(Halving((1, 2), 2), Numbered(), lambda trial, values: 1, width=2, trials=3)
    assert search.needed() == (Segment(0, 0, 1), Segment(1, 0, 1))
    assert search.tell(1, 1, 0.5) == ()  # 0 comes before 1 in virtual time
    assert search.tell(0, 1, 0.7) == (
        Decision(1, 0, 0, 1, "pause"),
        Decision(1, 2, 0, 1, "start"),  # one result: half of one is none
        Decision(1, 1, 0, 1, "pause"),
        Decision(1, 1, 1, 2, "resume"),
    )
    assert search.tell(2, 1, 0.1) == ()  # trial 1 comes first at time 2
    assert search.needed() == (Segment(1, 1, 2),)
    assert search.tell(1, 2, 0.4) == (
        Decision(2, 1, 1, 2, "done"),
        Decision(2, 2, 0, 1, "pause"),
        Decision(2, 2, 1, 2, "resume"),  # the best of three by then
    )
    search.tell(2, 2, 0.6)
    assert (search.is_over, search.best(), search.status(0), search.clock) == (True, (1, 0.4), "stopped", 3)


def test_needed_segments_name_what_the_next_decision_waits_for() -> None:
    search = halving()
    while not search.is_over:
        needed, decided = search.needed(), len(search.decisions)
        assert [segment.trial for segment in needed] == sorted(segment.trial for segment in needed)
        for segment in needed:
            search.tell(segment.trial, segment.end, value(segment.trial, segment.end))
        assert len(search.decisions) > decided


def test_nobody_is_likely_to_go_on_where_too_few_come_to_a_rung() -> None:
    rule = Halving((1, 3, 9), eta=3)
    for trial in range(6):
        rule.arrived(trial, 1, float(trial))
    rule.arrived(0, 3, 0.0)
    assert list(rule.likely()) == [Segment(0, 3, 9), Segment(1, 1, 3)]
    assert list(rule.likely(6)) == [Segment(1, 1, 3)]
    assert list(rule.likely(9)) == list(rule.likely())


def test_what_is_ahead_comes_true_where_results_come_in_virtual_order() -> None:
    search = Search(Whole(3), Numbered(), cost, width=2, trials=5)
    assert search.ahead() == (Segment(2, 0, 3), Segment(3, 0, 3), Segment(4, 0, 3))
    assert search.ahead(most=1) == (Segment(2, 0, 3),)
    search.tell(3, 3, 0.5)
    assert search.ahead() == (Segment(2, 0, 3), Segment(4, 0, 3))


def test_only_what_does_not_depend_on_unknown_results_is_ahead() -> None:
    search = halving(prefetch=2)
    assert [segment.trial for segment in search.ahead()] == [4, 5]
    assert search.values(5)
    with pytest.raises(KeyError, match="prefetch is 2"):
        search.values(6)


def test_promotions_that_are_likely_come_first_and_best_first() -> None:
    search = Search(Halving((1, 3), 3), Numbered(), lambda trial, values: 1, width=6, trials=9)
    for trial in (5, 4, 3, 2, 1):
        search.tell(trial, 1, float(trial))
    assert search.ahead(most=2) == (Segment(1, 1, 3), Segment(6, 0, 1))  # one third of five is one
    search.tell(1, 3, 0.5)
    assert search.ahead(most=1) == (Segment(6, 0, 1),)


def test_more_is_better_where_it_is_said() -> None:
    search = Search(Whole(1), Numbered(), cost, width=2, trials=2, maximise=True)
    search.tell(0, 1, 0.25)
    search.tell(1, 1, 0.75)
    assert search.best() == (1, 0.75) and search.outcome(0).value == 0.25


def test_failed_trials_are_results() -> None:
    search = Search(Halving((1, 2), 2), Numbered(), cost, width=1, trials=4)
    for trial in range(4):
        search.tell(trial, 1, math.inf if trial % 2 else None)
    assert search.is_over and search.best() is None
    assert [search.status(trial) for trial in range(4)] == ["failed"] * 4


def test_a_result_that_contradicts_itself_is_refused() -> None:
    search = halving()
    search.tell(0, 1, 0.5)
    assert search.tell(0, 1, 0.5) == ()
    with pytest.raises(ValueError, match="trial 0 had another value after 1 epochs"):
        search.tell(0, 1, 0.6)


def test_more_trials_later_keep_the_first_decisions() -> None:
    first = drive(halving(trials=60), value)
    before = list(first.decisions)
    first.changed(Change(first.clock, trials=100))
    drive(first, value)
    assert first.decisions[: len(before)] == before
    assert first.begun == 100
    again = halving(trials=60)
    again.changed(Change(before[-1].time, trials=100))
    assert drive(again, value, seed=5).digest() == first.digest()


@pytest.mark.parametrize("change", [{"width": 9}, {"width": 1}, {"trials": 50}])
def test_a_change_in_the_middle_comes_at_its_virtual_time(change: dict[str, Any]) -> None:
    live = halving(trials=40)
    while len(live.decisions) < 40:
        segment = live.needed()[0]
        live.tell(segment.trial, segment.end, value(segment.trial, segment.end))
    before, time = list(live.decisions), live.clock
    live.changed(Change(time, **change))
    drive(live, value, seed=1)
    assert live.decisions[: len(before)] == before
    plain = drive(halving(trials=40), value)
    assert plain.decisions != live.decisions
    for seed in range(3):
        again = halving(trials=40)
        again.changed(Change(time, **change))
        assert drive(again, value, seed).digest() == live.digest()


def test_a_change_of_the_past_is_refused() -> None:
    search = drive(halving(), value)
    with pytest.raises(ValueError, match="it is .* already"):
        search.changed(Change(search.clock - 1, width=2))


def test_a_search_that_was_ended_goes_on_as_if_nothing_had_been() -> None:
    whole = drive(halving(), value)
    cut = halving()
    while cut.clock < whole.clock // 2:
        segment = cut.needed()[0]
        cut.tell(segment.trial, segment.end, value(segment.trial, segment.end))
    time = cut.clock
    cut.changed(Change(time, over=True))
    for segment in cut.needed():  # of the same virtual time
        cut.tell(segment.trial, segment.end, value(segment.trial, segment.end))
    assert cut.is_over and cut.needed() == cut.ahead() == ()
    assert cut.decisions == whole.decisions[: len(cut.decisions)]
    cut.changed(Change(time, over=False))
    assert drive(cut, value, seed=3).digest() == whole.digest()


def test_epochs_bound_a_search_and_more_of_them_go_on_with_it() -> None:
    def used(search: Search) -> int:
        begun = [decision for decision in search.decisions if decision.kind in ("start", "resume")]
        return sum(decision.end - decision.start for decision in begun)

    search = drive(Search(Halving((1, 3, 9), 3), Numbered(), cost, 4, epochs=50), value)
    assert 44 < used(search) <= 50
    before = list(search.decisions)
    search.changed(Change(search.clock, epochs=80))
    drive(search, value)
    assert search.decisions[: len(before)] == before and 74 < used(search) <= 80


def test_values_that_are_remembered_are_not_suggested_again() -> None:
    first = drive(halving(prefetch=3), value)
    again = halving(prefetch=3)

    def fail(trial: int, records: Sequence[Record]) -> Mapping[str, Any]:
        raise AssertionError("suggested again")

    for trial in range(first.begun):
        again.remember(trial, first.values(trial))
    again._sampler.suggest = fail  # type: ignore[method-assign]
    assert drive(again, value).digest() == first.digest()


@pytest.mark.parametrize("wrong", [0, 1.5, True])
def test_a_cost_that_is_no_whole_number_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="a cost is a whole number"):
        Search(Whole(1), Numbered(), lambda trial, values: wrong, width=1, trials=1)


def test_a_search_without_bounds_is_refused() -> None:
    with pytest.raises(ValueError, match="without an end"):
        Search(Whole(1), Numbered(), cost, width=1)
    with pytest.raises(ValueError, match="width is 0"):
        Search(Whole(1), Numbered(), cost, width=0, trials=3)
