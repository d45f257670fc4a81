"""Elastic scaling with variable batch size on the paper's four categories, at a smaller size."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.simulated.drawn_batch_jobs import BatchJobs, batch_trace
from benchmarks.simulated.profiled_machine import ProfiledMachine
from benchmarks.simulated.published_profiles import FACTORS, FIVE_DEVICES, published_profiles
from fleet.scheduling.model.cluster import Cluster
from fleet.simulator.machines.machine import Costs, UnknownRate
from fleet.simulator.outcome import SimulationOutcome
from fleet.simulator.simulation import NodeFailure, Simulation
from fleet.simulator.traces import JobColumns, Trace, TraceJob
from fleet.spec.policies import policy
from tests.simulator.support.small_traces import Watched

PROFILES = published_profiles()
RESNET, VGG = "resnet50-cifar100", "vgg11_bn-cifar100"
HOUR = 3600.0


def simulate(
    trace: Trace, size: int, costs: Costs | None = None, failures: tuple[NodeFailure, ...] = (), **more: object
) -> SimulationOutcome:
    machine = ProfiledMachine(Cluster((2,) * (size // 2)), PROFILES, costs)
    return Simulation(trace, machine, policy("throughput", **more), failures).run()


def of(*jobs: TraceJob) -> Trace:
    return Trace.of(JobColumns.from_jobs(jobs))


def test_the_profiles_are_those_of_table_two() -> None:
    scaling = PROFILES[RESNET].scaling
    for each, factor in FACTORS.items():
        assert scaling.rate(2, 2 * each) / scaling.single == pytest.approx(factor)
    assert scaling.rate(5, 160) / scaling.single == pytest.approx(FIVE_DEVICES)
    best = {
        name: max(profile.scaling.best(profile.batches[0], profile.batches[0], 10).factors)
        for name, profile in PROFILES.items()
    }
    # IV-E: with their smallest batches category 1 is at best 1.3 times as much faster by scaling as category 2.
    assert best[RESNET] / best["alexnet-cifar100"] == pytest.approx(1.3, abs=0.05)
    assert all(profile.batches[1] <= profile.limit * profile.scaling.fits for profile in PROFILES.values())


def test_more_samples_that_fit_change_no_time_that_the_paper_tells() -> None:
    roomy = published_profiles(fits=4.0)
    assert [profile.scaling.fits for profile in roomy.values()] == [128, 128, 512, 128]
    for each, factor in FACTORS.items():
        scaling = roomy[RESNET].scaling
        assert scaling.rate(2, 2 * each) / PROFILES[RESNET].scaling.single == pytest.approx(factor)
    assert roomy[VGG].scaling.rate(1, 128) == pytest.approx(PROFILES[VGG].scaling.single)
    assert roomy[RESNET].scaling.single > PROFILES[RESNET].scaling.single
    assert published_profiles(fits=100.0)[RESNET].scaling.fits == 256, "no more than the largest batch"
    assert published_profiles(fits=0.85)[RESNET].scaling.rate(1, 28) == 0


def test_one_job_by_hand() -> None:
    scaling = PROFILES[RESNET].scaling
    trace = of(TraceJob("a", 0, 4, RESNET, batch_size=128, samples=1e6))
    assert simulate(trace, 2).end.tolist() == pytest.approx([1e6 / scaling.rate(2, 64)])
    assert simulate(trace, 4).end.tolist() == pytest.approx([1e6 / scaling.rate(4, 128)])
    assert simulate(trace, 4, batch="min").end.tolist() == pytest.approx([1e6 / scaling.rate(2, 32)])
    one = simulate(trace, 4, batch="fixed")
    assert one.end.tolist() == pytest.approx([1e6 / scaling.rate(4, 128)])
    assert one.sjs_efficiency == pytest.approx(scaling.rate(4, 128) / scaling.single / 4)
    assert simulate(trace, 2, batch="fixed").dropped.tolist() == [True], "128 samples need 4 devices"


def test_batches_shrink_so_that_others_find_room_and_grow_again() -> None:
    scaling = PROFILES[RESNET].scaling
    first, second = (
        TraceJob(name, at, 2, RESNET, 64, samples=much) for name, at, much in (("a", 0, 2e6), ("b", 100, 1e5))
    )
    trace = of(first, second)
    outcome = simulate(trace, 2)
    alone, together = scaling.rate(2, 64), scaling.rate(1, 32)
    b_end = 100 + 1e5 / together
    assert outcome.end.tolist() == pytest.approx([b_end + (2e6 - 100 * alone - 1e5) / alone, b_end])
    assert outcome.restarts.tolist() == [2, 0]
    assert simulate(trace, 2, batch="fixed").begin.tolist() == pytest.approx([0, 2e6 / alone])
    assert simulate(trace, 2, batch="fixed", queue=False).dropped.tolist() == [False, True]


def test_an_interval_spares_moves() -> None:
    trace = batch_trace(BatchJobs(HOUR, 8, "high"), PROFILES, 1)
    often, seldom = (simulate(trace, 8, Costs(restart=30), interval=interval) for interval in (0.0, 600.0))
    assert seldom.restarts.sum() < often.restarts.sum()
    assert often.finished.all() and seldom.finished.all()
    assert (np.isclose(seldom.begin % 600, 0) | np.isclose(seldom.begin % 600, 600)).all()


def test_a_failed_node_takes_no_job_out_of_the_line() -> None:
    trace = batch_trace(BatchJobs(HOUR, 8), PROFILES, 2)
    outcome = simulate(trace, 8, failures=(NodeFailure(1000.0, 0, until=3000.0), NodeFailure(1500.0, 2, until=2000.0)))
    assert outcome.finished.all()
    assert outcome.alone == pytest.approx(
        (trace.jobs.samples / [PROFILES[m].scaling.single for m in trace.jobs.model]).sum()
    )


def test_gains_over_the_baseline_at_a_smaller_size() -> None:
    gains = []
    for seed in range(3):
        trace = batch_trace(BatchJobs(4 * HOUR, 20), PROFILES, seed)
        ours, theirs = simulate(trace, 20), simulate(trace, 20, batch="fixed")
        dropping, fixed = simulate(trace, 20, queue=False), simulate(trace, 20, batch="fixed", queue=False)
        assert ours.finished.all() and theirs.finished.all()
        gains.append(
            (
                theirs.jct.mean() / ours.jct.mean(),
                ours.sjs_efficiency / theirs.sjs_efficiency,
                fixed.dropped.mean() - dropping.dropped.mean(),
            )
        )
    jct, efficiency, drops = np.median(gains, axis=0)
    assert jct > 3 and efficiency > 2.05 and drops > 0.295


def test_a_category_without_a_range_gains_nothing() -> None:
    """Figure 5 (d)."""
    trace = batch_trace(BatchJobs(4 * HOUR, 8, mix={"alexnet-food101": 1.0}), PROFILES, 3)
    ours, theirs = simulate(trace, 8), simulate(trace, 8, batch="fixed")
    assert ours.end.tolist() == theirs.end.tolist() and ours.sjs_efficiency == pytest.approx(1)


def test_any_other_policy_gives_each_job_the_gang_of_its_batch() -> None:
    trace = batch_trace(BatchJobs(HOUR, 8), PROFILES, 4)
    outcome = Simulation(trace, ProfiledMachine(Cluster((2,) * 8), PROFILES), policy("fifo")).run()
    np.testing.assert_allclose(outcome.end - outcome.begin, trace.jobs.duration)


@pytest.mark.parametrize("parameters", [{}, {"batch": "fixed"}, {"interval": 300.0, "events": 3, "queue": False}])
def test_plans_hold_and_are_the_same_without_the_memo(parameters: dict[str, object]) -> None:
    trace, machine = batch_trace(BatchJobs(HOUR, 12), PROFILES, 6), ProfiledMachine(Cluster((2,) * 6), PROFILES)
    watched = [Watched(policy("throughput", **parameters), forgetful) for forgetful in (False, True)]
    first, second = (Simulation(trace, machine, each).run() for each in watched)
    np.testing.assert_array_equal(first.end, second.end)
    np.testing.assert_array_equal(first.restarts, second.restarts)
    assert (first.timeline.used <= 12).all() and first.timeline.used.max() == 12


def test_arrivals_follow_the_pattern() -> None:
    trace = batch_trace(BatchJobs(12 * HOUR, 400), PROFILES, 5)
    mean = np.mean([profile.seconds for profile in PROFILES.values()])
    counts, _ = np.histogram(trace.jobs.arrival + trace.offset, np.arange(7) * 2 * HOUR)
    expected = np.array([1, 0.25] * 3) * 400 / mean * 2 * HOUR
    assert (abs(counts - expected) < 5 * np.sqrt(expected)).all()
    low, high = (len(batch_trace(BatchJobs(12 * HOUR, 400, which), PROFILES, 5)) for which in ("low", "high"))  # type: ignore[arg-type]
    assert high > 3.5 * low
    for name, profile in PROFILES.items():
        mine = np.array([model == name for model in trace.jobs.model])
        batches = trace.jobs.batch_size[mine]
        assert batches.min() == profile.batches[0] and batches.max() <= profile.batches[1]
        assert abs(mine.mean() - 0.25) < 0.03
        assert abs(batches.mean() - np.mean(profile.batches)) <= 0.03 * np.mean(profile.batches)
    again = batch_trace(BatchJobs(12 * HOUR, 400), PROFILES, 5)
    assert again.jobs.arrival.tolist() == trace.jobs.arrival.tolist() and again.jobs.model == trace.jobs.model


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"seconds": 0}, "seconds is 0; it must be above 0"),
        ({"load": float("inf")}, "load is inf"),
        ({"arrivals": "wild"}, "arrivals is 'wild'; it must be 'high', 'low' or 'bursty'"),
        ({"low": 2}, "low is 2"),
        ({"mix": {}}, "the weights are"),
    ],
)
def test_a_draw_that_makes_no_trace_is_refused(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BatchJobs(**({"seconds": 10.0, "load": 1.0} | parameters))  # type: ignore[arg-type]


def test_jobs_that_the_machine_does_not_know_are_named() -> None:
    machine = ProfiledMachine(Cluster((4,)), PROFILES)
    with pytest.raises(UnknownRate, match="model 'resnet' was not measured"):
        machine.arriving(TraceJob("a", 0, 1, "resnet", batch_size=32, samples=1))
    with pytest.raises(ValueError, match="job a: its batch is 8; one of resnet50-cifar100 is 32 to 256 samples"):
        machine.arriving(TraceJob("a", 0, 1, RESNET, batch_size=8, samples=1))
    with pytest.raises(ValueError, match="does not say its samples"):
        machine.arriving(TraceJob("a", 0, 1, RESNET, batch_size=32))
    large = machine.arriving(TraceJob("a", 0, 1, RESNET, batch_size=128, samples=1))
    with pytest.raises(ValueError, match="job a cannot train a batch of 128 on 2 devices: it needs 4 at least"):
        machine.pace(large, (0, 1))
    with pytest.raises(ValueError, match="mix names 'x', of which there is no profile"):
        batch_trace(BatchJobs(10, 1, mix={"x": 1}), PROFILES)
