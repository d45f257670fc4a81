"""Searches whose trials have the same values, runs that go on with more, and checkpoints that nobody needs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.numbered.fingerprints import fleet
from benchmarks.numbered.searches import SMALL, ran, search, spec
from fleet.journal.directory import RunDirectory
from fleet.search.halving import Halving
from fleet.session.opened import keep_to_spec
from fleet.spec import EnsembleSpec
from fleet.workers.agreement import BadInput
from tests.session.conftest import runtime

__all__ = ["runtime"]

HALVING = {"name": "halving", "eta": 3, "rungs": [1, 2, 4]}


def trained(folder: Path, name: str) -> set[str]:
    lines = map(json.loads, (folder / name / "journal.jsonl").read_text().splitlines())
    return {line["job"] for line in lines if line["event"] == "epoch"}


def test_equal_values_are_trained_once_and_the_decisions_are_those_of_training_all(tmp_path: Path) -> None:
    """Seeds that no value tells apart; a search whose trials have seeds of their own trains them all."""
    values = spec(search=search(SMALL, sampler="random", trials=12, stopping=HALVING))
    values["defaults"]["stop"] = {"epochs": 4}
    code, told = ran(tmp_path, "once", values)
    trials = {one["name"]: one for one in told["search"]["trials"]}
    assert code == 0 and len(trials) == 12
    pairs = {name: one["same_as"] for name, one in trials.items() if "same_as" in one}
    assert trained(tmp_path, "once") == set(told["jobs"]) == trials.keys() - pairs.keys()
    assert len(told["jobs"]) <= 7, "6 combinations, and one whose twin stopped before"
    assert all(trials[name]["values"] == trials[twin]["values"] for name, twin in pairs.items())
    code, again = ran(tmp_path, "once", values)
    assert code == 0 and again["search"]["decisions"] == told["search"]["decisions"]
    values["determinism"] = {"level": "D0"}  # where bits need not repeat, nobody answers for another
    code, each = ran(tmp_path, "each", values)
    assert code == 0 and len(each["jobs"]) == 12
    assert each["search"]["decisions"] == told["search"]["decisions"]
    assert [one["value"] for one in each["search"]["trials"]] == [one["value"] for one in trials.values()]


def test_with_keep_0_what_is_stopped_keeps_nothing_and_may_go_on_all_the_same(tmp_path: Path) -> None:
    over = {"optimizer.arguments.lr": {"log_uniform": [0.001, 0.5]}}

    def asked(trials: int, keep: int) -> dict[str, Any]:
        values = spec(search=search(over, trials=trials, stopping=HALVING), checkpoints={"keep": keep})
        values["defaults"]["stop"] = {"epochs": 4}
        return values

    results = {}
    for keep in (0, 2):
        code, told = ran(tmp_path, f"keep{keep}", asked(9, keep))
        assert code == 0
        stopped = {one["name"] for one in told["search"]["trials"] if one["status"] == "stopped"}
        left = {path.parent.name for path in (tmp_path / f"keep{keep}" / "checkpoints").rglob("*.h5")}
        expected = stopped - {told["search"]["best"]}
        assert (left & expected == set()) if keep == 0 else left >= expected
        assert told["search"]["best"] in left
        assert all((told["jobs"][name]["checkpoint"] is None) == (keep == 0) for name in expected)
        code, more = ran(tmp_path, f"keep{keep}", asked(18, keep))
        assert code == 0
        results[keep] = (more["search"]["decisions"], more["search"]["best_value"])
    assert results[0] == results[2]


def test_a_plan_tells_the_disk_that_is_needed(tmp_path: Path) -> None:
    ran(tmp_path, "r", spec(jobs=[{"name": "a"}]))
    told = json.loads(fleet(tmp_path, "plan", "s.yaml", "--json").stdout)
    parameters = 8 * 8 + 8 + 8 * 2 + 2
    assert told["checkpoint_bytes"] == 3 * 4 * parameters  # two are kept, and one while the next is written
    words = " ".join(fleet(tmp_path, "plan", "s.yaml", "--set", "checkpoints.best=accuracy").stdout.split())
    assert "of disk: 3 of each network" in words


def test_who_is_hopeless_never_goes_on() -> None:
    """Of 9 trials 3 go on from the first rung: who is not among the three best that are known stays."""
    rule = Halving([1, 3, 9], 3)
    for trial, loss in enumerate([0.5, 0.4, 0.3, 0.2, 0.9]):
        rule.arrived(trial, 1, loss)
        rule.report(trial, 1, loss)
    assert set(rule.hopeless(9)) == {0, 4}
    assert set(rule.hopeless(30)) == set()


Changes = Callable[..., Any]


def begun(folder: Path, first: Any) -> RunDirectory:
    directory = RunDirectory(folder)
    keep_to_spec(directory, first)
    directory.journal.touch()
    return directory


def test_what_may_change_as_a_run_goes_on(runtime: Changes, tmp_path: Path) -> None:
    directory = begun(tmp_path, runtime({"name": "a"}))
    keep_to_spec(directory, runtime({"name": "a"}, {"name": "b"}))
    keep_to_spec(directory, runtime({"name": "a", "evaluation_batch_size": 2}, {"name": "b"}))
    assert set(json.loads(directory.spec.read_text())["jobs"]) == {"a", "b"}


@pytest.mark.parametrize(
    ("jobs", "told"),
    [
        ([{"name": "a"}], "job b is part of the run, and not of this spec; leave it there"),
        ([{"name": "a", "stop": {"epochs": 9}}, {"name": "b"}], "fleet extend"),
        ([{"name": "a", "seed": 5}, {"name": "b"}], "jobs.a.seed"),
    ],
)
def test_what_may_not_is_told_with_the_mend(
    runtime: Changes, tmp_path: Path, jobs: list[Mapping[str, Any]], told: str
) -> None:
    directory = begun(tmp_path, runtime({"name": "a"}, {"name": "b"}))
    with pytest.raises(BadInput, match=told):
        keep_to_spec(directory, runtime(*jobs))


def test_jobs_that_the_run_has_are_passed_over_by_add_and_by_a_spec_that_caught_up(tmp_path: Path) -> None:
    values = spec(jobs=[{"name": "a"}, {"name": "b"}])
    assert ran(tmp_path, "r", values)[0] == 0
    entries = {"defaults": values["defaults"], "jobs": [{"name": "a"}, {"name": "c"}]}
    (tmp_path / "more.yaml").write_text(json.dumps(entries))
    told = fleet(tmp_path, "add", "r", "more.yaml")
    assert told.returncode == 0 and "a: the run has it" in told.stdout and "c: left in" in told.stdout
    values["jobs"].append({"name": "c"})
    code, now = ran(tmp_path, "r", values)
    assert code == 0 and {name: job["status"] for name, job in now["jobs"].items()} == dict.fromkeys("abc", "done")


def test_metrics_may_be_added_and_none_taken_away(runtime: Changes, tmp_path: Path) -> None:
    first = runtime({"name": "a"})

    def with_metrics(*names: str) -> Any:
        (job,) = first.spec.jobs
        spec: EnsembleSpec = first.spec.with_jobs((job.model_copy(update={"metrics": names}),))
        return runtime({"name": "a"}).__class__(spec, first.facts)

    directory = begun(tmp_path, with_metrics("accuracy"))
    keep_to_spec(directory, with_metrics("accuracy", "top5"))
    with pytest.raises(BadInput, match="metrics may be added, and none taken away"):
        keep_to_spec(directory, with_metrics("accuracy"))
