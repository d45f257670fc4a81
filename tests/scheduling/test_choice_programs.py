"""The integer program, choices by prices, and shares of time: each against a search of all that can be."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from benchmarks.heterogeneous.cbc_program import Cbc, available
from benchmarks.papers.gavel import ShareProgram, best_shares
from benchmarks.papers.sia import NONE, ChoiceProgram, Highs, Solver
from fleet.scheduling.variable_batch.priced_choices import best_choices

DEVICES, KINDS, CAPACITY = np.array([1, 2, 4, 1, 2]), np.array([0, 0, 0, 1, 1]), np.array([4, 2])
with_cbc = pytest.param(Cbc(), marks=pytest.mark.skipif(not available(), reason="cylp is not installed"))
solvers = pytest.mark.parametrize("solve", [Highs(), with_cbc], ids=["highs", "cbc"])


def drawn(seed: int, jobs: int = 4) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.1, 3.0, (jobs, len(DEVICES)))


def fits(chosen: tuple[int, ...]) -> bool:
    taken = [index for index in chosen if index != NONE]
    used = np.bincount(KINDS[taken], DEVICES[taken], len(CAPACITY)) if taken else np.zeros(2)
    return bool((used <= CAPACITY).all())


def best_worth(worth: np.ndarray) -> float:
    rows = range(len(worth))
    every = product(range(-1, len(DEVICES)), repeat=len(worth))
    return max(sum(worth[row, c] for row, c in zip(rows, chosen) if c != NONE) for chosen in every if fits(chosen))


@solvers
@pytest.mark.parametrize("seed", range(5))
def test_the_program_finds_the_best(seed: int, solve: Solver) -> None:
    worth = drawn(seed).round(2)  # as Sia's costs are
    chosen = solve(ChoiceProgram(-worth, DEVICES, KINDS, CAPACITY, np.full(4, NONE)), 1e-9)
    assert fits(tuple(chosen.tolist()))
    assert sum(worth[row, c] for row, c in enumerate(chosen) if c != NONE) == pytest.approx(best_worth(worth))


@solvers
def test_a_fixed_job_keeps_its_configuration(solve: Solver) -> None:
    fixed = np.array([2, NONE, NONE, NONE])
    chosen = solve(ChoiceProgram(-drawn(0), DEVICES, KINDS, CAPACITY, fixed), 1e-9)
    assert chosen[0] == 2 and all(KINDS[c] == 1 for c in chosen[1:] if c != NONE)


@pytest.mark.parametrize("seed", range(10))
def test_prices_bound_the_best_and_come_near_it(seed: int) -> None:
    worth = drawn(seed)
    found = best_choices(worth, np.zeros(4), DEVICES, KINDS, CAPACITY)
    best = best_worth(worth)
    assert fits(tuple(found.chosen.tolist()))
    assert 0.75 * best <= found.worth <= best + 1e-9 and best <= found.bound + 1e-9


def test_of_choices_alike_to_a_job_it_has_those_that_leave_others_theirs() -> None:
    worth = np.array([[1.9, 2.8, 2.8, 2.0, 2.8], [0.7, 1.5, 3.0, 0.4, 0.8]])  # the first gains no more beyond 2.8
    found = best_choices(worth, np.zeros(2), DEVICES, KINDS, CAPACITY)
    assert found.chosen.tolist() == [4, 2] and found.worth == pytest.approx(found.bound) == pytest.approx(5.8)


def test_nothing_is_given_that_cannot_be_had() -> None:
    worth = drawn(1)
    worth[0], worth[1, :3] = -np.inf, -np.inf
    chosen = best_choices(worth, np.zeros(4), DEVICES, KINDS, CAPACITY).chosen
    assert chosen[0] == NONE and chosen[1] not in (0, 1, 2)


def test_shares_are_those_of_the_linear_program() -> None:
    from scipy.optimize import linprog

    rates, devices, capacity = drawn(3)[:, :2], np.array([1, 2, 4, 2]), np.array([4, 2])
    shares = best_shares(ShareProgram(rates, devices, capacity))
    rows = np.zeros((6, 8))
    for job, kind in product(range(4), range(2)):
        rows[job, 2 * job + kind], rows[4 + kind, 2 * job + kind] = 1, devices[job]
    told = linprog(-rates.ravel(), rows, np.concatenate((np.ones(4), capacity)), bounds=(0, 1))
    assert (shares * rates).sum() == pytest.approx(-told.fun, rel=1e-6)
    assert (shares.sum(axis=1) <= 1 + 1e-6).all() and (devices @ shares <= capacity + 1e-6).all()


def test_jobs_that_are_alike_get_alike_shares() -> None:
    shares = best_shares(ShareProgram(np.ones((4, 1)), np.ones(4, dtype=int), np.array([2])))
    assert shares[:, 0] == pytest.approx([0.5] * 4, abs=1e-3)


def test_many_jobs_that_are_alike_get_alike_shares_where_others_are_in_their_way() -> None:
    kinds = [  # steps/s on three kinds, devices of the gang, jobs: four hours into Sia's workload saturn-5
        ([1.096, 1.0225, 0.7025], 4, 7), ([0.4693, 0.5155, 0.5327], 12, 4), ([2.4858, 11.4463, 4.0394], 16, 4),
        ([1.9532, 9.8723, 3.8954], 12, 4), ([2.1373, 11.3395, 4.8269], 8, 4), ([1.2363, 7.9113, 3.0718], 8, 1),
        ([1.4084, 7.9749, 3.1245], 4, 4),
    ]  # fmt: skip
    counts = [jobs for _, _, jobs in kinds]
    rates = np.repeat([steps for steps, _, _ in kinds], counts, axis=0)
    devices = np.repeat([gang for _, gang, _ in kinds], counts)
    shares = best_shares(ShareProgram(rates, devices, np.array([24, 16, 24])))
    first = np.repeat(np.cumsum([0, *counts[:-1]]), counts)
    assert np.abs(shares - shares[first]).max() < 1e-6


@pytest.mark.parametrize("jobs", [1, 400])
def test_filling_ends_and_its_plan_is_within_its_bound(jobs: int) -> None:
    found = best_choices(drawn(jobs, jobs), np.zeros(jobs), DEVICES, KINDS, CAPACITY)
    assert fits(tuple(found.chosen.tolist())) and 0 < found.worth <= found.bound + 1e-9


def test_jobs_keep_what_they_have_where_nothing_is_worth_more() -> None:
    worth = np.ones((2, len(DEVICES)))
    for held in ([0, 3], [3, 0]):
        found = best_choices(worth, np.full(2, -0.5), DEVICES, KINDS, CAPACITY, np.array(held))
        assert found.worth == 2 and fits(tuple(found.chosen.tolist()))
    kept = best_choices(drawn(2), np.zeros(4), DEVICES, KINDS, CAPACITY, np.array([2, NONE, NONE, 4]))
    assert kept.worth >= best_choices(drawn(2), np.zeros(4), DEVICES, KINDS, CAPACITY).worth


def test_what_a_job_holds_but_may_not_have_any_more_is_not_kept() -> None:
    worth = drawn(1)
    worth[0, 2] = -np.inf
    found = best_choices(worth, np.zeros(4), DEVICES, KINDS, CAPACITY, np.array([2, NONE, NONE, NONE]))
    assert np.isfinite(found.worth) and found.chosen[0] != 2
