"""How likely trials are among the best of all, and which go on for it."""

from __future__ import annotations

import random
from math import comb

import pytest

from fleet.search import Search, Segment
from fleet.search.chances import NEARLY_SURE, LikelyRanks, Probable, Ranking, chance_of_best, chances_by_rank
from fleet.search.halving import Halving, SynchronousHalving
from tests.search.support.driving import drive
from tests.search.support.numbered import Numbered

RUNGS = (1, 3, 9)


def exact(rank: int, known: int, size: int, quota: int) -> float:
    ways = sum(comb(quota, x) * comb(size - quota, known - x) for x in range(rank + 1, min(quota, known) + 1))
    return ways / comb(size, known)


def test_a_chance_is_that_of_the_hypergeometric_distribution() -> None:
    draw = random.Random(7)
    for _ in range(2000):
        size = draw.randint(1, 80)
        known, quota = draw.randint(1, size), draw.randint(0, size)
        rank = draw.randint(0, known - 1)
        assert chance_of_best(rank, known, size, quota) == pytest.approx(exact(rank, known, size, quota), abs=1e-12)


def test_the_chances_of_many_are_those_of_simulated_draws() -> None:
    draw, size, known, quota, rank = random.Random(3), 3000, 900, 1000, 299
    better = [sorted(draw.sample(range(size), known))[rank] for _ in range(4000)]
    found = sum(place < quota for place in better) / len(better)
    assert chance_of_best(rank, known, size, quota) == pytest.approx(found, abs=0.03)


def test_where_more_have_come_than_should_these_are_all() -> None:
    assert [chance_of_best(rank, 12, 9, 4) for rank in (3, 4)] == [1.0, 0.0]


@pytest.mark.parametrize("chance", [1 / 3, 0.9, NEARLY_SURE])
def test_more_ranks_are_likely_as_more_are_known(chance: float) -> None:
    ranks = LikelyRanks(3, chance)
    found = [ranks.of(0, known, 60) for known in range(1, 61)]
    assert found == sorted(found) and found[-1] == 20
    for known, count in enumerate(found, 1):
        assert not count or chance_of_best(count - 1, known, 60, 20) >= chance
        assert count == known or chance_of_best(count, known, 60, 20) < chance
    assert ranks.of(0, 30, 90) == LikelyRanks(3, chance).of(0, 30, 90), "it went by the chances of another search"


def test_the_chances_of_all_ranks_are_those_of_each() -> None:
    draw = random.Random(11)
    for _ in range(1000):
        size = draw.randint(1, 300)
        known, quota = draw.randint(1, size + 3), draw.randint(0, size)
        each = [chance_of_best(rank, known, size, quota) for rank in range(known)]
        assert chances_by_rank(known, size, quota).tolist() == pytest.approx(each, abs=1e-12)


def rungs_of(*losses: dict[int, float]) -> list[Ranking]:
    rungs = [Ranking() for _ in losses]
    for rung, given in zip(rungs, losses):
        for trial, loss in given.items():
            rung.add(trial, loss)
    return rungs


def test_a_trial_that_leads_at_one_rung_and_not_below_is_not_promising() -> None:
    rungs = rungs_of({trial: float(trial) for trial in range(27)}, {0: 5.0, 20: 1.0}, {})
    found = Probable(rungs, 3)
    assert not found.is_promising(20, 1, 27) and found.is_promising(0, 0, 27)
    assert found.chance(20, 1, 27) == found.chance(7, 1, 27) == 0.0, "one is bad below, the other has not come"
    assert (20, 1) not in list(found.onward(27))


def test_the_chance_to_go_on_is_what_all_rungs_tell_together() -> None:
    """One trial has come to the second rung, and leads at the first of 12: P(X > 0) is 1 - C(24, 12) / C(27, 12)."""
    first = {trial: float(trial) for trial in range(12)}
    alone = Probable(rungs_of(first, {0: 0.0}, {}), 3)
    below = 1 - comb(24, 12) / comb(27, 12)
    assert alone.chance(0, 1, 27) == pytest.approx((below / 3) ** 0.5) and next(alone.onward(27)) == (0, 1)
    fifth = Probable(rungs_of(first, {4: 0.0}, {}), 3)
    assert fifth.chance(4, 1, 27) < 0.5 and (4, 1) not in list(fifth.onward(27))
    led = Probable(rungs_of(first, {0: 0.0, 1: 1.0}, {}), 3)
    assert [trial for trial, level in led.onward(27) if level] == [0]
    assert led.chance(1, 1, 27) < 1 / 3 < led.chance(0, 1, 27)


def test_a_trial_that_failed_goes_on_from_nowhere() -> None:
    rungs = rungs_of({trial: float(trial) for trial in range(12)}, {}, {})
    rungs[1].add(0, None)
    assert Probable(rungs, 3).chance(0, 1, 27) == 0.0


def searched(confidence: float, trials: int, worth: list[float], width: int = 4) -> Search:
    found = Search(Halving(RUNGS, 3, confidence), Numbered(), lambda trial, values: 1, width, trials)
    return drive(found, lambda trial, epoch: worth[trial])


@pytest.mark.parametrize("seed", [None, *range(5)])
def test_confident_halving_trains_the_best_to_the_end_with_fewer_epochs(seed: int | None) -> None:
    """Also where each trial is better than the one before, so that ASHA lets most of the first go on."""
    worth = list(range(53, -1, -1))
    if seed is not None:
        random.Random(seed).shuffle(worth)
    plain, confident = (searched(each, 54, [float(one) for one in worth]) for each in (0.0, 0.99))
    trained = [sum(found.outcome(trial).epochs for trial in range(54)) for found in (plain, confident)]
    assert trained[1] <= trained[0] if seed is not None else trained[1] < 0.9 * trained[0]
    assert confident.best() == plain.best() == (worth.index(0), 0.0)
    best = {worth.index(rank) for rank in range(18)}
    assert best <= {trial for trial in range(54) if confident.outcome(trial).epochs > 1}


def test_what_a_search_was_told_of_more_trials_changes_nothing_that_was_decided() -> None:
    worth = [float((7 * trial) % 23) for trial in range(40)]
    whole, first = searched(0.99, 40, worth), searched(0.99, 20, worth)
    assert whole.decisions[:8] == first.decisions[:8] and whole.digest() != first.digest()


@pytest.mark.parametrize("rule", [Halving(RUNGS, 3), SynchronousHalving(RUNGS, 3)])
def test_the_leader_of_ten_of_27_is_probable_and_no_other(rule: Halving | SynchronousHalving) -> None:
    """It is among the best 9 with a chance of 0.9947, and 0.9896 as that of nine."""
    found = Search(rule, Numbered(), lambda trial, values: 100 - trial, 27, trials=27)
    for trial in range(9):
        found.tell(trial, 1, float(trial))
    assert not list(found.probable())
    found.tell(9, 1, 9.0)
    assert list(found.probable()) == [Segment(0, 1, 3)]
    found.tell(0, 3, 0.0)
    assert list(found.probable()) == [Segment(0, 3, 9)] and found.is_promising(Segment(0, 3, 9))
