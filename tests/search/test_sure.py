"""What a search says that it will want in any case, it wants, whatever the missing results come to."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from fleet.search import Change, Search, Segment, StoppingRule
from fleet.search.halving import Halving, Hyperband, SynchronousHalving
from fleet.search.population import Explorer, Population
from fleet.search.to_the_end import Median, Whole
from fleet.search.virtual_time import is_tail
from tests.search.support.curves import cost
from tests.search.support.numbered import Looking, Numbered

RUNGS = (1, 3, 9)
RULES: dict[str, Callable[[int], StoppingRule]] = {
    "halving": lambda eta: Halving(RUNGS, eta),
    "confident": lambda eta: Halving(RUNGS, eta, 0.9),
    "synchronous": lambda eta: SynchronousHalving(RUNGS, eta),
    "hyperband": lambda eta: Hyperband(RUNGS, eta),
}


def search(rule: StoppingRule, width: int = 2, trials: int = 9) -> Search:
    return Search(rule, Numbered(), cost, width, trials)


def tell(found: Search, *segments: tuple[int, int, float]) -> None:
    """Tell (trial, epoch, loss) of each."""
    for trial, epoch, loss in segments:
        found.tell(trial, epoch, loss)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("early", [0.0, 0.5, 0.9])
def test_all_that_is_sure_is_wanted_at_last(rule: str, early: float) -> None:
    """Losses are drawn as they are told, some of them fail, and many are equal."""
    said = 0
    for seed in range(60):
        draw = random.Random(f"{rule} {early} {seed}")
        found = search(RULES[rule](draw.choice((2, 3))), draw.choice((1, 2, 4, 8)), draw.choice((5, 9, 13, 27, 40)))
        sure = set[Segment]()
        while not found.is_over:
            now = tuple(found.sure(draw.choice((1, 2, 4))))
            assert not set(now).intersection(found.needed())
            sure.update(now)
            ahead = found.ahead() if draw.random() < early else now if draw.random() < 0.5 else ()
            one = draw.choice(ahead or found.needed())
            found.tell(one.trial, one.end, None if draw.random() < 0.05 else round(draw.random(), 1) + 1 / one.end)
        begun = {(each.trial, each.start, each.end) for each in found.decisions if each.kind in ("start", "resume")}
        assert begun.issuperset((each.trial, each.start, each.end) for each in sure)
        said += sum(each.start > 0 for each in sure)
    assert said > 60


def test_of_nine_trials_the_best_is_sure_to_go_on_when_six_are_not_better() -> None:
    """Three of nine go on, so that one of two which are missing may be better, and the other."""
    for rule in (Halving(RUNGS, 3), SynchronousHalving(RUNGS, 3)):
        found = search(rule, width=1)
        tell(found, *((trial, 1, 1.0 + trial) for trial in range(5, 0, -1)))
        assert not [each for each in found.sure(1) if each.start]
        tell(found, (6, 1, 9.0), (7, 1, 9.0))
        assert [each for each in found.sure(1) if each.start] == [Segment(1, 1, 3)]
        found.tell(8, 1, 0.0)
        assert {each for each in found.sure(1) if each.start} == {Segment(8, 1, 3), Segment(1, 1, 3)}


def test_all_that_go_on_behind_a_barrier_are_sure_although_the_width_lets_two_begin() -> None:
    found = search(SynchronousHalving(RUNGS, 3), width=2, trials=18)
    tell(found, *((trial, 1, float(trial)) for trial in range(18)))
    assert [each.trial for each in found.needed()] == [0, 1]
    assert list(found.sure(1)) == [Segment(trial, 1, 3) for trial in range(2, 6)]


def test_what_trained_ahead_without_being_wanted_makes_nobody_sure() -> None:
    """Trial 0 has trained to the second rung, and does not come there: of trials 1 to 3, which do, one goes on."""
    found = search(SynchronousHalving(RUNGS, 3), width=2)
    tell(found, (0, 1, 0.5), (0, 3, 0.5), *((trial, 1, 0.1 * trial) for trial in range(1, 4)))
    tell(found, (1, 3, 0.6), *((trial, 1, 9.0) for trial in range(4, 9)))
    assert Segment(1, 3, 9) not in set(found.sure(1))
    found.tell(2, 3, 0.7)
    assert Segment(1, 3, 9) not in set(found.sure(1))
    found.tell(3, 3, 0.8)
    assert Segment(1, 3, 9) in {*found.sure(1), *found.needed()}


def test_trials_that_come_later_are_compared_among_themselves() -> None:
    found = search(SynchronousHalving((1, 3), 3), trials=6)
    tell(found, *((trial, 1, 5.0 + trial) for trial in range(6)))
    found.changed(Change(found.clock, trials=9))
    tell(found, (6, 1, 0.0), (7, 1, 1.0))  # of the next three; of the first six two train still
    assert not [each for each in found.sure(1) if each.trial > 5 and each.start]
    tell(found, (0, 3, 0.0), (1, 3, 0.0), (8, 1, 2.0))
    assert Segment(6, 1, 3) in {*found.sure(1), *found.needed()}


@pytest.mark.parametrize("bound", ["epochs", "over"])
def test_nothing_is_sure_that_may_end_before(bound: str) -> None:
    epochs = 12 if bound == "epochs" else None
    found = Search(SynchronousHalving(RUNGS, 3), Numbered(), cost, 2, 9, epochs)
    if bound == "over":
        found.changed(Change(1000, over=True))
    tell(found, *((trial, 1, float(trial)) for trial in range(9)))
    assert not list(found.sure(1)) and not found.in_tail(64)


@pytest.mark.parametrize("rule", [Whole(9), Median(9), Population(9, 3, 0.25, Explorer({}, 1, 0.25, (0.8, 1.25)))])
def test_other_rules_are_sure_of_new_trials_alone(rule: StoppingRule) -> None:
    found = search(rule, trials=4)
    assert [each.trial for each in found.sure(64)] == [2, 3]
    first = found.needed()[0]
    assert found.further(first) == 9 - first.end


def test_new_trials_are_sure_once_the_last_of_them_may_be_the_last_to_end() -> None:
    """On two devices, 18 epochs: two that are needed, and of each new trial 4/3 behind its first."""
    rule = Halving(RUNGS, 3)
    needed = [Segment(0, 0, 1), Segment(1, 0, 1)]
    for each in (rule, SynchronousHalving(RUNGS, 3)):
        assert is_tail(each, needed, range(2, 13), (), 2) and not is_tail(each, needed, range(2, 14), (), 2)
        assert is_tail(each, needed, range(2, 14), (5,), 2), "what follows on one that is known is known as well"
        assert not is_tail(each, needed, range(2, 14), (30,), 2), "it is not among those that are to begin"
        assert is_tail(each, needed[:1] * 30, range(0), (), 2)
        lower = [Segment(trial, 1, 3) for trial in range(8)]  # 2 epochs follow on each, 6 at most: 16 with its own
        assert is_tail(each, lower, range(0), (), 2)
        assert not is_tail(each, [*lower, Segment(8, 3, 9)], range(0), (), 2)
    found = search(rule, trials=60)
    assert not list(found.sure(2)) and len(list(found.sure(64))) == 58
    learns = Search(Halving(RUNGS, 3), Looking(prefetch=1), cost, 2, 9)
    assert [each.trial for each in learns.sure(64)] == [2]


def test_brackets_of_hyperband_count_each_with_its_own_epochs() -> None:
    """9 trials begin at 1 epoch, 5 at 3 and 3 at 9; behind that come 4/3, 2 and none in the mean."""
    assert Hyperband(RUNGS, 3).mean_after_new(range(17)) == pytest.approx(9 * 4 / 3 + 5 * 2)
