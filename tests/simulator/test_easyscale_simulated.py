"""EasyScale in simulation: the authors' workload, several kinds of device, preemption, and wrong beliefs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.simulated.easyscale import (
    FIGURES,
    NAMES,
    RATES,
    TRACE,
    OneAtATime,
    SlottedFifo,
    figures,
    measured,
    simulate,
    workload,
)
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.policy import Policy
from fleet.scheduling.policies.easyscale import EasyScale
from fleet.scheduling.policies.fifo import Fifo
from fleet.simulator.machines.kinds import (
    FREE,
    MIXED_KINDS,
    SAME_KIND,
    Crowding,
    KindMachine,
    KindRates,
    Minibatch,
    RateReading,
)
from fleet.simulator.machines.machine import Costs
from fleet.simulator.simulation import NodeFailure, Simulation
from fleet.simulator.traces import JobColumns, Trace, TraceJob
from tests.simulator.support.published import published
from tests.simulator.support.small_traces import Watched

TWO_KINDS = Cluster((4, 4), ("fast", "slow"))


def seconds(fast: float, slow: float, mixed: float = 1.0) -> KindRates:
    """Of a mini-batch of 8 samples of model `net`; D2 takes `mixed` times as long as D1."""
    times = {"fast": fast, "slow": slow}
    columns = {kind: {FREE: one, SAME_KIND: one, MIXED_KINDS: mixed * one} for kind, one in times.items()}
    return KindRates({("net", kind): Minibatch(8, by_column) for kind, by_column in columns.items()})


def training(name: str, steps: int, workers: int = 4, **more: object) -> TraceJob:
    """Mini-batches of 8 samples."""
    given_: dict[str, Any] = {"arrival": 0.0, "kind": "fast", **more}
    batch = 8 * workers
    return TraceJob(
        name, devices=workers, model="net", batch_size=batch, work=steps, samples=steps * batch, workers=workers,
        limit=workers, **given_,
    )  # fmt: skip


def serving(name: str, arrival: float, duration: float, devices: int, kind: str = "") -> TraceJob:
    return TraceJob(name, arrival, devices, duration=duration, priority=9, kind=kind, mixed=not kind)


def of(*jobs: TraceJob) -> Trace:
    return Trace.of(JobColumns.from_jobs(jobs))


# The authors' workload


@pytest.fixture(scope="module")
def jobs() -> Trace:
    return workload(published(TRACE))


@pytest.fixture(scope="module")
def authors() -> dict[str, tuple[float, float]]:
    return measured(published(FIGURES))


@pytest.fixture(scope="module")
def rates() -> Path:
    return published(RATES)


@pytest.mark.parametrize(
    ("name", "policy"), [("YARN-CS", OneAtATime()), ("homogeneous", EasyScale(heterogeneous=False, interval=60))]
)
def test_the_figures_are_within_five_percent_of_the_authors(
    name: str, policy: Policy, jobs: Trace, rates: Path, authors: dict[str, tuple[float, float]]
) -> None:
    outcome = simulate(jobs, rates, policy)
    assert outcome.finished.all()
    assert figures(outcome, jobs) == pytest.approx(authors[NAMES[name]], rel=0.05)


def test_on_all_kinds_jobs_are_done_sooner_than_in_the_authors_simulator(
    jobs: Trace, rates: Path, authors: dict[str, tuple[float, float]]
) -> None:
    for growth in (0, 2):
        watched = Watched(EasyScale(growth=growth, interval=60))
        outcome = simulate(jobs, rates, watched)
        found, theirs = figures(outcome, jobs), authors[NAMES["heterogeneous"]]
        assert outcome.finished.all()
        assert found[0] < theirs[0] and found[1] < theirs[1]


def test_the_order_of_the_paper(jobs: Trace, rates: Path) -> None:
    policies: list[Policy] = [
        EasyScale(interval=60),
        EasyScale(heterogeneous=False, interval=60),
        SlottedFifo(),
        OneAtATime(),
    ]
    times = [figures(simulate(jobs, rates, policy), jobs)[0] for policy in policies]
    assert times == sorted(times)


# A machine of several kinds


def test_a_step_takes_as_long_as_the_slowest_device() -> None:
    machine = KindMachine(TWO_KINDS, seconds(1.0, 2.0))
    job = machine.arriving(training("a", 10, workers=4))
    # 4 workers: all on one fast device; two on each of two; two on a fast one and one on each of two slow ones.
    assert machine.pace(job, (0,)) == pytest.approx(32 / 4)
    assert machine.pace(job, (0, 1)) == pytest.approx(32 / 2)
    assert machine.pace(job, (0, 4, 5)) == pytest.approx(32 / 2)
    assert machine.pace(job, (4, 5, 6)) == pytest.approx(32 / 4)
    assert [job.rate(m) for m in (1, 2, 3, 4)] == pytest.approx([8, 16, 16, 32])
    assert job.scaling is not None and job.scaling.worker_rate("slow") == 0.5
    assert job.limit == 4 and job.rate.workers == 4


def test_who_may_use_several_kinds_pays_for_the_same_bits_everywhere() -> None:
    machine = KindMachine(TWO_KINDS, seconds(1.0, 2.0, mixed=1.5))
    free, bound = (machine.arriving(training(name, 10, mixed=mixed)) for name, mixed in (("a", True), ("b", False)))
    assert machine.pace(bound, (0, 1, 2, 3)) == pytest.approx(32)
    assert machine.pace(free, (0, 1, 2, 3)) == pytest.approx(32 / 1.5)
    all_alike = KindMachine(TWO_KINDS, seconds(1.0, 2.0, mixed=1.5), reading=RateReading(FREE))
    assert all_alike.pace(all_alike.arriving(training("a", 10)), (0, 1, 2, 3)) == pytest.approx(32)


def test_a_part_of_a_mini_batch_grows_with_its_samples() -> None:
    half = TraceJob("a", 0, 1, model="net", batch_size=4, work=1, samples=4, workers=1, kind="fast")
    for share, expected in ((1.0, 0.5), (0.0, 1.0), (0.5, 0.75)):
        machine = KindMachine(TWO_KINDS, seconds(1.0, 2.0), reading=RateReading(batch_share=share))
        assert machine.seconds(half, "fast") == pytest.approx(expected)


def test_executors_share_a_device_where_that_is_faster() -> None:
    machine = KindMachine(TWO_KINDS, seconds(1.0, 2.0), crowding=Crowding({"fast": 2}, 0.75))
    assert machine.pace(machine.arriving(training("a", 10)), (0,)) == pytest.approx(1.5 * 8)
    policy = EasyScale(executors={"fast": 2}, interference=0.75)
    outcome = Simulation(of(training("a", 100)), machine, policy).run()
    assert outcome.end.tolist() == pytest.approx([100.0]), "one worker on each of four devices needs no second executor"


def test_what_a_trace_does_not_say_is_named() -> None:
    machine = KindMachine(TWO_KINDS, seconds(1.0, 2.0))
    with pytest.raises(ValueError, match="job a: the trace says neither its model nor its duration"):
        machine.arriving(TraceJob("a", 0, 1))
    with pytest.raises(ValueError, match="job a: the trace does not say its samples and batch size"):
        machine.arriving(TraceJob("a", 0, 1, model="net"))
    with pytest.raises(ValueError, match="model 'none' was not measured"):
        machine.arriving(TraceJob("a", 0, 1, model="none", batch_size=8, samples=8))
    with pytest.raises(ValueError, match="the cluster's devices have no kinds"):
        KindMachine(Cluster((4,)), seconds(1.0, 2.0))
    with pytest.raises(ValueError, match="batch_share is 2"):
        KindMachine(TWO_KINDS, seconds(1.0, 2.0), reading=RateReading(batch_share=2))


def test_clusters_with_kinds_get_this_machine() -> None:
    assert isinstance(seconds(1.0, 2.0).machine(TWO_KINDS, Costs()), KindMachine)
    assert not isinstance(seconds(1.0, 2.0).machine(Cluster((4,)), Costs()), KindMachine)


def test_gangs_are_of_one_kind() -> None:
    trace = of(
        training("a", 10), training("b", 10, arrival=1.0), training("c", 10, kind="slow", arrival=2.0),
        training("d", 10, workers=5, kind="slow", mixed=False, arrival=3.0),
    )  # fmt: skip
    machine = KindMachine(TWO_KINDS, seconds(1.0, 2.0))
    strict, backfilled = (Simulation(trace, machine, Fifo(backfill=b)).run() for b in (False, True))
    assert strict.end[:3].tolist() == pytest.approx([10, 20, 30]) and strict.dropped.tolist() == [False] * 3 + [True]
    assert backfilled.end[:3].tolist() == pytest.approx([10, 20, 22])


# Preemption by guaranteed jobs


def test_a_serving_job_gets_its_devices_at_once_and_what_it_leaves_is_filled_up_again() -> None:
    trace = of(training("a", 400), serving("s", 70.0, 100.0, devices=2, kind="fast"))
    machine = KindMachine(TWO_KINDS, seconds(1.0, 2.0), guaranteed=9)
    watched = Watched(EasyScale(heterogeneous=False, interval=60))
    outcome = Simulation(trace, machine, watched).run()
    assert outcome.begin.tolist() == [0, 70] and outcome.end[1] == pytest.approx(170)
    # 1 step/s on four devices until 70 s, half of that on two until the next plan after 170 s, then as before.
    assert outcome.end[0] == pytest.approx(180 + (400 - 70 - 110 / 2))
    assert outcome.restarts.tolist() == [2, 0] and not outcome.dropped.any()
    assert [plan.allocation for plan in watched.plans if plan.allocation] == [
        {"a": (0, 1, 2, 3)}, {"s": (2, 3), "a": (0, 1)}, {"a": (0, 1, 2, 3)},
    ]  # fmt: skip


def test_a_job_waits_for_its_devices_where_a_move_would_bring_nothing() -> None:
    """It needs two devices; for five seconds one of its fast ones serves, and each new group takes 20 s."""
    trace = of(training("a", 400, workers=2, minimum_devices=2), serving("s", 50.0, 5.0, devices=1, kind="fast"))
    cluster = Cluster((2, 2), ("fast", "slow"))
    ends, moves = [], []
    for patience in (300.0, 0.0):
        machine = KindMachine(cluster, seconds(1.0, 2.0), Costs(restart=20.0), guaranteed=9)
        watched = Watched(EasyScale(patience=patience))
        ends.append(Simulation(trace, machine, watched).run().end[0])
        moves.append([plan.allocation["a"] for plan in watched.plans if "a" in plan.allocation])
    assert moves == [[(0, 1), (0, 1)], [(0, 1), (1, 2), (0, 1)]], "the same devices, and no others meanwhile"
    assert ends == pytest.approx([400 + 5 + 20] * 2), "elsewhere its group would not even have been formed"


def test_headroom_spares_moves_and_a_quota_bounds_them() -> None:
    trace = of(training("a", 200, mixed=False), serving("s", 50.0, 30.0, devices=2, kind="fast"))
    outcomes = []
    for policy in (EasyScale(), EasyScale(headroom=0.5), EasyScale(quota=0.125)):
        machine = KindMachine(TWO_KINDS, seconds(1.0, 2.0), Costs(restart=5.0), guaranteed=9)
        outcomes.append(Simulation(trace, machine, policy).run())
    assert [outcome.restarts.tolist() for outcome in outcomes] == [[2, 0], [0, 0], [0, 0]]
    assert [outcome.begin[1] for outcome in outcomes] == [50.0, 50.0, 200.0]
    assert outcomes[1].end[0] == pytest.approx(400.0), "on two of the four fast ones"


def test_a_day_of_preemptions_fails_no_job() -> None:
    peaks = [serving(f"s{i}", 50.0 + 200 * i, 90.0, devices=4 + i % 4) for i in range(10)]
    trace = of(*(training(f"a{i}", 300, arrival=10.0 * i) for i in range(4)), *peaks)
    machine = KindMachine(TWO_KINDS, seconds(1.0, 2.0), Costs(restart=3.0), guaranteed=9)
    outcome = Simulation(trace, machine, EasyScale()).run()
    assert outcome.finished.all()
    waited = (outcome.begin - outcome.arrival)[[name.startswith("s") for name in outcome.names]]
    assert waited.tolist() == [0.0] * 10
    assert outcome.restarts[[name.startswith("s") for name in outcome.names]].sum() == 0


def test_a_failed_node_stops_nobody_for_good() -> None:
    trace = of(training("a", 300), training("b", 300, mixed=False))
    failures = [NodeFailure(100.0, 0, until=400.0)]
    outcome = Simulation(trace, KindMachine(TWO_KINDS, seconds(1.0, 2.0)), EasyScale(), failures).run()
    assert outcome.finished.all()


# Wrong beliefs


def test_devices_that_slow_a_job_down_are_given_back() -> None:
    """Policies are told that all devices are alike; in truth the slow ones take 30 times as long."""
    machine = KindMachine(TWO_KINDS, seconds(1.0, 30.0), told=seconds(1.0, 1.0))
    watched = Watched(EasyScale(growth=2, interval=10))
    outcome = Simulation(of(training("a", 300, workers=8)), machine, watched).run()
    given_ = [plan.allocation["a"] for plan in watched.plans if plan.allocation]
    assert [len(devices) for devices in given_] == [1, 2, 4, 8, 4], "it goes back, and asks for all of them no more"
    assert given_[2] == given_[4] == (0, 1, 2, 3)
    # 10 s each at 1/8, 1/4, 1/2 and 1/30 steps/s, then 1/2 again.
    trained = 10 * (1 / 8 + 1 / 4 + 1 / 2 + 1 / 30)
    assert outcome.end.tolist() == pytest.approx([40 + (300 - trained) * 2])


# Laws


@st.composite
def mixtures(draw: st.DrawFn) -> Trace:
    jobs_ = [
        training(
            f"a{i}", draw(st.integers(1, 60)), draw(st.integers(1, 8)), arrival=draw(st.floats(0, 200)),
            kind=draw(st.sampled_from(["fast", "slow", ""])), mixed=draw(st.booleans()),
        )
        for i in range(draw(st.integers(1, 6)))
    ]  # fmt: skip
    served = [
        serving(f"s{i}", draw(st.floats(0, 200)), draw(st.floats(1, 100)), draw(st.integers(1, 4)))
        for i in range(draw(st.integers(0, 3)))
    ]
    return of(*jobs_, *served)


@given(
    mixtures(), st.booleans(), st.sampled_from([0.0, 60.0]), st.sampled_from([0.0, 1.0]), st.sampled_from([0.0, 5.0])
)
@settings(max_examples=60)
def test_the_laws_of_a_machine_of_two_kinds(
    trace: Trace, heterogeneous: bool, interval: float, min_share: float, cost: float
) -> None:
    ends = []
    for forgetful in (False, True):
        machine = KindMachine(TWO_KINDS, seconds(1.0, 1.7, mixed=1.2), Costs(cost, cost), guaranteed=9)
        policy = EasyScale(heterogeneous=heterogeneous, interval=interval, min_share=min_share)
        outcome = Simulation(trace, machine, Watched(policy, forgetful)).run()
        done = outcome.finished | outcome.dropped
        assert done.all()
        ends.append(outcome.end)
    np.testing.assert_array_equal(ends[0], ends[1])
    assert (outcome.begin[outcome.finished] >= outcome.arrival[outcome.finished]).all()
    fastest = trace.jobs.work[outcome.finished]  # one mini-batch a step, a second each
    ran = (outcome.end - outcome.begin)[outcome.finished]
    assert (ran >= np.nan_to_num(fastest) - 1e-6).all()
