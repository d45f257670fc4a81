"""The ensembles of the benchmark of speed-ups: drawn as told, and simulated as by hand."""

from __future__ import annotations

import pytest

from benchmarks.rehearsed_ensembles import (
    EFFICIENCY,
    FASTEST,
    NETWORKS,
    SAMPLES,
    SLOWEST,
    Network,
    draw_networks,
    simulated_seconds,
)


def test_the_same_seed_draws_the_same_ensemble() -> None:
    first, again, other = (draw_networks(seed) for seed in (3, 3, 4))
    assert first == again != other
    assert len({network.name for network in first}) == NETWORKS
    assert all(SLOWEST <= network.single <= FASTEST and 2 <= network.epochs <= 6 for network in first)


def test_the_largest_block_of_workers_sets_the_rate() -> None:
    rates = Network("a", 100.0, 2).rates
    assert rates[1] == 100 and rates[8] == pytest.approx(800 * EFFICIENCY**7, rel=1e-4)
    assert rates[3] == pytest.approx(100 * EFFICIENCY**2 * 8 / 3, rel=1e-4), "3 of 8 workers on one device"


def test_one_network_a_device_takes_as_long_as_the_slowest() -> None:
    networks = [Network("fast", 160.0, 4), Network("slow", 40.0, 2)]
    assert simulated_seconds(networks, 6, "baseline", 0.0) == pytest.approx(2 * SAMPLES / 40)
    assert simulated_seconds(networks, 6, "baseline", 1.5) == pytest.approx(2 * SAMPLES / 40 + 1.5)
    assert simulated_seconds(networks, 6, "flotilla", 0.0) < 2 * SAMPLES / 40 / 2


def test_flotillas_gain_where_there_is_a_device_for_each_network() -> None:
    for seed in range(3):
        networks = draw_networks(seed)
        baseline, flotilla = (simulated_seconds(networks, 24, name, 0.5) for name in ("baseline", "flotilla"))
        assert baseline > 1.2 * flotilla
