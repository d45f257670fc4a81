"""The least that jobs can cost at given prices, which bounds every plan: beside paths drawn at random."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.heterogeneous.least_paths import GRID, LeastPaths, Prices, Work
from fleet.scheduling.model.arrays import Floats

SLOT, SLOTS = 2 * GRID, 400
RESTART, ALONE = 80.0, 900.0
PACES = np.array([[1 / ALONE, 1 / 2000, 1 / 5000]])
DEVICES = np.array([8.0, 4.0, 1.0])


def prices(seed: int) -> Prices:
    """A price of a device in each slot, which rises and falls; and so rents."""
    steps = np.random.default_rng(seed).normal(0.0, 0.03, SLOTS)
    return Prices.of(SLOT, np.abs(steps.cumsum())[:, np.newaxis] * DEVICES)


def cost_of_a_path(work: Work, arrival: float, at: Prices, draws: np.random.Generator) -> float:
    """Seconds until the end, and rents, of a job that waits, moves and gives devices up at times drawn at random."""
    time, done, paid = arrival, 0.0, 0.0
    while True:
        time += float(draws.choice([0.0, draws.exponential(300.0)]))
        configuration, stays = int(draws.integers(len(DEVICES))), float(draws.exponential(1500.0))
        pace = float(work.paces[0, configuration])
        trains = min(stays, (1 - done) / pace)
        end = time + work.restart + trains
        paid += float(at.paid(np.array([time]), np.array([end]))[0, configuration])
        time, done = end, done + trains * pace
        if done > 1 - 1e-9:
            return time - arrival + paid


@pytest.mark.parametrize("seed", range(8))
def test_no_path_costs_less(seed: int) -> None:
    draws, work, at = np.random.default_rng(seed), Work(RESTART, ALONE, PACES), prices(seed)
    arrivals = draws.uniform(0.0, 3000.0, 4)
    least = LeastPaths(work, arrivals, at).least().cost
    for arrival, cost in zip(arrivals.tolist(), least.tolist()):
        found = [cost_of_a_path(work, arrival, at, draws) for _ in range(300)]
        assert cost <= min(found)
        assert cost >= RESTART // GRID * GRID + ALONE - GRID, "no job is done sooner than alone"


def test_where_devices_cost_nothing_a_job_takes_its_restart_and_its_training() -> None:
    work = Work(2 * GRID, ALONE, PACES)
    at = Prices.of(SLOT, np.zeros((SLOTS, len(DEVICES))))
    least = LeastPaths(work, np.array([0.0, 10.0, 333.0]), at).least()
    assert least.cost == pytest.approx([work.restart + ALONE] * 3, abs=GRID)
    assert (least.cost <= work.restart + ALONE + 1e-6).all()


def test_a_restart_is_paid_for_in_devices() -> None:
    at = Prices.of(SLOT, np.full((SLOTS, 1), 0.5))
    soon, late = (
        LeastPaths(Work(restart, ALONE, PACES[:, :1]), np.array([0.0]), at).least().cost[0] for restart in (50.0, 250.0)
    )
    assert late - soon == pytest.approx(200 * 1.5, rel=0.1)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_used_is_how_the_cost_changes_with_rents(seed: int) -> None:
    draws, at, work = np.random.default_rng(seed), prices(seed), Work(RESTART, ALONE, PACES)
    arrivals = GRID * draws.integers(0, 100, 5).astype(np.float64)
    paths = LeastPaths(work, arrivals, at)
    least = paths.least()
    used: Floats = paths.used(least)
    more = 1e-6 * draws.uniform(0.0, 1.0, at.rents.shape)
    dearer = LeastPaths(work, arrivals, Prices.of(SLOT, at.rents + more)).least()
    assert used.min() >= 0 and used.sum(axis=1).max() <= len(arrivals) * SLOT + 1e-6
    assert (dearer.cost - least.cost).sum() == pytest.approx((used * more).sum(), rel=0.05)


def test_a_restart_shorter_than_the_grid_is_refused() -> None:
    with pytest.raises(ValueError, match="shorter than a step of the grid"):
        LeastPaths(Work(GRID / 2, ALONE, PACES), np.zeros(1), prices(0))
