"""Ensembles under FLEET's policies and ours: drawn as told, within the figures, and never below the bounds."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.simulated.calibrated_ensemble import CHECKPOINT, JUDGED_ON, drawn, trained
from benchmarks.simulated.drawn_ensemble import Ensemble, ensemble_trace
from benchmarks.simulated.one_stream_bound import one_stream_bound
from benchmarks.simulated.sharing import UNLIKE
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.policies.malleable import water_fill
from fleet.simulator.machines.machine import Costs, MeasuredMachine, RunRates
from fleet.simulator.simulation import Simulation, SimulationConfig
from fleet.spec.policies import policy

ANY = Costs(0.0, CHECKPOINT)
SMALL = Ensemble(networks=8, seconds=800.0, deviation=300.0, samples=1000, shape=0.5, tie=0.5)


def states(devices: int, seed: int) -> list[JobState]:
    curves: Mapping[str, object] = drawn(devices, seed, UNLIKE).curves
    return [JobState(name, curves[name], devices) for name in drawn(devices, seed, UNLIKE).jobs.name]  # type: ignore[arg-type]


def test_an_ensemble_has_the_figures_that_the_paper_gives() -> None:
    trace = ensemble_trace(Ensemble(shape=0.3, tie=0.5, families=3, width=0.4), 20, seed=3)
    jobs = trace.jobs
    single = np.array([trace.curves[name](1) for name in jobs.name])
    assert len(jobs) == 100 and single.min() == pytest.approx(21) and single.max() == pytest.approx(176)
    assert jobs.duration.mean() == pytest.approx(10372.2, rel=0.03)
    assert jobs.duration.std() == pytest.approx(4178.9, rel=0.1)
    np.testing.assert_allclose(jobs.duration, jobs.epochs * 30606 / single)
    assert trace.curves[jobs.name[0]](3) == pytest.approx(3 * single[0] * 0.97**2)


def test_the_same_seed_draws_the_same_ensemble() -> None:
    one, again, other = (ensemble_trace(SMALL, 8, seed) for seed in (1, 1, 2))
    assert one.jobs.samples.tolist() == again.jobs.samples.tolist() != other.jobs.samples.tolist()
    assert one.curves == again.curves


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"networks": 1}, "networks is 1"), ({"slowest": 200.0}, "slowest is 200"), ({"shape": 0.0}, "shape is 0"),
        ({"efficiency_spread": 0.1}, "efficiency_spread is 0.1"), ({"seconds": -1.0}, "seconds is -1"),
        ({"stride": 0}, "stride is 0"),
    ],
)  # fmt: skip
def test_impossible_ensembles_are_refused(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Ensemble(**wrong)  # type: ignore[arg-type]


@settings(max_examples=12)
@given(st.sampled_from([4, 8, 20]), st.integers(0, 99), st.sampled_from([0.0, 3.0]), st.data())
def test_no_policy_ends_before_the_bound(devices: int, seed: int, cost: float, data: st.DataObject) -> None:
    trace = ensemble_trace(SMALL, devices, seed)
    machine = MeasuredMachine(Cluster((4,) * (devices // 4)), RunRates(trace.curves), Costs(cost, cost))
    jobs = [JobState(name, trace.curves[name], devices) for name in trace.jobs.name]
    fluid = water_fill(jobs, trace.jobs.samples, devices).seconds
    stream = one_stream_bound(jobs, trace.jobs.samples, devices, steps=30)
    for name in ("flotilla", "local", "homogeneous", "baseline", "fifo", "malleable", "sharing"):
        slack = data.draw(st.sampled_from([0.0, 100.0]))
        outcome = Simulation(trace, machine, policy(name), config=SimulationConfig(slack=slack)).run()
        assert outcome.finished.all() and outcome.makespan >= fluid * (1 - 1e-6)
    for name in ("flotilla", "homogeneous"):  # all of a round go at one pace
        assert Simulation(trace, machine, policy(name)).run().makespan >= stream * (1 - 1e-6)


@pytest.mark.parametrize("size", [20, 80, 160])
def test_malleable_is_near_the_bound_with_known_epochs(size: int) -> None:
    found = trained(policy("malleable"), size, JUDGED_ON, ANY, ensemble=UNLIKE).seconds
    assert (
        found <= 1.035 * water_fill(states(size, JUDGED_ON), drawn(size, JUDGED_ON, UNLIKE).jobs.samples, size).seconds
    )


@pytest.mark.parametrize("size", [20, 160])
def test_sharing_beats_flotillas_without_knowing_how_long_jobs_train(size: int) -> None:
    mean = float(drawn(size, JUDGED_ON, UNLIKE).jobs.epochs.mean())
    blind = trained(policy("sharing", mean_epochs=mean), size, JUDGED_ON, ANY, ensemble=UNLIKE).seconds
    flotilla = trained(policy("flotilla"), size, JUDGED_ON, Costs(CHECKPOINT, CHECKPOINT), ensemble=UNLIKE)
    assert flotilla.seconds >= 1.1 * blind and flotilla.rounds > 10


@pytest.mark.parametrize(("size", "published"), [(40, 30204.8), (80, 21891.0), (160, 11825.2)])
def test_the_printed_flotilla_takes_about_as_long_as_was_published(size: int, published: float) -> None:
    literal = policy("flotilla", literal=True, delta=20.0)
    found = [trained(literal, size, JUDGED_ON + seed, Costs(CHECKPOINT, CHECKPOINT)).seconds for seed in range(4)]
    assert np.mean(found) == pytest.approx(published, rel=0.25)


def test_the_printed_policy_forms_about_as_many_flotillas_of_unlike_networks_as_were_published() -> None:
    literal = policy("flotilla", literal=True, delta=20.0)
    costs = Costs(CHECKPOINT, CHECKPOINT)
    found = [trained(literal, 80, JUDGED_ON + seed, costs, ensemble=UNLIKE).rounds for seed in range(3)]
    assert np.mean(found) == pytest.approx(24, rel=0.25)
