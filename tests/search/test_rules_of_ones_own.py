"""A stopping rule of one's own: three methods suffice, and what does not fit is refused by what it lacks."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pydantic import ValidationError

from fleet.search import Search, Segment, SpeculativeRule, StoppingRule
from fleet.search.decisions import Verdict
from fleet.search.of_spec import rule_of, search_of, search_problems
from fleet.simulator.searching.searches import label_of, stopping_of
from fleet.spec.digest import results_mapping
from fleet.spec.plugins import SAMPLERS, STOPPING_RULES, BadPart
from tests.search.support.driving import drive
from tests.search.support.numbered import Numbered
from tests.search.support.sections import spec_of


class Patient(StoppingRule):
    """Stops a trial whose loss has not fallen for `patience` epochs."""

    def __init__(self, epochs: int, patience: int = 1) -> None:
        self.epochs, self.patience = epochs, patience
        self.losses, self.ready = dict[int, list[float]](), list[Segment]()

    def first(self, trial: int) -> Segment:
        return Segment(trial, 0, 1)

    def report(self, trial: int, epoch: int, loss: float | None) -> Verdict | None:
        if loss is None:
            return "fail"
        losses = self.losses.setdefault(trial, [])
        losses.append(loss)
        if epoch == self.epochs:
            return "done"
        if losses.index(min(losses)) < len(losses) - self.patience:
            return "stop"
        self.ready.append(Segment(trial, epoch, epoch + 1))
        return None

    def next(self, fresh: int | None, trials: int | None = None) -> Segment | None:
        if self.ready:
            return self.ready.pop(0)
        return None if fresh is None else self.first(fresh)


class Mute(StoppingRule):
    def first(self, trial: int) -> Segment:
        return Segment(trial, 0, 1)


class Nearly:
    """Inherits from nothing, and has a name that is nearly right."""

    def first(self, trial: int) -> Segment:
        return Segment(trial, 0, 1)

    def report(self, trial: int, epoch: int, loss: float | None) -> str:
        return "done"

    def nexts(self) -> None: ...


@pytest.fixture(autouse=True)
def plugged(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("plugged_rules")
    module.__dict__.update(Patient=Patient, Mute=Mute, Nearly=Nearly, Seven=7)
    monkeypatch.setitem(sys.modules, "plugged_rules", module)


def named(name: str, **arguments: Any) -> dict[str, Any]:
    return {"stopping": {"name": f"plugged_rules:{name}", **({"arguments": arguments} if arguments else {})}}


def test_a_rule_of_three_methods_decides_in_any_order_of_results() -> None:
    def value(trial: int, epoch: int) -> float:
        return float(epoch if trial % 2 else -epoch)

    searches = [
        drive(Search(Patient(4), Numbered(), lambda trial, values: 1, 3, 8), value, early=early) for early in (0, 1)
    ]
    assert len({found.digest() for found in searches}) == 1
    assert [searches[0].status(trial) for trial in range(4)] == ["done", "stopped", "done", "stopped"]
    assert max(one.end for one in searches[0].decisions if one.trial % 2) == 2


def test_of_a_rule_that_foretells_nothing_only_new_trials_train_ahead() -> None:
    found = Search(Patient(4), Numbered(), lambda trial, values: 1, 2, 8)
    assert list(found.ahead()) == [Segment(trial, 0, 1) for trial in range(2, 8)]
    assert not list(found.probable()) and not list(found.hopeless())


def test_a_spec_names_a_rule_and_gives_it_its_arguments() -> None:
    rule = rule_of(spec_of(**named("Patient", patience=3)).search, 0)  # type: ignore[arg-type]
    assert isinstance(rule, Patient) and (rule.epochs, rule.patience) == (9, 3)
    assert search_problems(spec_of(**named("Patient"))) == ()
    assert search_of(spec_of(**named("Patient")), lambda trial, values: 1).needed()


@pytest.mark.parametrize(
    ("section", "told"),
    [
        (named("Patientt"), "Patient"),
        (named("Mute"), "no method next, report"),
        (named("Mute"), "def next(self, fresh: int | None, trials: int | None = None) -> Segment | None"),
        (named("Nearly"), "no method next"),
        (named("Seven"), "cannot be called"),
        (named("Patient", patients=3), "patience"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_trains(section: dict[str, Any], told: str) -> None:
    (problem,) = search_problems(spec_of(**section))
    assert told in str(problem) and "stopping" in str(problem)
    with pytest.raises(BadPart):
        rule_of(spec_of(**section).search, 0)  # type: ignore[arg-type]


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValidationError, match="halving"):
        spec_of(stopping="halvin")
    with pytest.raises(ValidationError, match="random"):
        spec_of(sampler="rondom")


@pytest.mark.parametrize(
    "wrong", [Segment(0, 0, 1), Segment(5, 0, 1), Segment(0, 1, 1), Segment(0, 0, 2)], ids=lambda each: str(each)
)
def test_a_segment_that_cannot_be_is_refused(wrong: Segment) -> None:
    class Confused(Patient):
        def next(self, fresh: int | None, trials: int | None = None) -> Segment | None:
            return wrong if fresh else super().next(fresh, trials)

    with pytest.raises(ValueError, match="Confused.next gives"):
        Search(Confused(4), Numbered(), lambda trial, values: 1, 2, 8)


def test_a_verdict_that_nobody_knows_is_refused() -> None:
    class Confused(Patient):
        def report(self, trial: int, epoch: int, loss: float | None) -> Any:
            return "perhaps"

    found = Search(Confused(4), Numbered(), lambda trial, values: 1, 1, 8)
    with pytest.raises(ValueError, match="perhaps.*pause"):
        found.tell(0, 1, 1.0)


def test_installed_packages_name_theirs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "ours-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: ours\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[fleet.stopping_rules]\npatient = plugged_rules:Patient\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert isinstance(rule_of(spec_of(stopping="patient").search, 0), Patient)  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="patient"):
        spec_of(stopping="patien")


@pytest.mark.parametrize("door", [STOPPING_RULES, SAMPLERS], ids=lambda door: str(door.what))
def test_all_that_fleet_has_comes_in_by_the_door(door: Any) -> None:
    pytest.importorskip("optuna")
    assert all(callable(door.load(name)) for name in door.built_in)
    if door is STOPPING_RULES:
        assert all(issubclass(door.load(name), SpeculativeRule) for name in door.built_in)


def test_a_rule_on_the_command_line_is_written_as_it_is_read() -> None:
    asked = stopping_of("plugged_rules:Patient:patience=2")
    assert (asked.name, dict(asked.arguments)) == ("plugged_rules:Patient", {"patience": 2})
    assert label_of(asked) == "plugged_rules:Patient:patience=2"
    assert stopping_of("plugged_rules:Patient").name == "plugged_rules:Patient"


def test_digests_of_searches_stay_what_they_were() -> None:
    told = results_mapping(spec_of(stopping="median"))
    assert "arguments" not in told["search"]["stopping"]
    mine = results_mapping(spec_of(**named("Patient", patience=3)))
    assert mine["search"]["stopping"]["arguments"] == {"patience": 3}
