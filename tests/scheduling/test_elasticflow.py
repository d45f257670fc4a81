"""ElasticFlow by hand: who is admitted, who gets what is left, and what becomes of those who are promised nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Plan, State
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.policies.elasticflow import ElasticFlow
from fleet.spec.policies import policy

CURVE = RateCurve({1: 1.0, 2: 1.5, 4: 2.0}, 4, limit=4)
NODE = Cluster((4,))


def job(name: str, work: float, deadline: float = float("inf"), **more: object) -> JobState:
    return JobState(name, CURVE, 4, deadline=deadline, remaining=work, **more)  # type: ignore[arg-type]


def counts(plan: Plan) -> dict[str, int]:
    return {name: len(devices) for name, devices in plan.allocation.items()}


def after(plan: Plan, *jobs: JobState, time: float = 0.0, **more: object) -> State:
    """What the policy sees after its plan was carried out."""
    known = [replace(job, admitted=job.admitted or job.name in plan.admitted) for job in jobs]
    return State.of(NODE, known, plan.allocation, time=time, promises=plan.promises, **more)


def test_the_example_of_figure_4() -> None:
    # A and B hold three devices for the first of two slots; C needs 1 and then 4 (4.1).
    a, b = job("a", 0.99, 1.0), job("b", 1.49, 1.0)
    first = ElasticFlow(slot=1).plan(State.of(NODE, [a, b]))
    assert set(first.admitted) == {"a", "b"} and not first.dropped
    c, late = job("c", 2.99, 2.0), job("d", 3.01, 2.0)
    state = after(first, a, b, c)
    assert ElasticFlow(slot=1).plan(state).admitted == ("c",)
    refused = ElasticFlow(slot=1).plan(after(first, a, b, late))
    assert not refused.admitted and "cannot be met" in refused.dropped["d"]


def test_a_job_that_fits_only_once_all_are_filled_anew() -> None:
    # The long one is promised 1 device late; the short one needs all of the end, so the long one must begin sooner.
    long = job("long", 10.0, 20.01)
    first = ElasticFlow(slot=10).plan(State.of(NODE, [long]))
    assert first.promises["long"].numbers[0] == 0
    short = job("short", 39.9, 20.005)
    second = ElasticFlow(slot=10).plan(after(first, long, short))
    assert second.dropped  # 2 samples/s on all devices for 20 s leave nothing for the long one
    middle = job("middle", 29.0, 20.005)
    third = ElasticFlow(slot=10).plan(after(first, long, middle))
    assert third.admitted == ("middle",)


def test_what_is_left_goes_where_it_returns_most() -> None:
    tight, loose = job("tight", 14.9, 10.0), job("loose", 5.0, 100.0)
    plan = ElasticFlow(slot=10).plan(State.of(NODE, [tight, loose]))
    # tight is promised 2, loose nothing yet: its first device returns 1 for 1, the last two of tight 0.5 for 1.
    assert counts(plan) == {"tight": 2, "loose": 2}
    assert plan.wake == float("inf")
    alone = ElasticFlow(slot=10).plan(State.of(NODE, [loose]))
    assert counts(alone) == {"loose": 4}


def test_jobs_without_a_deadline_share_what_is_left() -> None:
    plan = ElasticFlow(slot=10).plan(State.of(NODE, [job("slo", 14.9, 10.0), job("free", 50.0)]))
    assert plan.admitted == ("slo",) and counts(plan) == {"slo": 2, "free": 2}
    assert counts(ElasticFlow(slot=10).plan(State.of(NODE, [job("slo", 19.9, 10.0), job("free", 50.0)]))) == {"slo": 4}


def test_a_soft_deadline_that_cannot_be_met_is_forgotten_and_a_hard_one_is_refused() -> None:
    soft, hard = job("soft", 100.0, 10.0, soft=True), job("hard", 100.0, 10.0)
    plan = ElasticFlow(slot=10).plan(State.of(NODE, [soft, hard]))
    assert list(plan.dropped) == ["hard"] and counts(plan) == {"soft": 4} and not plan.admitted
    again = ElasticFlow(slot=10).plan(after(plan, soft, time=1.0))
    assert not again.dropped and not again.allocation
    unknown = ElasticFlow(slot=10).plan(State.of(NODE, [job("unknown", float("inf"), 10.0)]))
    assert counts(unknown) == {"unknown": 4} and not unknown.admitted


def test_the_quota_has_the_last_word() -> None:
    asked = []

    def quota(job: JobState, device_seconds: float, state: State) -> str:
        asked.append((job.name, device_seconds))
        return "poor has spent it all" if job.tenant == "poor" else ""

    jobs = [job("a", 10.0, 20.0, tenant="poor"), job("b", 10.0, 20.0, tenant="rich"), job("c", 100.0, 2.0)]
    plan = ElasticFlow(slot=10, quota=quota).plan(State.of(NODE, jobs))
    assert plan.admitted == ("b",) and plan.dropped["a"] == "poor has spent it all" and "a" not in plan.promises
    assert [name for name, _ in asked] == ["a", "b"] and asked[0][1] == pytest.approx(20.0)
    together = policy("elasticflow-slot", slot=10, quota=quota).plan(State.of(NODE, jobs[:2]))
    assert together.admitted == ("b",) and together.dropped == {"a": "poor has spent it all"}


def test_all_of_a_slot_or_none() -> None:
    jobs = [job("a", 10.0, 20.0), job("b", 100.0, 10.0)]
    plan = policy("elasticflow-slot", slot=10).plan(State.of(NODE, jobs))
    assert set(plan.dropped) == {"a", "b"} and not plan.admitted
    assert ElasticFlow(slot=10).plan(State.of(NODE, jobs)).admitted == ("a",)


@pytest.mark.parametrize("time", [0.0, 11.0])
def test_without_admission_a_job_that_is_late_has_what_it_can_use_and_those_behind_it_wait(time: float) -> None:
    # With all of the node the first is done at 50; the second could be in time on 2 devices, had it any.
    doomed, fine = job("doomed", 100.0 - 2 * time, 10.0), job("fine", 25.0, 40.0)
    assert counts(ElasticFlow(slot=10).plan(State.of(NODE, [doomed, fine], time=time)))["fine"] >= 2
    elastic = ElasticFlow(slot=10, admission=False)
    plan = elastic.plan(State.of(NODE, [doomed, fine], time=time))
    assert counts(plan) == {"doomed": 4} and not (plan.dropped or plan.admitted or plan.late)
    again = elastic.plan(State.of(NODE, [doomed, fine], plan.allocation, time=time + 1, promises=plan.promises))
    assert not again.allocation and not again.stopped


def test_without_admission_who_can_be_in_time_has_as_little_as_that_takes_and_then_what_returns_most() -> None:
    tight, loose, free = job("tight", 14.9, 10.0), job("loose", 5.0, 100.0), job("free", 50.0)
    plan = ElasticFlow(slot=10, admission=False).plan(State.of(NODE, [tight, loose]))
    assert counts(plan) == {"tight": 2, "loose": 2}
    behind = ElasticFlow(slot=10, admission=False).plan(State.of(NODE, [job("wide", 19.9, 10.0), loose, free]))
    assert counts(behind) == {"wide": 4} and behind.wake == 90.0


def test_quotas_need_admission() -> None:
    with pytest.raises(ValueError, match="quotas refuse jobs"):
        ElasticFlow(admission=False, quotas={"ada": 10})
    with pytest.raises(ValueError, match="admission is 'no'"):
        ElasticFlow(admission="no")  # type: ignore[arg-type]


def test_what_is_reserved_is_used_but_not_promised() -> None:
    jobs = [job("a", 19.9, 10.0), job("b", 14.9, 10.0)]
    plan = ElasticFlow(slot=10, reserve=2).plan(State.of(NODE, jobs))
    assert plan.admitted == ("b",) and counts(plan) == {"b": 4}


def test_the_order_of_those_who_come_together() -> None:
    jobs = [job("late", 19.9, 10.1), job("early", 14.9, 10.0)]
    assert ElasticFlow(slot=10).plan(State.of(NODE, jobs)).admitted == ("late",)
    assert ElasticFlow(slot=10, order="deadline").plan(State.of(NODE, jobs)).admitted == ("early",)


def test_a_promise_that_a_failure_broke_is_made_anew_as_soon_as_it_can_be() -> None:
    a, b = job("a", 14.9, 10.0), job("b", 14.9, 10.5)
    first = ElasticFlow(slot=10).plan(State.of(NODE, [a, b]))
    assert set(first.admitted) == {"a", "b"}
    failed = frozenset({0, 1})
    running = {name: held for name, held in first.allocation.items() if failed.isdisjoint(held)}
    known = [replace(job, admitted=True) for job in (a, b)]
    state = State.of(NODE, known, running, unavailable=failed, time=1e-9, promises=first.promises)
    broken = ElasticFlow(slot=10).plan(state)
    assert broken.promises["b"] is None and not broken.dropped
    kept = {**first.promises, **broken.promises}
    mended = ElasticFlow(slot=10).plan(State.of(NODE, known, time=0.01, promises=kept))
    assert mended.promises["b"] is not None


def slower(*jobs: JobState, rates: dict[int, float], time: float, first: Plan, forgetful: bool) -> Plan:
    """What is planned once the first of these, which run as was planned, is known to train at other rates."""
    known = [replace(jobs[0], rate=RateCurve(rates, 4, limit=4)), *jobs[1:]]
    changed, memo = (jobs[0].name,), None if forgetful else first.memo
    return ElasticFlow(slot=10).plan(after(first, *known, time=time, changed=changed, memo=memo))


@pytest.mark.parametrize("forgetful", [False, True])
def test_a_job_that_is_slower_than_was_thought_is_promised_more(forgetful: bool) -> None:
    a, b = job("a", 18.0, 20.0), job("b", 10.0, 20.0)
    first = ElasticFlow(slot=10).plan(State.of(NODE, [a, b]))
    assert set(first.promises["a"].numbers) == {1}
    half = {1: 0.5, 2: 0.75, 4: 1.0}
    plan = slower(replace(a, remaining=13.0), b, rates=half, time=1.0, first=first, forgetful=forgetful)
    assert set(plan.promises["a"].numbers) == {2} and not plan.late
    kept = slower(replace(a, remaining=9.0), b, rates=half, time=1.0, first=first, forgetful=forgetful)
    assert "a" not in kept.promises and not kept.late, "what it is promised is still enough"


@pytest.mark.parametrize("forgetful", [False, True])
def test_a_promise_that_cannot_be_kept_any_more_is_told_and_the_others_stay(forgetful: bool) -> None:
    a, b = job("a", 18.0, 20.0), job("b", 29.0, 20.0)
    first = ElasticFlow(slot=10).plan(State.of(NODE, [a, b]))
    assert set(first.admitted) == {"a", "b"} and set(first.promises["b"].numbers) == {2}
    tenth = {1: 0.1, 2: 0.15, 4: 0.2}
    known = replace(a, remaining=5.0), replace(b, remaining=14.0)
    plan = slower(*known, rates=tenth, time=10.0, first=first, forgetful=forgetful)
    # Beside b's two devices a trains 0.15 samples/s until 20 s, with all of them 0.2 from then on.
    assert plan.late == {"a": pytest.approx(20 + (5.0 - 1.5) / 0.2)}
    assert "b" not in plan.promises and not plan.dropped


def test_a_promise_stands_where_a_level_no_longer_helps() -> None:
    a = job("a", 28.0, 20.0)
    first = ElasticFlow(slot=10).plan(State.of(NODE, [a]))
    assert set(first.promises["a"].numbers) == {2}
    for forgetful in (False, True):
        plan = slower(
            replace(a, remaining=30.0), rates={1: 1.0, 2: 0.9, 4: 2.0}, time=1.0, first=first, forgetful=forgetful
        )
        assert plan.promises["a"].counts == (0, 1, 4) and set(plan.promises["a"].numbers) == {2}


def test_moving_takes_seconds_that_are_promised_too() -> None:
    assert ElasticFlow(slot=10).plan(State.of(NODE, [job("a", 19.9, 10.0)])).admitted
    assert ElasticFlow(slot=10).plan(State.of(NODE, [job("a", 19.9, 10.0, restart=1.0)])).dropped
    assert ElasticFlow(slot=10).plan(State.of(NODE, [job("a", 17.9, 10.0, restart=1.0)])).admitted


def test_devices_that_turn_out_to_bring_nothing_go_to_a_job_that_waits() -> None:
    """Where moving takes time a job keeps what it has beyond its promise, but not what it cannot use."""
    pair, useless = Cluster((2,)), RateCurve({1: 1.0, 2: 0.6}, 4, limit=2)
    spare, loose = job("spare", 1e6, restart=0.1), job("loose", 5.0, 1000.0, restart=0.1)
    held = {"spare": (0, 1)}
    first = ElasticFlow(slot=10).plan(State.of(pair, [spare, loose], held))
    assert first.admitted == ("loose",) and first.allocation.get("spare", (0, 1)) == (0, 1)
    known = [replace(spare, rate=useless), replace(loose, admitted=True)]
    for memo in (None, first.memo):
        state = State.of(pair, known, held, time=0.1, promises=first.promises, changed=("spare",), memo=memo)
        assert counts(ElasticFlow(slot=10).plan(state)) == {"spare": 1, "loose": 1}


@pytest.mark.parametrize(
    ("parameter", "value", "text"),
    [
        ("slot", 0, "slot is 0; it must be a number of seconds above 0"),
        ("slot", float("inf"), "slot is inf"),
        ("reserve", -1, "reserve is -1; it must be a number of devices"),
        ("order", "size", "order is 'size'; it must be one of arrival, deadline"),
    ],
)
def test_parameters_out_of_range(parameter: str, value: object, text: str) -> None:
    with pytest.raises(ValueError, match=f"policy elasticflow: {text}"):
        policy("elasticflow", **{parameter: value})


def test_a_plan_can_be_asked_for_twice() -> None:
    state = State.of(Cluster((8, 8)), [job(f"job-{i}", 10.0 + i, 30.0 + i) for i in range(20)])
    plans = [ElasticFlow(slot=7).plan(state) for _ in range(2)]
    assert plans[0] == replace(plans[1], memo=plans[0].memo)
