"""Losses in simulations: policies see those of finished epochs, and drawn ones are as hard to read as measured ones."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.simulated.drawn_ensemble import Ensemble, ensemble_trace
from benchmarks.simulated.drawn_losses import drawn_losses, flat_after
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.policy import Plan, State
from fleet.scheduling.model.remaining_epochs import epochs_from_losses
from fleet.scheduling.policies.wrappers import WrappedPolicy
from fleet.simulator.machines.machine import MeasuredMachine, RunRates
from fleet.simulator.simulation import Simulation
from fleet.simulator.traces import read_trace
from fleet.spec.policies import policy
from tests.simulator.support.published import published

PARTS = (0.25, 0.4, 0.5, 0.6, 0.75, 0.9)
"""Of a training, after which its end is foretold."""


class Watched(WrappedPolicy):
    """A policy, and what it was shown: by job, pairs of epochs trained and losses."""

    def __init__(self, name: str) -> None:
        super().__init__(policy(name))
        self.shown: dict[str, list[tuple[float, tuple[float, ...]]]] = {}

    def plan(self, state: State) -> Plan:
        for job in state.jobs:
            self.shown.setdefault(job.name, []).append((job.trained_at(state.time) / job.epoch, job.losses))
        return self._policy.plan(state)


@pytest.mark.parametrize("name", ["malleable", "sharing", "tiresias"])
def test_policies_see_the_losses_of_finished_epochs_and_no_others(name: str) -> None:
    trace = ensemble_trace(Ensemble(networks=12), 8, seed=5)
    curves = {job.name: tuple(1 / np.arange(1.0, (job.epochs or 0) + 1)) for job in trace}
    watched = Watched(name)
    machine = MeasuredMachine(Cluster((4, 4)), RunRates(trace.curves))
    outcome = Simulation(trace.with_losses(curves), machine, watched).run()
    assert outcome.finished.all()
    for job, seen in watched.shown.items():
        for epochs, losses in seen:
            assert losses == curves[job][: len(losses)]
            assert len(losses) in (int(epochs), int(epochs + 1e-6))
    assert max(len(losses) for seen in watched.shown.values() for _, losses in seen) > 3


def test_a_simulation_without_losses_shows_none() -> None:
    trace, watched = ensemble_trace(Ensemble(networks=6), 4, seed=5), Watched("malleable")
    Simulation(trace, MeasuredMachine(Cluster((4,)), RunRates(trace.curves)), watched).run()
    assert watched.shown and all(not losses for seen in watched.shown.values() for _, losses in seen)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 80), st.integers(0, 100))
def test_a_drawn_curve_is_not_flat_long_before_its_end(epochs: int, seed: int) -> None:
    losses = drawn_losses(epochs, seed, "network-3")
    assert len(losses) == epochs and np.isfinite(losses).all()
    assert losses == drawn_losses(epochs, seed, "network-3") != drawn_losses(epochs, seed, "network-4")
    if epochs > 5:
        assert flat_after(np.array(losses)) >= 0.7 * epochs


def test_most_drawn_curves_are_flat_at_their_end() -> None:
    found = [flat_after(np.array(drawn_losses(epochs, 1, f"network-{epochs}"))) == epochs for epochs in range(6, 61)]
    assert sum(map(bool, found)) >= 50


def foretold(curves: list[tuple[int, list[float]]]) -> dict[float, list[float]]:
    """Part of a training -> ln(told / true epochs) of each curve with enough losses by then."""
    errors: dict[float, list[float]] = {part: [] for part in PARTS}
    for end, losses in curves:
        for part in PARTS:
            left = epochs_from_losses(tuple(losses[: int(end * part)]))
            if left is not None:
                errors[part].append(float(np.log((int(end * part) + left) / end)))
    return errors


def measured(folder: Path) -> list[tuple[int, list[float]]]:
    """Errors by epoch, and when they are flat, of the trainings that Pollux measured for 20 epochs and more."""
    found = []
    for path in sorted(folder.glob("*/validation-*.csv")):
        with path.open() as file:
            metric = np.array([float(row["metric"]) for row in csv.DictReader(file)])
        falling = metric if metric[-1] < metric[0] else (100 if metric.max() > 1.5 else 1) - metric
        if len(metric) >= 20 and np.isfinite(end := flat_after(falling)):
            found.append((int(end), falling.tolist()))
    return found


def test_drawn_curves_are_as_hard_to_foretell_as_those_that_pollux_measured() -> None:
    there = measured(published("measurements/pollux_osdi21"))
    ends = np.resize([end for end, _ in there], 200).tolist()
    here = [(end, list(drawn_losses(end, 7, f"network-{index}"))) for index, end in enumerate(ends)]
    spreads = []
    for part, errors in foretold(there).items():
        drawn = foretold(here)[part]
        assert abs(np.median(errors)) < 0.1 and abs(np.median(drawn)) < 0.1, part
        spreads.append((np.std(errors), np.std(drawn)))
    true, ours = np.mean(spreads, axis=0)
    assert 0.2 < true < 0.3 and true * 0.85 < ours < true * 1.2


def test_a_run_shows_its_own_losses(tmp_path: Path) -> None:
    job = {"event": "job", "job": "a", "batch_size": 10, "virtual_workers": 1, "samples": 100, "max_epochs": 5, "t": 0}
    common = {"t": 1.0, "event": "epoch", "job": "a", "devices": [0]}
    epochs = [
        {**common, "epoch": epoch, "step": 10 * epoch, "metrics": {"loss": loss}}
        for epoch, loss in ((1, 0.9), (2, 0.5), (3, 0.4), (2, 0.6), (5, 0.1))
    ]
    rates = {"event": "rates", "t": 0, "job": "a", "measured": {"1": 10.0}}
    (tmp_path / "journal.jsonl").write_text("".join(json.dumps(event) + "\n" for event in (job, rates, *epochs)))
    assert read_trace(tmp_path, "journal").losses == {"a": (0.9, 0.6, 0.4)}
