"""Which trials go on, against examples worked by hand and against ASHA as its paper writes it."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import pytest

from fleet.search import Change, Search, Segment, StoppingRule
from fleet.search.halving import Halving, Hyperband, SynchronousHalving, spread
from fleet.search.to_the_end import Median, Whole
from tests.search.support.curves import cost, drawn, value
from tests.search.support.driving import drive
from tests.search.support.numbered import Numbered
from tests.search.support.plain_asha import plain_asha

RULES: dict[str, Callable[[], StoppingRule]] = {
    "none": lambda: Whole(9),
    "halving": lambda: Halving((1, 3, 9), 3),
    "confident": lambda: Halving((1, 3, 9), 3, 0.9),
    "synchronous": lambda: SynchronousHalving((1, 3, 9), 3),
    "hyperband": lambda: Hyperband((1, 3, 9), 3),
    "median": lambda: Median(9, grace=2),
}


def search(rule: StoppingRule, width: int = 4, trials: int = 30) -> Search:
    return Search(rule, Numbered(), cost, width, trials)


def begun(found: Search) -> list[tuple[int, int, int, int]]:
    """(time, trial, start, end) of the segments that began."""
    kinds = ("start", "resume")
    return [(each.time, each.trial, each.start, each.end) for each in found.decisions if each.kind in kinds]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("width", [1, 5])
def test_any_order_of_results_gives_one_list_of_decisions(rule: str, width: int) -> None:
    found = {
        drive(search(RULES[rule](), width), value, seed, early).digest() for seed in range(4) for early in (0, 0.6)
    }
    assert len(found) == 1


@pytest.mark.parametrize("rule", RULES)
def test_more_trials_later_keep_the_first_decisions(rule: str) -> None:
    grown = drive(search(RULES[rule]()), value)
    first, time = list(grown.decisions), grown.clock
    grown.changed(Change(time, trials=50))
    assert drive(grown, value, 1).decisions[: len(first)] == first and grown.begun == 50
    again = search(RULES[rule]())
    again.changed(Change(time, trials=50))
    assert drive(again, value, 2).digest() == grown.digest()


@pytest.mark.parametrize("devices", [1, 3, 8])
@pytest.mark.parametrize("eta", [2, 3])
def test_halving_decides_as_plain_asha_where_costs_are_exact(devices: int, eta: int) -> None:
    found = drive(search(Halving((1, 3, 9), eta), devices, 50), value, early=0)
    assert begun(found) == plain_asha(50, (1, 3, 9), eta, devices, value)


def test_synchronous_halving_by_hand() -> None:
    """Nine trials whose loss is their number: three go on to 3 epochs, one to 9."""
    found = drive(search(SynchronousHalving((1, 3, 9), 3), 2, 9), lambda trial, epoch: float(8 - trial))
    assert [each[1:] for each in begun(found)] == [
        *((trial, 0, 1) for trial in range(9)), (8, 1, 3), (7, 1, 3), (6, 1, 3), (8, 3, 9),
    ]  # fmt: skip
    assert found.best() == (8, 0.0) and found.status(8) == "done" and found.status(7) == "stopped"


def test_synchronous_halving_lets_one_go_on_at_least_and_none_that_failed() -> None:
    two = drive(search(SynchronousHalving((1, 3), 3), 2, 2), lambda trial, epoch: float(trial))
    assert begun(two)[-1][1:] == (0, 1, 3)
    none = drive(search(SynchronousHalving((1, 3), 3), 2, 4), lambda trial, epoch: None)
    assert len(begun(none)) == 4 and none.best() is None


def test_synchronous_halving_compares_added_trials_among_themselves() -> None:
    found = drive(search(SynchronousHalving((1, 3), 3), 2, 6), lambda trial, epoch: float(trial))
    found.changed(Change(found.clock, trials=9))
    drive(found, lambda trial, epoch: float(trial))
    assert [each[1:] for each in begun(found)][-4:] == [(6, 0, 1), (7, 0, 1), (8, 0, 1), (6, 1, 3)]


def test_hyperband_gives_its_brackets_what_the_paper_gives_them() -> None:
    """R = 9, eta = 3: 9 trials begin at 1 epoch, 5 at 3 and 3 at 9 (Li et al., 2018, Algorithm 1)."""
    rule = Hyperband((1, 3, 9), 3)
    for first in (0, 17):
        ends = [rule.first(trial).end for trial in range(first, first + 17)]
        assert [ends.count(end) for end in (1, 3, 9)] == [9, 5, 3]
    assert spread([9, 5, 3])[:6].count(0) in (3, 4)


def test_hyperband_ranks_within_its_brackets() -> None:
    rule = Hyperband((1, 3), 2)
    brackets = [rule.bracket(trial) for trial in range(4)]
    mine = [trial for trial in range(12) if rule.bracket(trial) == 0][:4]
    assert set(brackets) == {0, 1}
    for trial in mine:
        rule.report(trial, 1, float(trial))
    other = next(trial for trial in range(12) if rule.bracket(trial) == 1)
    rule.report(other, 3, 0.0)
    assert [rule.next(None), rule.next(None), rule.next(None)] == [Segment(mine[0], 1, 3), Segment(mine[1], 1, 3), None]


def test_median_stopping_by_hand() -> None:
    rule = Median(3, grace=1, least=2)
    assert rule.report(0, 1, 0.2) is None and rule.report(1, 1, 0.4) is None
    assert rule.report(2, 1, 0.35) == "stop"  # worse than 0.3, the median of 0.2 and 0.4
    assert rule.report(3, 1, 0.3) is None  # the median of 0.2, 0.35, 0.4 is 0.35
    assert [rule.next(7) for _ in range(4)] == [
        Segment(0, 1, 2), Segment(1, 1, 2), Segment(3, 1, 2), Segment(7, 0, 1),
    ]  # fmt: skip
    assert rule.report(0, 2, 0.6) is None and rule.report(1, 2, 0.2) is None  # means 0.4 and 0.3
    assert rule.report(3, 2, 0.9) is None  # its best is 0.3, the median of the means 0.35
    assert rule.report(0, 3, 0.1) == "done" and rule.report(1, 3, None) == "fail"


def test_median_stopping_stops_those_that_are_worse_and_keeps_the_best() -> None:
    def loss(trial: int, epoch: int) -> float:
        return drawn(trial, 0) + 1 / epoch

    found = drive(search(Median(9, grace=2), 4, 40), loss)
    stopped = [drawn(trial, 0) for trial in range(40) if found.status(trial) == "stopped"]
    done = [drawn(trial, 0) for trial in range(40) if found.status(trial) == "done"]
    assert len(stopped) > 5 and median(done) < median(stopped) and min(done) < min(stopped)


@pytest.mark.parametrize("rule", RULES)
def test_epochs_that_are_likely_to_be_wanted_are_ahead(rule: str) -> None:
    """Of what is trained ahead with two results at hand for each that is needed, most is wanted in the end."""
    found = search(RULES[rule](), width=6, trials=60)
    ahead: set[tuple[int, int]] = set()
    while not found.is_over:
        for segment in (*found.needed()[:1], *found.ahead(most=1)):
            ahead.add((segment.trial, segment.end))
            found.tell(segment.trial, segment.end, value(segment.trial, segment.end))
    wanted = {(trial, end) for _, trial, _, end in begun(found)}
    assert wanted <= ahead and len(ahead) <= 1.25 * len(wanted)
