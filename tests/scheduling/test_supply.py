"""Choices where the data path is scarce: against a search of all that can be, and by what they leave to others."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from fleet.scheduling.variable_batch.priced_choices import NONE, Supply, best_choices

DEVICES, KINDS, CAPACITY = np.array([1, 2, 1]), np.array([0, 0, 1]), np.array([3, 1])


def most_worth(worth: np.ndarray, fed: np.ndarray) -> float:
    """Of all choices within the devices, what cannot be fed left out."""
    supply, rows = Supply.of(DEVICES, KINDS, CAPACITY, fed), np.arange(len(worth))
    best = 0.0
    for every in product(range(-1, len(DEVICES)), repeat=len(worth)):
        chosen = np.array(every)
        if (supply.taken(chosen).sum(axis=0)[:-1] <= CAPACITY).all():
            has = chosen != NONE
            best = max(best, worth[rows[has], chosen[has]].sum() - supply.unfed(chosen, worth))
    return best


@pytest.mark.parametrize("seed", range(20))
def test_prices_bound_what_can_be_fed_and_come_near_it(seed: int) -> None:
    draw = np.random.default_rng(seed)
    worth, fed = draw.uniform(0.1, 3.0, (5, 3)), draw.uniform(0.0, 1.0, (5, 3))
    found = best_choices(worth, np.zeros(5), DEVICES, KINDS, CAPACITY, fed=fed)
    best = most_worth(worth, fed)
    used = Supply.of(DEVICES, KINDS, CAPACITY, fed).taken(found.chosen).sum(axis=0)
    assert (used[:-1] <= CAPACITY).all()
    assert 0.75 * best <= found.worth <= best + 1e-9 and best <= found.bound + 1e-9
    assert found.prices.shape == CAPACITY.shape


@pytest.mark.parametrize("seed", range(5))
def test_a_data_path_that_feeds_all_changes_nothing(seed: int) -> None:
    worth = np.random.default_rng(seed).uniform(0.1, 3.0, (5, 3))
    plain = best_choices(worth, np.zeros(5), DEVICES, KINDS, CAPACITY)
    fed = best_choices(worth, np.zeros(5), DEVICES, KINDS, CAPACITY, fed=np.zeros((5, 3)))
    assert fed.chosen.tolist() == plain.chosen.tolist() and fed.worth == plain.worth and fed.bound == plain.bound


def test_who_asks_for_much_trains_beside_who_asks_for_little() -> None:
    """Two devices, and four jobs of equal worth, of which two take nine tenths of the data path each."""
    worth, fed = np.ones((4, 1)), np.array([[0.9], [0.9], [0.1], [0.1]])
    chosen = best_choices(worth, np.zeros(4), np.array([1]), np.array([0]), np.array([2]), fed=fed).chosen
    assert sorted(chosen[:2]) != [0, 0] and (chosen >= 0).sum() == 2


def test_one_alone_has_devices_although_it_is_not_fed_in_full_beside_what_is_sure() -> None:
    worth, fed = np.array([[1.0], [1.0]]), np.array([[0.6], [0.8]])
    ways = np.array([1]), np.array([0]), np.array([2])
    sure = np.array([0, NONE])
    found = best_choices(worth, np.zeros(2), *ways, least=sure, fed=fed)
    assert found.chosen.tolist() == [0, 0], "half of what it asks for is there"
    assert found.worth == pytest.approx(2 - 0.4 / 0.8), "two fifths of the data path are missing, worth least to it"
    fed[0] = 0.7
    assert best_choices(worth, np.zeros(2), *ways, least=sure, fed=fed).chosen.tolist() == [0, NONE]
