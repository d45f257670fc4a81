"""What each policy promises in every state, and to the end of every ensemble."""

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fleet.scheduling import Policy
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Allocation, State, validate
from fleet.spec.policies import policy
from tests.scheduling.support.all_policies import NAMES
from tests.scheduling.support.driving import drive
from tests.scheduling.support.printed import job
from tests.scheduling.support.strategies import POLICIES, clusters, jobs, states

any_policy = st.sampled_from(POLICIES)
every_policy = st.sampled_from([*POLICIES, *map(policy, NAMES)])


@given(every_policy, states())
def test_plans_are_valid(chosen: Policy, state: State) -> None:
    plan = chosen.plan(state)
    validate(plan.allocation, state)
    held = [device for devices in plan.whole_of(state.running).values() for device in devices]
    assert len(held) == len(set(held)), "no device is given to two jobs"
    assert plan.allocation.keys() <= {job.name for job in state.jobs}


@given(every_policy, states())
def test_a_plan_leaves_the_state_as_it_was_and_is_made_again(chosen: Policy, state: State) -> None:
    before = repr(state)
    first = chosen.plan(state).allocation
    assert repr(state) == before
    assert list(chosen.plan(state).allocation.items()) == list(first.items())


@given(every_policy, states())
def test_the_order_of_the_books_changes_nothing(chosen: Policy, state: State) -> None:
    assert chosen.plan(_turned(state, state.time)).allocation == chosen.plan(state).allocation


# The others may answer otherwise later on: turns and leases end, deadlines come nearer, ages are weighed.
@given(any_policy, states())
def test_the_policies_of_flotillas_do_not_go_by_the_clock(chosen: Policy, state: State) -> None:
    first = chosen.plan(state).allocation
    assert list(chosen.plan(_turned(state, 99.0)).allocation.items()) == list(first.items())


def _counts(allocation: Allocation) -> dict[str, int]:
    return {name: len(devices) for name, devices in allocation.items()}


def _turned(state: State, time: float) -> State:
    """The same state at that time, with its books written backwards."""
    running, formed = (dict(reversed(held.items())) for held in (dict(state.running), dict(state.formed)))
    return State.of(state.cluster, state.jobs, running, formed, state.unavailable, state.seed, time)


@given(st.sampled_from([p for p in POLICIES if p.name in ("local", "baseline")]), states())
def test_running_jobs_keep_their_devices_and_free_ones_are_filled(chosen: Policy, state: State) -> None:
    allocation = chosen.plan(state).whole_of(state.staying)
    assert state.staying.items() <= allocation.items()
    assert set(allocation) - set(state.staying) <= {job.name for job in state.waiting}
    idle = set(state.free).difference(*allocation.values())
    waiting = {job.name for job in state.waiting} - set(allocation)
    if idle:
        assert not waiting
    held = {**state.running, **allocation}
    after = State.of(state.cluster, state.jobs, held, allocation, state.unavailable, state.seed)
    assert chosen.plan(after).whole_of(after.staying) == allocation


@given(any_policy, states(idle=True))
def test_an_idle_machine_is_put_to_work(chosen: Policy, state: State) -> None:
    allocation = chosen.plan(state).allocation
    assert bool(allocation) == bool(state.jobs and state.available)
    limits = {job.name: job for job in state.jobs}
    if chosen.name in ("homogeneous", "baseline"):
        assert len(allocation) == min(len(state.jobs), len(state.available))
        assert {len(devices) for devices in allocation.values()} <= {1}
    elif not chosen.literal:  # type: ignore[attr-defined]
        peaks = {name: limits[name].rate.peak(limits[name].limit) for name in allocation}
        assert all(len(devices) <= peaks[name] for name, devices in allocation.items())


@given(st.sampled_from([0.3, 0.5, 0.8, 1.0]), st.booleans(), states())
def test_a_flotilla_goes_on_until_too_few_devices_work(alpha: float, literal: bool, state: State) -> None:
    assume(state.running)
    chosen = policy("flotilla", alpha=alpha, literal=literal)
    allocation = chosen.plan(state).allocation
    held = sum(map(len, state.staying.values()))
    formed = sum(map(len, state.formed.values()))
    if held >= alpha * formed:
        assert allocation == state.staying
    elif literal or state.waiting or len(state.staying) < len(state.running):
        assert allocation == {}
    else:
        idle = State.of(state.cluster, state.jobs, unavailable=state.unavailable, seed=state.seed)
        is_best = _counts(chosen.plan(idle).allocation) == _counts(state.staying)
        assert allocation == (state.staying if is_best else {}), "it goes on where a new flotilla would be the same"


def test_the_drain_by_hand() -> None:
    # 10 devices formed the round; with alpha 0.8 the loss of 2 is borne, that of 3 is not.
    cluster = Cluster((5, 5))
    unfinished = (job("a", 10, 20, 30, 40, 50, 60, 70, 80), job("w", 10), job("b", 10))
    formed = {"a": tuple(range(7)), "b": (7,), "c": (8, 9)}
    assert policy("flotilla").plan(State.of(cluster, unfinished, {"a": formed["a"], "b": (7,)}, formed)).allocation == {
        "a": formed["a"],
        "b": (7,),
    }
    assert policy("flotilla").plan(State.of(cluster, unfinished, {"a": formed["a"]}, formed)).allocation == {}
    assert (
        policy("flotilla", alpha=0.7).plan(State.of(cluster, unfinished, {"a": formed["a"]}, formed)).allocation != {}
    )


def test_a_round_that_cannot_be_bettered_goes_on() -> None:
    # The last job is at its limit: to stop it and to start it on as many devices would win nothing.
    state = State.of(Cluster((4,)), (job("a", 10),), {"a": (2,)}, {"a": (2,), "b": (0, 1, 3)})
    assert policy("flotilla").plan(state).allocation == {"a": (2,)}
    assert policy("flotilla", literal=True).plan(state).allocation == {}
    longer = State.of(Cluster((4,)), (job("a", 10, 20),), {"a": (2,)}, {"a": (2,), "b": (0, 1, 3)})
    assert policy("flotilla").plan(longer).allocation == {}


@given(clusters, jobs(most=3))
def test_a_round_goes_on_as_long_as_a_new_flotilla_would_be_the_same(
    cluster: Cluster, unfinished: tuple[JobState, ...]
) -> None:
    chosen = policy("flotilla", alpha=1.0)
    best = chosen.plan(State.of(cluster, unfinished)).allocation
    left = set(range(cluster.size)).difference(*best.values())
    assume(unfinished and len(best) == len(unfinished) and left)
    formed = {**best, "finished": tuple(left)}
    assert chosen.plan(State.of(cluster, unfinished, best, formed)).allocation == best
    for name, (*fewer, last) in best.items():
        if fewer:
            formed = {**best, name: tuple(fewer), "finished": (*left, last)}
            running = {job: formed[job] for job in best}
            assert chosen.plan(State.of(cluster, unfinished, running, formed)).allocation == {}, "it can have more"


def test_a_homogeneous_round_waits_for_all_of_its_subset() -> None:
    ensemble = tuple(job(name, 10) for name in "abcde")
    chosen, cluster = policy("homogeneous"), Cluster((2,))
    first = chosen.plan(State.of(cluster, ensemble, seed=1)).allocation
    assert len(first) == 2
    last = dict(list(first.items())[1:])
    rest = tuple(member for member in ensemble if member.name in last or member.name not in first)
    assert chosen.plan(State.of(cluster, rest, last, first, seed=1)).allocation == last
    new = tuple(member for member in ensemble if member.name not in first)
    assert set(chosen.plan(State.of(cluster, new, {}, first, seed=1)).allocation) <= {member.name for member in new}


@pytest.mark.parametrize("name", ["homogeneous", "baseline"])
def test_random_order_comes_from_the_seed_and_reaches_everyone(name: str) -> None:
    ensemble = tuple(job(f"job-{i}", 10) for i in range(6))
    cluster = Cluster((2,))
    pairs = {tuple(policy(name).plan(State.of(cluster, ensemble, seed=seed)).allocation) for seed in range(400)}
    assert len(pairs) == 30  # every ordered pair of six
    backwards = tuple(reversed(ensemble))
    assert (
        policy(name).plan(State.of(cluster, ensemble, seed=3)).allocation
        == policy(name).plan(State.of(cluster, backwards, seed=3)).allocation
    )


@settings(max_examples=60, deadline=None)
@given(any_policy, clusters, jobs(), st.data())
def test_every_job_of_every_ensemble_gets_done(
    chosen: Policy, cluster: Cluster, ensemble: tuple[JobState, ...], data: st.DataObject
) -> None:
    epochs = {member.name: data.draw(st.integers(1, 4)) for member in ensemble}
    run = drive(chosen, cluster, ensemble, epochs, lambda running: data.draw(st.sampled_from(running)))
    assert sorted(run.done) == sorted(epochs)
    if chosen.name in ("local", "baseline", "homogeneous"):
        assert run.stops == 0
    if chosen.name == "homogeneous" and ensemble:
        assert len(run.rounds) == -(-len(ensemble) // cluster.size)


def test_policies_share_streams_but_for_the_baseline() -> None:
    shares = {name: policy(name).shares_streams for name in NAMES}
    assert [shares[name] for name in ("flotilla", "local", "homogeneous", "baseline")] == [True, True, True, False]


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("flotila", {}, "'flotila' is not a policy; .*flotilla, local, homogeneous, baseline.*nearest: flotilla;"),
        ("xyz", {}, "'xyz' is not a policy; there are flotilla"),
        ("flotilla", {"alfa": 1}, "flotilla has no parameter 'alfa' .did you mean 'alpha'.*alpha .default 0.8., delta"),
        ("baseline", {"alpha": 1}, "baseline has no parameter 'alpha'; its parameters: none"),
        ("flotilla", {"alpha": 0}, "policy flotilla: alpha is 0; it must be a number above 0 and at most 1"),
        ("flotilla", {"alpha": 1.5}, "alpha is 1.5"),
        ("flotilla", {"alpha": "high"}, "alpha is 'high'"),
        ("flotilla", {"alpha": float("nan")}, "alpha is nan"),
        ("local", {"delta": "12"}, "policy local: delta is '12'"),
        ("local", {"literal": "yes"}, "literal is 'yes'; it must be true or false"),
    ],
)
def test_mistakes_are_named_with_the_mend(name: str, parameters: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        policy(name, **parameters)
