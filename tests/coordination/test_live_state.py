"""What policies are told of a live run is where its jobs stand, by hand."""

from __future__ import annotations

import math

import pytest

from fleet.coordination.job_record import UNRATED, JobRecord, Standing
from fleet.coordination.live_state import LiveState, recall
from fleet.journal import events
from fleet.scheduling.model.batch_scaling import BatchRange
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.data_path import DataPath
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.placing.homes import curve_on
from fleet.spec.policies import policy
from tests.journals import as_event, as_events
from trainers.task.batch_plan import BatchChange, BatchSchedule


def ledger(**more: float) -> LiveState:
    """One job of three epochs of 100 samples, in steps of 10: 10 samples/s on a device, 20 on two."""
    curve = RateCurve({1: 10.0, 2: 20.0}, per_node=2)
    job = JobState("a", curve, 2, batch=10, remaining=300, epoch=100, **more)  # type: ignore[arg-type]
    return LiveState(Cluster((2,)), [JobRecord.of(job, "data/0")], seed=0)


def seen(books: LiveState, now: float) -> JobState:
    (job,) = books.for_policy(now).jobs
    return job


def end_epoch(books: LiveState, number: int, now: float, rate: float = 20.0) -> None:
    books.epoch_ended("a", number, {"loss": 1 / number}, rate, now)


def test_what_is_left_falls_as_the_job_trains_and_each_epoch_counts_once() -> None:
    books = ledger()
    assert seen(books, 4.0).remaining_at(4.0) == 300
    books.started("a", (0, 1), 10.0)
    assert seen(books, 12.0).remaining_at(12.0) == 300 - 2 * 20
    end_epoch(books, 1, 15.0)
    state = seen(books, 17.0)
    assert state.remaining_at(17.0) == 200 - 2 * 20
    assert (state.trained_at(17.0), state.losses, state.epoch) == (140, (1.0,), 100)
    end_epoch(books, 2, 20.0)
    assert seen(books, 21.0).remaining_at(21.0) == 100 - 20


def changing() -> LiveState:
    """The same job, whose batch of 10 to 40 changes at epochs' ends; on one device, larger ones are faster."""
    curve, range_ = RateCurve({1: 10.0, 2: 18.0}, per_node=2), BatchRange(10, 40, 2)
    job = JobState("a", curve, 2, batch=10, remaining=300, epoch=100)
    books = LiveState(
        Cluster((2,)), [JobRecord.of(job, "data/0", range_, BatchSchedule(5, "linear", 0.0, 100))], seed=0
    )
    books.rated_with("a", 40, 16.0)
    return books


def test_a_changed_batch_has_the_rates_of_that_batch_and_back_again() -> None:
    books = changing()
    before = books.jobs["a"]
    wanted = before.scaling
    assert wanted is not None
    books.batch_changed("a", 40, epoch=1)
    after = books.jobs["a"]
    assert (after.batch, after.state.batches) == (40, (10, 40)), "it may change again"
    for devices in (1, 2):
        assert after.state.rate(devices) == pytest.approx(wanted.rate(devices, 40))
        assert after.scaling is not None
        assert after.scaling.rate(devices, 10) == pytest.approx(before.state.rate(devices))
    books.batch_changed("a", 10, epoch=2)
    assert books.jobs["a"].state.rate(2) == pytest.approx(18.0)
    assert books.jobs["a"].schedule.changes == (BatchChange(1, 20), BatchChange(2, 5))  # type: ignore[union-attr]


def test_a_job_that_is_set_back_has_the_batch_that_it_had_there() -> None:
    books = changing()
    books.batch_changed("a", 40, epoch=1, parts=2)
    books.batch_changed("a", 20, epoch=2)
    books.started("a", (0, 1), 0.0)
    books.stopped("a", 1, 2, 5.0)
    job = books.jobs["a"]
    assert (job.batch, job.schedule.changes) == (40, (BatchChange(1, 20, 2),))  # type: ignore[union-attr]
    assert job.state.trained == 100 + 2 * 40
    books.goes_on_from("a", 0, 3, 6.0)
    assert (books.jobs["a"].batch, books.jobs["a"].state.trained) == (10, 30)


def test_checkpoints_know_best_which_batches_a_job_had() -> None:
    books = changing()
    books.stands_at("a", Standing(2, 1, batches=(BatchChange(1, 20),)))
    assert (books.jobs["a"].batch, books.jobs["a"].state.trained) == (40, 200 + 40)
    books.batch_changed("a", 20, epoch=3)
    books.stands_at("a", Standing(3, 0, batches=(BatchChange(1, 20),)))
    assert books.jobs["a"].batch == 20, "it was settled as the epoch ended"


def test_rates_of_other_batches_turn_out_as_those_of_its_own_do() -> None:
    books = changing()
    books.started("a", (0,), 0.0)
    books.slowed("a", 5.0)
    assert books.jobs["a"].alone == {40: 8.0}


def test_a_new_session_rates_its_own_batch_and_goes_on_with_the_one_that_it_has() -> None:
    books = changing()
    books.batch_changed("a", 40, epoch=1)
    wanted = books.jobs["a"].state.rate(2)
    books.reopened()
    books.stands_at("a", Standing(1, 1, batches=(BatchChange(1, 20),)))
    assert (books.jobs["a"].batch, books.jobs["a"].curve) == (40, None)
    books.rating(True)
    books.rated("a", {"": RateCurve({1: 10.0, 2: 18.0}, per_node=2)})
    books.rated_with("a", 40, 16.0)
    assert (books.jobs["a"].batch, books.jobs["a"].state.rate(2)) == (10, 18.0)
    books.rating(False)
    assert (books.jobs["a"].batch, books.jobs["a"].state.rate(2)) == (40, pytest.approx(wanted))
    assert books.jobs["a"].state.trained == 100 + 40


def test_a_batch_that_does_not_fit_is_cut_into_parts() -> None:
    books = changing()
    assert books.jobs["a"].parts_of(40) == 1
    books.fits("a", 8)
    assert [books.jobs["a"].parts_of(batch) for batch in (10, 16, 18, 40)] == [1, 1, 2, 3]
    assert books.jobs["a"].is_as_it_has(10) and not books.jobs["a"].is_as_it_has(40)


def test_the_same_batch_is_cut_anew_where_devices_hold_less_and_stays_cut_where_nobody_looks() -> None:
    books = changing()
    books.batch_changed("a", 40, epoch=1)
    assert books.jobs["a"].is_as_it_has(40)
    books.fits("a", 8)
    assert not books.jobs["a"].is_as_it_has(40), "a session on smaller devices"
    books = changing()
    books.batch_changed("a", 40, epoch=1, parts=3)
    assert books.jobs["a"].fits is None and books.jobs["a"].is_as_it_has(40)
    assert [books.jobs["a"].parts_of(batch) for batch in (10, 20, 40)] == [1, 2, 3]


def test_a_job_that_is_late_still_has_a_step_to_do() -> None:
    books = ledger()
    books.started("a", (0, 1), 10.0)
    late = seen(books, 10.0 + 300 / 20 + 5.0)
    assert (late.remaining_at(30.0), late.trained_at(30.0)) == (10, 290)


def test_progress_tells_where_a_job_stands_in_its_epoch() -> None:
    books = ledger()
    books.started("a", (0, 1), 10.0)
    books.progressed("a", 0, 4, 13.0)  # 40 samples, not the 60 of its pace
    assert seen(books, 14.0).remaining_at(14.0) == 300 - 40 - 20
    books.progressed("a", 5, 1, 14.0)  # of another epoch: it is overtaken by the epoch's own word
    assert seen(books, 14.0).remaining_at(14.0) == 300 - 40 - 20


def test_service_is_that_of_all_devices_until_now() -> None:
    books = ledger()
    books.started("a", (0, 1), 10.0)
    end_epoch(books, 1, 15.0)
    assert seen(books, 17.0).attained_at(17.0) == 14
    books.stopped("a", 1, 3, 18.0)
    stopped = seen(books, 30.0)
    assert (stopped.attained_at(30.0), stopped.remaining_at(30.0), stopped.last, stopped.held) == (16, 170, (0, 1), 0)
    books.take(events.ServiceReset(job="a", t=30.0))
    assert seen(books, 31.0).service_reset == 16
    books.started("a", (1,), 40.0)
    assert (seen(books, 41.0).restarts, seen(books, 41.0).attained_at(41.0)) == (1, 17)


def test_a_job_is_seen_once_it_has_arrived() -> None:
    books = ledger(arrival=7.0, deadline=50.0)
    assert books.next_arrival == 7 and books.come(6.0) == [] and not books.for_policy(6.0).jobs
    assert books.come(7.0) == ["a"]
    books.arrived(["a"])
    assert books.come(8.0) == [] and books.next_arrival == math.inf
    assert seen(books, 7.0).deadline == 50


def test_the_longest_forming_is_what_a_restart_may_cost() -> None:
    books = ledger()
    for seconds in (0.5, 2.0, 1.0):
        books.take(events.Formed(job="a", seconds=seconds))
    assert seen(books, 0.0).restart == 2
    later = ledger()
    later.take(as_event({"event": "formed", "job": "a", "seconds": 3.0}))
    assert seen(later, 0.0).restart == 3


def test_a_measurement_tells_what_forming_costs_before_any_group_trains() -> None:
    books = ledger()
    books.take(as_event({"event": "profile", "job": "a", "forming": 1.5}))
    books.take(as_event({"event": "profile", "job": "a"}))  # of a run that was begun before this was measured
    assert seen(books, 1.0).restart == 1.5


def test_promises_leave_with_their_jobs() -> None:
    books = ledger()
    books.promised({"a": "two devices"})
    books.started("a", (0, 1), 0.0)
    books.stopped("a", 1, 0, 5.0)
    assert books.for_policy(5.0).promises == {"a": "two devices"}
    books.started("a", (0, 1), 6.0)
    books.done("a", 3, {}, None, 16.0)
    assert not books.promises


def test_a_dropped_job_has_failed_and_says_why() -> None:
    books = ledger()
    books.failed("a", 0, "too late", 1.0)
    assert books.unfinished == [] and books.status == "failed"
    assert books.jobs["a"].result()["error"] == "too late"


def test_what_becomes_of_a_promise() -> None:
    books = ledger(deadline=50.0)
    assert books.jobs["a"].result()["promise"] is None
    books.take(events.Admitted(job="a", deadline=50.0))
    books.started("a", (0, 1), 10.0)
    assert books.jobs["a"].expected_end == 25.0 and not books.late
    books.slowed("a", 5.0)
    assert books.jobs["a"].expected_end == 70.0 and seen(books, 10.0).rate(1) == 2.5
    books.take(events.Late(job="a", deadline=50.0, end=70.0))
    assert books.late == {"a"}
    assert books.jobs["a"].result()["promise"] == {"status": "late", "deadline": 50.0, "end": 70.0}
    books.reopened()
    assert not books.late, "each session finds out anew"
    books.take(as_event({"event": "done", "job": "a", "epoch": 3, "t": 51.0, "deadline": 50.5}))
    assert books.jobs["a"].result()["promise"] == {"status": "missed", "deadline": 50.5, "end": 51.0}


def test_a_promise_is_kept_by_the_clock_of_the_session_in_which_its_job_ends() -> None:
    books = ledger(deadline=20.0)  # 30 s later a session began by whose clock it is due at 20 s, no more at 50 s
    for line in ({"event": "admitted", "deadline": 50.0}, {"event": "done", "epoch": 3, "t": 40.0, "deadline": 50.0}):
        books.take(as_event({"job": "a", "t": 1.0, **line}))
    books.reopened()
    assert books.jobs["a"].result()["promise"] == {"status": "kept", "deadline": 50.0, "end": 40.0}


def test_a_rate_that_was_seen_changes_the_curve() -> None:
    books = ledger()
    books.started("a", (0, 1), 0.0)
    end_epoch(books, 1, 5.0, rate=40.0)
    assert seen(books, 5.0).pace == pytest.approx(30.0)  # half of what was known, half of what was seen


def test_a_lost_job_goes_back_to_its_last_checkpoint_and_its_devices_are_gone() -> None:
    books = ledger()
    books.started("a", (0, 1), 10.0)
    end_epoch(books, 1, 15.0)
    books.saved("a", "a.h5", 0.1)
    end_epoch(books, 2, 20.0)
    books.take(events.RanksLost(devices=(1,)))
    books.take(
        as_event({"event": "stopped", "t": 21.0, "job": "a", "why": "lost", "epoch": 1, "step": 0, "devices": [0, 1]})
    )
    assert books.status == "stopped" and not books.running
    again = books.for_policy(22.0)
    assert again.unavailable == {1} and again.available == [0]
    assert seen(books, 22.0).remaining_at(22.0) == 200
    assert seen(books, 22.0).losses == (1.0,), "the second epoch is trained again"
    assert books.jobs["a"].ranks_cost == 1
    books.saved("a", "a.h5", 0.1)
    assert books.jobs["a"].ranks_cost == 0
    books.started("a", (0,), 30.0)
    books.take(
        as_event({"event": "stopped", "t": 31.0, "job": "a", "why": "lost", "epoch": 2, "step": 0, "devices": [0]})
    )
    assert books.jobs["a"].ranks_cost == 0, "it was a preprocessor that was lost"


def on_two_kinds(mixed: bool = True) -> LiveState:
    """The same job with four virtual workers, on one device of each kind: 20 and 10 samples/s."""
    job = JobState("a", UNRATED, 4, batch=20, remaining=300, epoch=100, mixed_kinds=mixed)
    books = LiveState(Cluster((1, 1), ("fast", "slow")), [JobRecord.of(job, "data/0")], seed=0)
    books.rated("a", {kind: RateCurve({1: rate}, 1, workers=4) for kind, rate in (("fast", 20.0), ("slow", 10.0))})
    return books


def test_on_unlike_devices_a_job_is_as_fast_as_its_shares_allow() -> None:
    books = on_two_kinds()
    record = books.jobs["a"]
    assert record.shares(("fast", "slow")) == (3, 1) and record.shares(("slow",)) == ()
    kept = record.curves["fast"](2) / 40.0  # of the speed of two alike devices
    assert books.pace("a", (0, 1)) == pytest.approx(4 / max(3 / 20, 1 / 10) * kept)
    assert (books.pace("a", (0,)), books.pace("a", (1,))) == (20.0, 10.0)
    step = 20 / books.pace("a", (0, 1))
    assert record.turn_seconds(("fast", "slow")) == pytest.approx((step / 3, 2 * step / 3))
    assert seen(books, 0.0).scaling is record.by_kind and seen(books, 0.0).rate is record.curves["fast"]


def test_shares_are_dealt_anew_once_devices_turn_out_to_be_otherwise() -> None:
    books = on_two_kinds()
    books.started("a", (0, 1), 0.0, shares=(3, 1))
    assert not books.is_dealt_badly("a")
    for epoch in (1, 2, 3):  # both turn a worker in as long a time: they are alike
        books.epoch_ended("a", epoch, {"loss": 1.0}, 20.0, float(epoch), {0: 3.0, 1: 1.0})
    assert books.is_dealt_badly("a") and books.jobs["a"].shares(("fast", "slow")) == (2, 2)
    books.stopped("a", 3, 0, 4.0)
    assert not books.is_dealt_badly("a"), "it holds no devices"
    books.started("a", (0, 1), 5.0, shares=(2, 2))
    assert not books.is_dealt_badly("a")


def test_a_job_whose_bits_hold_for_one_kind_stays_where_it_began() -> None:
    books = on_two_kinds(mixed=False)
    books.started("a", (1,), 0.0, kind="slow")
    state = seen(books, 0.0)
    assert (state.kind, state.rate(1), state.pace) == ("slow", 10.0, 10.0)
    free = on_two_kinds()
    free.started("a", (1,), 0.0, kind="slow")
    assert (seen(free, 0.0).kind, seen(free, 0.0).pace) == ("", 10.0)


def test_what_a_slow_job_shows_holds_for_all_kinds() -> None:
    books = on_two_kinds()
    books.started("a", (1,), 0.0)
    books.slowed("a", 5.0)
    assert (books.pace("a", (1,)), books.pace("a", (0,))) == (5.0, 10.0)


@pytest.mark.parametrize("cluster", [Cluster((1,)), Cluster((1,), ("fast",)), Cluster((1, 1), ("fast", "other"))])
@pytest.mark.parametrize("mixed", [True, False])
def test_a_session_goes_on_where_devices_are_others(cluster: Cluster, mixed: bool) -> None:
    """Rates and devices of an earlier session, of kinds that this one has not, are read and forgotten."""
    job = JobState("a", UNRATED, 4, batch=20, remaining=300, epoch=100, mixed_kinds=mixed)
    books = LiveState(cluster, [JobRecord.of(job, "data/0")], seed=0)
    rates = {"fast": {"1": 20.0}, "slow": {"1": 10.0}}
    began = {"shares": [3, 1], "devices": [0, 1]} if mixed else {"kind": "slow", "devices": [1]}
    recall(
        books,
        as_events([
            {"event": "session", "t": 0.0},
            {"event": "rates", "t": 0.0, "job": "a", "source": "profile", "measured": rates["fast"], "kinds": rates},
            {"event": "started", "t": 1.0, "job": "a", "epoch": 0, "step": 0, **began},
            {"event": "epoch", "t": 9.0, "job": "a", "epoch": 1, "metrics": {"loss": 1.0}, "rate": 20.0,
             "computed": {"0": 3.0, "1": 2.0}},
        ]),
    )  # fmt: skip
    record = books.jobs["a"]
    assert (record.epoch, record.curve, record.by_kind, books.running) == (1, None, None, {})
    assert record.state.kind == ("" if mixed else "slow"), "as its bits began there"


def test_a_pace_is_learnt_for_how_trainers_share_accelerators() -> None:
    """Two trainers on an accelerator make 15 samples/s, one alone 10, one beside others 6, and two of these 12."""
    curve = RateCurve({1: 6.0, 2: 12.0}, per_node=4, workers=2)
    job = JobState("a", curve, 2, batch=10, remaining=300, epoch=100)
    books = LiveState(Cluster((4,), sharing=((0, 2), (1, 3))), [JobRecord.of(job, "data/0")], seed=0)
    assert books.pace("a", (0, 2)) == 12.0, "nobody has measured it"
    for executors, rate in ((1, 10.0), (2, 15.0), (4, 1.0)):
        books.take(as_event({"event": "executor_profile", "job": "a", "executors": executors, "rate": rate, "t": 0.0}))
    assert seen(books, 0.0).executor_rates == (10.0, 15.0), "there is none of three"
    assert (books.pace("a", (0,)), books.pace("a", (0, 2)), books.pace("a", (0, 1))) == (10.0, 15.0, 20.0)
    books.started("a", (0, 2), 0.0)
    end_epoch(books, 1, 10.0, rate=13.0)
    end_epoch(books, 2, 20.0, rate=11.0)
    assert books.pace("a", (0, 2)) == 12.0 == seen(books, 20.0).pace
    assert books.pace("a", (0, 1)) == 20.0 and books.jobs["a"].curve is curve, "of other places it says nothing"
    books.slowed("a", 5.0)
    assert books.pace("a", (1, 3)) == 5.0
    books.reopened()
    assert books.jobs["a"].state.executor_rates == () and not books.jobs["a"].layouts


@pytest.mark.parametrize(("made", "devices"), [(1e4, {4, 5, 6, 7}), (90.0, {4, 5})])
def test_goodput_gives_a_job_no_devices_that_the_data_path_cannot_feed(made: float, devices: set[int]) -> None:
    """The other job trains 40 samples/s, which takes 0.4 or 44 % of the preprocessors' time."""
    curve = RateCurve({1: 10.0, 2: 20.0, 4: 40.0}, per_node=4)
    states = [JobState(name, UNRATED, 4, data=name, remaining=1e4) for name in ("starved", "fed")]
    books = LiveState(
        Cluster((4, 4), ("fast", "slow")), [JobRecord.of(each, f"{each.data}/0") for each in states], seed=0
    )
    for name in ("starved", "fed"):
        books.rated(name, {"fast": curve, "slow": curve.scaled(0.5)})
    books.preprocessors_measured(DataPath({1: 15.0}, {"starved": 15.0, "fed": made}))
    state = books.for_policy(0.0)
    starved, fed = state.jobs
    assert [curve_on(starved, kind)(4) for kind in ("fast", "slow")] == [15.0, 15.0]
    assert [curve_on(fed, kind)(4) for kind in ("fast", "slow")] == [40.0, 20.0]
    allocation = policy("goodput").plan(state).allocation
    assert set(allocation["fed"]) == {0, 1, 2, 3}, "the fast ones are for whom they make faster"
    assert set(allocation["starved"]) == devices, "slow ones, as fast as it is fed beside the other"
