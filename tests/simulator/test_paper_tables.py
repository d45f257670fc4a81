"""What the benchmark tells of FLEET's figures and tables, taken from one simulated ensemble."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.simulated.calibrated_ensemble import CHECKPOINT, JUDGED_ON, SIZES, Trained, trained
from benchmarks.simulated.paper_tables import (
    FLOTILLAS,
    flotilla_lengths,
    tell_gains,
    tell_lengths,
    tell_overheads,
    tell_own,
    tell_waiting,
    waiting,
)
from benchmarks.simulated.part import Part
from fleet.simulator.machines.machine import Costs
from fleet.spec.policies import policy


@pytest.fixture(scope="module")
def run() -> Trained:
    return trained(policy("flotilla", literal=True, delta=20.0), 80, JUDGED_ON, Costs(CHECKPOINT, CHECKPOINT))


def test_devices_are_held_or_wait(run: Trained) -> None:
    assert 0 < waiting(run) < run.seconds
    assert waiting(run) + run.outcome.held.mean() == pytest.approx(run.seconds)


def test_a_flotilla_s_networks_run_until_they_or_it_end(run: Trained) -> None:
    assert len(run.planned) == run.rounds
    lengths = flotilla_lengths(run)
    assert lengths.shape == (len(FLOTILLAS), 2) and np.isfinite(lengths).all()
    for (mean, deviation), one in zip(lengths.tolist(), run.planned):
        assert 0 < mean <= one.end - one.start and 0 <= deviation <= one.end - one.start
    assert np.isnan(flotilla_lengths(run, run.rounds + 1)[-1]).all(), "there are no more flotillas"


def test_the_tables_have_a_row_for_each_size_method_or_flotilla() -> None:
    part, shape = Part(), (3, len(SIZES))
    values = {name: np.full(shape, 2.0) for name in ("FLEET-G", "FLEET-L", "Baseline", "Homogeneous", "flotilla")}
    tell_gains(part, {"FLEET-G": np.linspace(1, 2, len(SIZES)) * np.ones(shape)})
    tell_own(part, values)
    tell_waiting(part, values, values)
    tell_lengths(part, [np.full((len(FLOTILLAS), 2), 5.0)])
    tell_overheads(part, np.full(len(SIZES), 100.0), np.full(len(SIZES), 2.0), np.full(len(SIZES), 0.5))
    assert [len(table["rows"]) for table in part.tables] == [1, len(SIZES), len(SIZES), len(FLOTILLAS), len(SIZES)]
    assert all(len(row) == len(table["columns"]) for table in part.tables for row in table["rows"])
    (gains,) = part.tables[0]["rows"]
    assert gains == ["FLEET-G", "1.00 (20 GPUs)", "2.00 (160 GPUs)", "1.12 to 1.92", "6 of 8"]
    assert part.tables[4]["rows"][0][3:5] == ["69", "69.0%"]
