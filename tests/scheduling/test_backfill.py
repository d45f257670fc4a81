"""Jobs that train ahead of need have what the policy leaves, and nothing that it wants."""

from __future__ import annotations

import pytest

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import State, validate
from fleet.scheduling.policies.wrappers import Backfill
from fleet.spec.policies import policy
from tests.scheduling.support.kinds_of_device import MIXED, job

CLUSTER = Cluster((4,))


def ahead(name: str, minimum: int = 1, mixed: bool = True) -> JobState:
    return job(name, minimum_devices=minimum, mixed_kinds=mixed).changed(ahead=True)


def planned(state: State, name: str = "local") -> dict[str, tuple[int, ...]]:
    plan = Backfill(policy(name)).plan(state)
    validate(plan.whole_of(state.staying), state)
    return plan.whole_of(state.staying)


def test_they_have_the_devices_that_are_left() -> None:
    needed = job("needed", workers=2)
    found = planned(State.of(CLUSTER, (ahead("a"), needed, ahead("b"), ahead("c")), seed=1))
    assert found == {"needed": (0, 1), "a": (2,), "b": (3,)}


@pytest.mark.parametrize("name", ["local", "malleable", "flotilla", "fifo"])
def test_they_leave_what_the_policy_wants(name: str) -> None:
    jobs = (ahead("a"), ahead("b"), job("needed", workers=4, gang=4))
    running = {"a": (0,), "b": (1,)}
    found = planned(State.of(CLUSTER, jobs, running, seed=1), name)
    alone = planned(State.of(CLUSTER, jobs[2:], seed=1), name)
    assert found["needed"] == alone["needed"] and len(found["needed"]) > 2


def test_they_stay_where_they_are_before_others_begin() -> None:
    state = State.of(CLUSTER, (ahead("new"), ahead("old"), job("needed", workers=3)), {"old": (3,)}, seed=1)
    assert planned(state) == {"needed": (0, 1, 2), "old": (3,)}


def test_one_that_needs_several_has_them_of_one_kind() -> None:
    busy = job("busy", workers=1)
    state = State.of(MIXED, (busy, ahead("a", minimum=4, mixed=False).changed(kind="")), {"busy": (0,)}, seed=1)
    assert planned(state)["a"] == (4, 5, 6, 7)


def test_they_keep_their_devices_where_others_of_the_node_are_idle() -> None:
    state = State.of(CLUSTER, (ahead("a"), job("needed", workers=2, gang=2)), {"a": (0,)}, seed=1)
    assert planned(state, "fifo") == {"needed": (1, 2), "a": (0,)}
    nodes = State.of(Cluster((1, 3)), (ahead("a"), job("needed", workers=1)), {"a": (0,)}, seed=1)
    assert planned(nodes, "fifo")["needed"] == (0,)  # another node may be further from what it reads


def test_who_is_driven_out_goes_on_where_a_device_is_idle() -> None:
    nodes = State.of(Cluster((1, 3)), (ahead("a"), job("needed", workers=1)), {"a": (0,)}, seed=1)
    assert planned(nodes, "fifo") == {"needed": (0,), "a": (1,)}
