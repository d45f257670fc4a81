"""Policies by name: fleet's own, those of papers, and any class that somebody names."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import fleet.scheduling
from fleet.scheduling import Plan, Policy, State
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import BadPlan, ask
from fleet.scheduling.model.rates import RateCurve
from fleet.spec.plugins import POLICIES
from fleet.spec.policies import breaks_minimum, policy, policy_class
from preprocess.files.modules import importable

MODULE = """
from dataclasses import dataclass
from fleet.scheduling import Plan, Policy

class OneEach(Policy):
    name = "one-each"
    def plan(self, state):
        free, placed = [d for d in range(state.cluster.size)], {}
        for job in state.jobs:
            if free: placed[job.name] = (free.pop(0),)
        return Plan(placed)

@dataclass(frozen=True)
class AtMost(Policy):
    most: int = 2
    def __post_init__(self):
        if self.most < 1:
            raise ValueError(f"most is {self.most}; it must be 1 or more")
    def plan(self, state):
        return Plan({job.name: (device,) for job, device in zip(state.jobs, range(self.most))})

class AllOnOne(Policy):
    def plan(self, state):
        return Plan({job.name: (0,) for job in state.jobs})

class NoPlan(Policy):
    pass

class Stranger:
    def plan(self, state): ...
"""


@pytest.fixture
def module(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """The name of a module in a folder that is importable meanwhile."""
    name = f"own_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    with_folder = importable([tmp_path])
    with_folder.__enter__()
    request.addfinalizer(lambda: with_folder.__exit__(None, None, None))
    return name


def test_three_names_suffice_for_a_policy() -> None:
    assert dir(fleet.scheduling) == ["Plan", "Policy", "State"]
    with pytest.raises(AttributeError, match="no attribute 'Plans'"):
        fleet.scheduling.Plans  # noqa: B018


def test_a_policy_of_ones_own_plans(module: str) -> None:
    curve = RateCurve({1: 10.0}, 4)
    state = State.of(Cluster((2,)), [JobState(name, curve, 1) for name in "abc"])
    chosen = policy(f"{module}:OneEach")
    assert (chosen.name, chosen.plan(state)) == ("one-each", Plan({"a": (0,), "b": (1,)}))
    assert policy(f"{module}:AtMost", most=1).plan(state).allocation == {"a": (0,)}
    assert policy(f"{module}:AtMost").name == "AtMost"
    assert "any number of devices" in str(breaks_minimum(f"{module}:OneEach"))


@pytest.mark.parametrize(
    ("name", "parameters", "told"),
    [
        ("OneEech", {}, "nearest: {}:OneEach"),
        ("AtMost", {"mots": 1}, "has no parameter 'mots' (did you mean 'most'?); its parameters: most (default 2)"),
        ("OneEach", {"most": 1}, "has no parameter 'most'; its parameters: none"),
        ("AtMost", {"most": 0}, "policy {}:AtMost: most is 0; it must be 1 or more"),
        ("AtMost", {"most": "x"}, "'<' not supported"),
        ("NoPlan", {}, "has no method plan (add `def plan(self, state: State) -> Plan` to it"),
        ("Stranger", {}, "is not a policy (let it be a class that inherits from fleet.scheduling.Policy"),
    ],
)
def test_what_is_no_policy_is_refused(name: str, parameters: dict[str, object], told: str, module: str) -> None:
    with pytest.raises(ValueError) as raised:
        policy(f"{module}:{name}", **parameters)
    assert told.format(module) in str(raised.value)


def test_unknown_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="'flotila' is not a policy; there are flotilla.*nearest: flotilla;"):
        policy("flotila")
    with pytest.raises(ValueError, match="no module 'plugde'"):
        policy("plugde:Any")


def test_short_names_are_those_of_the_classes() -> None:
    named = {name: policy_class(name) for name in POLICIES.built_in}
    assert {name: kind.name for name, kind in named.items()} == {name: name for name in named}
    assert all(issubclass(kind, Policy) for kind in named.values())


def test_where_the_repository_is_not_papers_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "benchmarks"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "benchmarks", None)  # as where it is not installed
    with pytest.raises(ValueError, match="policy themis is in fleet's repository, in benchmarks/papers"):
        policy("themis")


def test_what_is_no_plan_is_refused() -> None:
    class Silent(Policy):
        def plan(self, state: State) -> Plan:
            return None  # type: ignore[return-value]

    with pytest.raises(BadPlan, match="it answers None; return a fleet.scheduling.Plan"):
        ask(Silent(), State.of(Cluster((1,)), []))
