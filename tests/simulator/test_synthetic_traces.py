"""Traces drawn at random: reproducible, each quantity from a path of its own, distributed as said."""

from dataclasses import replace

import numpy as np
import pytest

from fleet.simulator.machines.machine import check_rates
from fleet.simulator.machines.rate_tables import RateTable
from fleet.simulator.traces import JobColumns, Synthetic, Trace, TraceJob, synthetic_trace, with_models

TABLE = RateTable(
    {
        ("bert", 64): {1: 6.0, 2: 8.6, 4: 10.4, 8: 11.1, 16: 10.9},
        ("bert", 128): {1: 3.6, 2: 5.7, 4: 8.5, 8: 10.0, 16: 10.8},
        ("ncf", 32768): {1: 46.9, 2: 37.6},
    }
)
SPEC = Synthetic(jobs=4000, gap=30.0)


def columns(spec: Synthetic = SPEC, seed: int = 1) -> JobColumns:
    return synthetic_trace(spec, TABLE, seed).jobs


def test_the_same_seed_gives_the_same_jobs_and_another_seed_others() -> None:
    assert list(columns()) == list(columns())
    assert (columns().duration != columns(seed=2).duration).all()


def test_a_longer_trace_begins_with_the_shorter() -> None:
    assert list(columns(replace(SPEC, jobs=50))) == list(columns()[:50])


def test_changing_one_quantity_leaves_the_draws_of_the_others() -> None:
    other = columns(replace(SPEC, arrivals="bursty", tightness=(2.0, 3.0), with_deadline=0.5))
    assert other.model == columns().model
    assert (other.work == columns().work).all()
    assert (other.devices == columns().devices).all()
    assert (other.arrival[1:] != columns().arrival[1:]).all()


def test_jobs_come_in_order_from_0_and_the_gaps_have_their_mean() -> None:
    for spec in (SPEC, replace(SPEC, jobs=40_000, arrivals="bursty")):
        arrival = columns(spec).arrival
        assert arrival[0] == 0 and (np.diff(arrival) >= 0).all()
        assert np.diff(arrival).mean() == pytest.approx(30, rel=0.1)


def test_poisson_gaps_vary_as_their_mean_and_bursts_vary_more() -> None:
    def variation(spec: Synthetic) -> float:
        gaps = np.diff(columns(spec).arrival)
        return float(gaps.std() / gaps.mean())

    assert variation(SPEC) == pytest.approx(1, abs=0.1)
    assert variation(replace(SPEC, arrivals="bursty")) > 2


def test_durations_are_log_normal_around_their_median() -> None:
    logs = np.log(columns().duration)
    assert np.median(logs) == pytest.approx(np.log(3600), abs=0.1)
    assert logs.std() == pytest.approx(1.5, rel=0.1)


def test_every_job_is_consistent_with_the_table() -> None:
    trace = synthetic_trace(SPEC, TABLE, 3)
    check_rates(trace, TABLE)
    for job in trace.jobs[:200]:
        assert job.work and job.batch_size and job.duration and job.deadline
        rate = TABLE.of(job, job.devices)[-1]
        assert job.duration == pytest.approx(job.work / rate)
        assert job.samples == job.work * job.batch_size
        assert job.devices <= TABLE.peak(job.model, job.batch_size)
        assert 0.5 <= (job.deadline - job.arrival) / job.duration <= 1.5 + 1e-9


def test_sizes_and_mix_follow_their_weights() -> None:
    mix = {("bert", 128): 3.0, ("bert", 64): 1.0, ("ncf", 32768): 0.0}
    found = columns(replace(SPEC, sizes={1: 1, 4: 1}, mix=mix))
    assert set(found.devices.tolist()) == {1, 4}
    assert (found.devices == 4).mean() == pytest.approx(0.5, abs=0.04)
    assert (found.batch_size == 128).mean() == pytest.approx(0.75, abs=0.04)
    assert set(found.model) == {"bert"}


def test_a_part_of_the_jobs_may_have_no_deadline() -> None:
    assert np.isnan(columns(replace(SPEC, with_deadline=0.25)).deadline).mean() == pytest.approx(0.75, abs=0.04)


@pytest.mark.parametrize(
    "wrong",
    [
        {"jobs": 0},
        {"gap": 0.0},
        {"gap": float("nan")},
        {"arrivals": "weekly"},
        {"burst": 0.5},
        {"tightness": (2.0, 1.0)},
        {"sizes": {0: 1.0}},
        {"sizes": {}},
        {"mix": {("bert", 64): -1.0}},
        {"with_deadline": 2.0},
    ],
)
def test_numbers_that_make_no_trace_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="must be"):
        replace(SPEC, **wrong)  # type: ignore[arg-type]


def test_a_mix_of_unknown_models_is_refused() -> None:
    with pytest.raises(ValueError, match="known: bert, ncf"):
        columns(replace(SPEC, mix={("vgg16", 64): 1.0}))


def durations(count: int) -> Trace:
    jobs = (TraceJob(f"job-{i}", 10.0 * i, 1 + i % 40, duration=100.0 + i, tenant="vc") for i in range(count))
    return Trace(JobColumns.from_jobs(jobs))


def test_jobs_that_have_a_duration_alone_get_a_model_and_what_it_does_in_that_time() -> None:
    trace = with_models(durations(600), TABLE, seed=5, tightness=(1.0, 2.0))
    check_rates(trace, TABLE)
    for job in trace.jobs:
        assert job.work and job.duration and job.deadline
        assert job.work == max(1, round(job.duration * TABLE.of(job, job.devices)[-1]))
        assert 1 <= (job.deadline - job.arrival) / job.duration <= 2
    assert {(job.model, job.batch_size) for job in trace.jobs} == {("bert", 64), ("bert", 128), ("ncf", 32768)}
    assert [(job.name, job.tenant, job.duration) for job in trace.jobs[:2]] == [
        ("job-0", "vc", 100),
        ("job-1", "vc", 101),
    ]


def test_models_cannot_follow_from_no_duration_or_no_weight() -> None:
    with pytest.raises(ValueError, match="job a has no duration"):
        with_models(Trace(JobColumns.from_jobs([TraceJob("a", 0, 1)])), TABLE)
    for mix in ({}, {("bert", 64): 0.0}):
        with pytest.raises(ValueError, match="not all 0"):
            with_models(durations(2), TABLE, mix=mix)
