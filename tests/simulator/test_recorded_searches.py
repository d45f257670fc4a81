"""A recorded search, played again: as it was it decides the same, otherwise as a search of that kind would."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fleet.commands.cli import app
from fleet.search.journalled import journalled
from fleet.search.of_spec import search_of
from fleet.spec import results_mapping
from tests.journals import as_events
from tests.search.support.curves import cost, value
from tests.search.support.driving import drive
from tests.search.support.journals import Value, searched_lines
from tests.search.support.sections import spec_of

HALVING = {"name": "halving", "eta": 3, "rungs": [1, 3, 9]}
RULES: dict[str, Any] = {
    "none": "none",
    "halving": HALVING,
    "synchronous": {**HALVING, "synchronous": True},
    "hyperband": {**HALVING, "name": "hyperband"},
    "median": {"name": "median", "grace": 2},
}
WRITTEN = {
    "none": "none",
    "halving": "halving:eta=3,rungs=1/3/9",
    "synchronous": "halving:rungs=1/3/9,synchronous=true",
    "hyperband": "hyperband:rungs=1/3/9",
    "median": "median:grace=2",
}
Recorded = Callable[..., Path]


def whole(trial: int, epoch: int) -> float:
    """Values of trials that never fail."""
    return round((trial * 37 % 41) / 41 + 1 / epoch, 3)


@pytest.fixture
def recorded(tmp_path: Path) -> Recorded:
    """A function that leaves the directory of a run with such a search."""

    def left(
        told: Value = value,
        most: int | None = None,
        later: int | None = None,
        hours: float | None = None,
        **search: Any,
    ) -> Path:
        spec = spec_of(**search)
        (tmp_path / "spec.json").write_text(json.dumps(results_mapping(spec)))
        lines = searched_lines(spec, told, cost, most, later, hours)
        (tmp_path / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return tmp_path

    return left


def simulate(*words: str | Path) -> tuple[int, str]:
    """The exit code, and all that is written."""
    found = CliRunner().invoke(app, ["simulate", *map(str, words)])
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found.exit_code, found.output


def told(*words: str | Path) -> dict[str, Any]:
    code, output = simulate(*words, "--json")
    assert code == 0, output
    return dict(json.loads(output))


@pytest.mark.parametrize("rule", RULES)
def test_a_search_that_is_played_as_it_was_decides_the_same(recorded: Recorded, rule: str) -> None:
    folder = recorded(stopping=RULES[rule], width=5)
    digest = drive(search_of(spec_of(stopping=RULES[rule], width=5), cost), value).digest()
    found = told("--search", folder, "--devices", "1", "--devices", "3", "--devices", "64")
    assert len(found["runs"]) == 3
    for one in (found["recorded"], *found["runs"]):
        assert one["as_recorded"] and one["decisions"] == digest and not one["missing_trials"]
    ends = [one["makespan"] for one in found["runs"]]
    assert ends[0] > ends[1] >= ends[2] and len({one["best"] for one in found["runs"]}) == 1


def test_no_policy_changes_what_is_decided(recorded: Recorded) -> None:
    folder = recorded(stopping=HALVING)
    policies = [word for name in ("fifo", "flotilla", "malleable", "local") for word in ("--policy", name)]
    found = told("--search", folder, *policies, "--cluster", "2x2")
    assert [one["policy"] for one in found["runs"]] == ["fifo", "flotilla", "malleable", "local"]
    assert {one["decisions"] for one in found["runs"]} == {found["recorded"]["decisions"]}


def test_trials_that_were_added_later_come_when_they_came(recorded: Recorded) -> None:
    folder = recorded(stopping=HALVING, trials=12, later=30)
    found = told("--search", folder)["recorded"]
    assert found["as_recorded"] and found["trials"] == 30


def test_a_search_that_was_cut_short_decides_the_same_as_far_as_it_came(recorded: Recorded) -> None:
    folder = recorded(stopping=HALVING, most=15)
    found = told("--search", folder)["recorded"]
    assert found["as_recorded"] and found["missing_trials"] > 0


def test_a_search_that_the_clock_ended_ends_where_it_did(recorded: Recorded) -> None:
    folder = recorded(stopping=HALVING, most=15, hours=1.0)
    found = told("--search", folder, "--devices", "8")
    lines = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    kept = journalled(as_events(lines))
    assert found["runs"] and kept.hours == 1.0
    for one in (found["recorded"], *found["runs"]):
        assert one["as_recorded"] and not one["missing_trials"] and one["trials"] == len(kept.trials)
    assert told("--search", folder, "--stopping", "none")["runs"][0]["missing_trials"] > 0


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("width", [3, 8])
def test_where_all_epochs_are_known_another_rule_decides_as_a_search_would(
    recorded: Recorded, rule: str, width: int
) -> None:
    folder = recorded(whole, stopping="none")
    (found,) = told("--search", folder, "--stopping", WRITTEN[rule], "--width", str(width))["runs"]
    real = drive(search_of(spec_of(stopping=RULES[rule], width=width), cost), whole)
    best = real.best()
    assert found["decisions"] == real.digest() and not found["missing_trials"]
    assert best is not None and (found["best"], found["best_value"]) == (f"n-{best[0]}", best[1])


def test_epochs_that_nobody_trained_are_told(recorded: Recorded) -> None:
    folder = recorded(whole, stopping=HALVING)
    lines = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    trained = {trial.trial: max(trial.metrics) for trial in journalled(as_events(lines)).trials.values()}
    (found,) = told("--search", folder, "--stopping", "none")["runs"]
    short = {trial: 9 - epochs for trial, epochs in trained.items() if epochs < 9}
    assert (found["missing_trials"], found["missing_epochs"]) == (len(short), sum(short.values()))
    assert found["epochs"] == 9 * len(trained) and found["done"] == len(trained) - len(short)
    assert 0 < found["known_seconds"] < found["makespan"]
    _, text = simulate("--search", folder, "--stopping", "none")
    assert f"nobody trained {sum(short.values())} epochs of {len(short)} trials" in text
    assert "All is sure until" in text and "(as it was)" in text


def test_bounds_and_widths_are_those_that_are_asked_for(recorded: Recorded) -> None:
    folder = recorded(whole, stopping="none")
    runs = told("--search", folder, "--trials", "10", "--width", "1", "--width", "10")["runs"]
    assert [(one["trials"], one["width"]) for one in runs] == [(10, 1), (10, 10)]
    (few,) = told("--search", folder, "--epochs", "27", "--stopping", "none")["runs"]
    assert (few["trials"], few["epochs"]) == (3, 27)
    (more,) = told("--search", folder, "--trials", "500")["runs"]
    assert more["trials"] == 40
    assert "nobody knows what they come to" in simulate("--search", folder, "--trials", "500")[1]


POPULATION: dict[str, Any] = {
    "stopping": {"name": "population", "interval": 2}, "trials": 8, "width": 8,
    "over": {"optimizer.arguments.lr": {"log_uniform": [1e-4, 0.1]}},
}  # fmt: skip


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]


def first_copies(folder: Path) -> dict[int, int]:
    """Trial -> epochs that it had when it first took another one's weights."""
    copied = [line for line in lines_of(folder) if line.get("copy")]
    return {line["trial"]: line["start"] for line in reversed(copied)}


@pytest.mark.parametrize("barrier", [False, True])
def test_a_population_has_the_same_lineage_on_any_devices(recorded: Recorded, barrier: bool) -> None:
    asked = {**POPULATION, "stopping": {**POPULATION["stopping"], "synchronous": barrier}}
    folder = recorded(whole, **asked)
    digest = drive(search_of(spec_of(**asked), cost), whole).digest()
    found = told("--search", folder, "--devices", "1", "--devices", "3", "--policy", "fifo")
    assert first_copies(folder) and len(found["runs"]) == 2
    for one in (found["recorded"], *found["runs"]):
        assert one["as_recorded"] and one["decisions"] == digest and not one["missing_trials"]


def test_of_members_with_other_weights_than_in_the_run_nothing_is_known(recorded: Recorded) -> None:
    folder = recorded(whole, **POPULATION)
    (alone,) = told("--search", folder, "--stopping", "none")["runs"]
    short = {trial: 9 - start for trial, start in first_copies(folder).items()}
    assert (alone["missing_trials"], alone["missing_epochs"]) == (len(short), sum(short.values()))
    assert alone["done"] == 8 - len(short) > 0
    (other,) = told("--search", folder, "--stopping", "population:interval=2,quantile=0.5")["runs"]
    assert other["missing_trials"] and not other["as_recorded"] and other["known_seconds"] > 0


def test_what_a_population_would_do_is_known_until_its_first_copies(recorded: Recorded) -> None:
    folder = recorded(whole, **{**POPULATION, "stopping": "none"})
    (found,) = told("--search", folder, "--stopping", "population:interval=3")["runs"]
    assert found["missing_trials"] and 0 < found["known_seconds"] < found["makespan"]
    (whole_one,) = told("--search", folder, "--stopping", "population:interval=9")["runs"]
    assert not whole_one["missing_trials"] and whole_one["done"] == 8


def test_trials_that_can_be_no_members_and_a_seed_that_nobody_knows_are_told(recorded: Recorded) -> None:
    code, text = simulate("--search", recorded(stopping=HALVING, trials=4), "--stopping", "population")
    assert code == 2 and "cannot change while a trial trains" in text
    folder = recorded(whole, **POPULATION)
    (folder / "journal.jsonl").write_text(
        "".join(json.dumps({k: v for k, v in line.items() if k != "search_seed"}) + "\n" for line in lines_of(folder))
    )
    code, text = simulate("--search", folder)
    assert code == 2 and "the journal does not say it" in text


def test_the_front_of_several_metrics_is_told(recorded: Recorded) -> None:
    folder = recorded(whole, stopping=HALVING, metric=["loss", "accuracy"])
    found = told("--search", folder, "--devices", "1")
    front = [f"n-{trial}" for trial in journalled(as_events(lines_of(folder))).front()]
    assert len(front) > 1 and [one["front"] for one in (found["recorded"], *found["runs"])] == [front, front]
    assert found["recorded"]["as_recorded"]


def test_a_sampler_that_learns_is_told_of(recorded: Recorded) -> None:
    pytest.importorskip("optuna")
    folder = recorded(stopping=HALVING, sampler="tpe", trials=12)
    assert told("--search", folder)["recorded"]["as_recorded"]
    assert "the sampler tpe learns from results" in simulate("--search", folder, "--stopping", "none")[1]


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--stopping", "halfing"], "halving"),
        (["--stopping", "halving:eta=1"], "eta"),
        (["--stopping", "halving:rungs=3/1"], "rungs"),
        (["--stopping", "median:eta=4"], "median has no eta"),
        (["--stopping", "halving:eta"], "halving:eta=3,rungs=1/3/9"),
        (["--width", "0"], "--width 0: name 1 or more"),
        (["--devices", "0"], "--devices 0"),
        (["--cluster", "2x2:v100"], "knows no kinds"),
        (["--csv", "jobs.csv"], "--csv is for jobs"),
        (["--policy", "fleetila"], "flotilla"),
    ],
)
def test_mistakes_are_told(recorded: Recorded, words: list[str], wanted: str) -> None:
    code, text = simulate("--search", recorded(stopping=HALVING, trials=4), *words)
    assert code == 2 and wanted in text, text


def test_what_is_no_search_is_told(tmp_path: Path) -> None:
    code, text = simulate("--search", tmp_path)
    assert code == 2 and "journal.jsonl is missing" in text
    (tmp_path / "spec.json").write_text(json.dumps({"jobs": {}, "data": {}}))
    (tmp_path / "journal.jsonl").write_text('{"t": 0.0, "unix": 0.0, "event": "session", "session": 0}\n')
    code, text = simulate("--search", tmp_path)
    assert code == 2 and "no search" in text
    code, text = simulate("--stopping", "none", "--run", tmp_path, "--policy", "fifo")
    assert code == 2 and "--search DIR" in text
    code, text = simulate("--run", tmp_path)
    assert code == 2 and "under which policy?" in text


def test_a_policy_that_never_trains_a_trial_is_told(recorded: Recorded) -> None:
    folder = recorded(stopping=HALVING, trials=4)
    text = (folder / "journal.jsonl").read_text().replace('"event": "job",', '"event": "job", "minimum_devices": 4,')
    (folder / "journal.jsonl").write_text(text)
    code, text = simulate("--search", folder, "--policy", "flotilla", "--devices", "2")
    assert code in (1, 2) and "Traceback" not in text, text
