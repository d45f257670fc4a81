"""What the report and the status of a run say of its search, for every kind of search."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import plotly.graph_objects
import pytest

from fleet.report.run_history import build_history
from fleet.report.run_page import read_searched, render
from fleet.report.search_figures import comparable, importance_of
from fleet.report.standing import Look
from fleet.report.wording import told_values
from fleet.search.journalled import Searched
from fleet.search.space import value_columns, value_row
from fleet.spec import results_mapping
from tests.journals import as_events, read_lines
from tests.report.test_page import Page
from tests.search.support.curves import cost, value
from tests.search.support.journals import Line, searched_lines
from tests.search.support.sections import OVER, spec_of

HALVING = {"name": "halving", "eta": 3, "rungs": [1, 3, 9]}


@pytest.fixture
def run_of(tmp_path: Path) -> Callable[..., Path]:
    """A function that leaves the directory of a run with a search, as far as so many results."""

    def left(most: int | None = None, told: Callable[[int, int], float | None] = value, **search: Any) -> Path:
        spec = spec_of(**{"stopping": HALVING, **search})
        (tmp_path / "spec.json").write_text(json.dumps(results_mapping(spec)))
        lines = searched_lines(spec, told, cost, most)
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        (tmp_path / "journal.jsonl").write_text(text)
        return tmp_path

    return left


def searched(folder: Path) -> Searched:
    found = read_searched(folder)
    assert found is not None
    return found


def page(folder: Path) -> Page:
    lines = list(read_lines(folder / "journal.jsonl"))
    return Page(render(build_history(as_events(lines)), "run", searched(folder)))


def places(figure: dict[str, Any]) -> dict[str, list[float]]:
    return {trace["name"]: trace["y"] for trace in figure["data"]}


def test_the_journal_tells_how_each_trial_stands(run_of: Callable[..., Path]) -> None:
    rows = searched(run_of(trials=40)).rows
    assert [row.told.trial for row in rows] == list(range(40))
    assert {row.status for row in rows} == {"stopped", "done", "failed"}
    for row in rows:
        assert (row.value is None) == (row.status == "failed")
        assert row.value is None or row.value == value(row.told.trial, row.epochs)
        assert (row.status == "done") == (row.epochs == 9 and row.value is not None)
    best = searched(run_of(trials=40)).best
    assert best is not None and best.value == min(row.value for row in rows if row.value is not None)


def test_a_search_that_goes_on_has_trials_under_way_and_paused(run_of: Callable[..., Path]) -> None:
    folder = run_of(12, width=6)
    counts = searched(folder).counts
    assert counts["under way"] == 6 and counts["paused"] > 0 and "stopped" not in counts
    told = page(folder).text
    assert f"6 under way, {counts['paused']} paused" in told
    assert "hatched is what has no result yet" in told


def check_keys(figures: dict[str, Any]) -> None:
    """Plotly knows every key."""
    for figure in figures.values():
        plotly.graph_objects.Figure(json.loads(re.sub(r'"@[a-z]+"', '"#123456"', json.dumps(figure))))


@pytest.mark.parametrize(
    ("most", "search"),
    [(None, {"trials": 60}), (12, {}), (0, {}), (1, {}), (None, {"trials": 1}), (None, {"stopping": "median"})],
)
def test_each_search_has_its_figures(run_of: Callable[..., Path], most: int | None, search: dict[str, Any]) -> None:
    folder = run_of(most, **search)
    figures = page(folder).figures
    wanted = {"search-parallel", "search-rungs"} | ({"search-time", "search-devices"} if most != 0 else set())
    drawn = {key for key in figures if key.startswith("search-")}
    assert wanted <= drawn <= wanted | {"search-importance"}
    check_keys(figures)
    trials = len(searched(folder).rows)
    assert len(figures["search-parallel"]["data"]) == trials
    assert set(figures["search-rungs"]["data"][0]["y"]) == set(range(trials))


def test_what_a_trial_lacks_runs_below_the_axis(run_of: Callable[..., Path]) -> None:
    folder = run_of(trials=40)
    rows, lines = searched(folder).rows, places(page(folder).figures["search-parallel"])
    names = searched(folder).columns
    assert any("model.arguments.widths#2" not in row.values for row in rows)
    for row in rows:
        *values, result = lines[row.told.job]
        assert [place < 0 for place in values] == [name not in row.values for name in names]
        assert all(0 <= place <= 1 for place in values if place >= 0)
        assert (result < 0) == (row.value is None)
    best = searched(folder).best
    assert best is not None and lines[best.told.job][-1] == 1.0


def test_a_value_that_is_far_off_leaves_the_others_apart(run_of: Callable[..., Path]) -> None:
    def diverging(trial: int, epoch: int) -> float:
        return 1e9 if trial == 3 else 1 + trial / 10

    lines = places(page(run_of(told=diverging, trials=9)).figures["search-parallel"])
    assert lines["n-3"][-1] == 0 and lines["n-0"][-1] - lines["n-1"][-1] > 0.05


def test_rungs_tell_what_was_decided(run_of: Callable[..., Path]) -> None:
    folder = run_of(trials=40)
    traces = page(folder).figures["search-rungs"]["data"]
    ends = {trace["name"]: len(trace["x"]) for trace in traces[1:]}
    told = searched(folder).told
    promoted = sum(one.kind == "resume" for one in told.decisions)
    counts = searched(folder).counts
    assert ends == {
        "promoted": promoted, "stopped": counts["stopped"], "all epochs": counts["done"], "failed": counts["failed"],
    }  # fmt: skip
    segments = traces[0]
    for x, base, job in zip(segments["x"], segments["base"], segments["meta"]["networks"]):
        mine = [one for one in told.decisions if told.trials[one.trial].job == job and one.kind in ("start", "resume")]
        assert (base, x) in [(one.time, told.trials[one.trial].cost * (one.end - one.start)) for one in mine]


def test_the_best_only_gets_better_and_ends_with_the_winner(run_of: Callable[..., Path]) -> None:
    folder = run_of(trials=40)
    for key in ("search-time", "search-devices"):
        line = page(folder).figures[key]["data"][1]
        assert line["y"] == sorted(line["y"], reverse=True) and line["x"] == sorted(line["x"])
        assert line["y"][-1] == min(result.value for result in searched(folder).told.results if result.value)


def test_importance_finds_what_matters_and_comes_out_the_same(run_of: Callable[..., Path]) -> None:
    def by_depth(trial: int, epoch: int) -> float:
        depth = int(spec_values[trial]["model.arguments.depth"])
        return depth + 1 / epoch + trial / 1e6

    spec_values = [row.told.values for row in searched(run_of(trials=60)).rows]
    found = searched(run_of(told=by_depth, trials=60))
    importance = importance_of(found)
    assert next(iter(importance.shares)) == "model.arguments.depth"
    assert set(importance.shares) == set(found.columns)
    assert sum(importance.shares.values()) == pytest.approx(1)
    assert importance == importance_of(found)
    assert comparable(found)[0] == 1


def test_too_few_trials_and_equal_ones_are_told(run_of: Callable[..., Path]) -> None:
    assert "too few" in importance_of(searched(run_of(trials=2))).told
    assert "same value" in importance_of(searched(run_of(told=lambda trial, epoch: 1.0, trials=9))).told


def test_without_optuna_the_report_says_what_to_install(
    run_of: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    told = page(run_of(trials=40))
    assert "pip install 'fleet-hpc[search]'" in told.text and "search-importance" not in told.figures


def test_values_of_trials_are_flat_rows() -> None:
    over = spec_of().search.over  # type: ignore[union-attr]
    values = {
        "optimizer.arguments.lr": 0.01, "model.arguments.widths": [8, 16], "model.arguments.dropout": 0.1,
        "model.arguments.depth": 3, "model.arguments.shape": [2, [1, 2]],
    }  # fmt: skip
    row = value_row(over, values)
    assert row == {
        "optimizer.arguments.lr": 0.01, "model.arguments.widths#count": 2, "model.arguments.widths#0": 8,
        "model.arguments.widths#1": 16, "model.arguments.dropout": 0.1, "model.arguments.depth": 3,
        "model.arguments.shape#0": 2, "model.arguments.shape#1": [1, 2],
    }  # fmt: skip
    assert set(value_columns(over)) == {*row, "model.arguments.widths#2"} and set(OVER) == set(values)
    assert told_values({"a.lr": 0.012345678, "b.widths": [8]}) == "lr 0.01235, widths [8]"
    assert told_values({"a.lr": 1, "b.lr": 2}) == "a.lr 1, b.lr 2"


def test_status_tells_the_best_trial_and_what_is_left(run_of: Callable[..., Path]) -> None:
    folder = run_of(12, width=6, budget={"epochs": 100})
    standing, found = Look(folder).standing(), searched(folder)
    assert standing is not None and standing.search is not None
    told = standing.search
    assert (told.trials, told.most_trials) == (len(found.rows), 40)
    assert (told.epochs, told.most_epochs) == (found.told.epochs, 100)
    came = [one for one in found.told.results if one.value is not None]
    best = min(came, key=lambda one: (one.value, one.trial))  # whether the search knows it yet or not
    trial = found.told.trials[best.trial]
    assert (told.best, told.best_value, told.values) == (trial.job, best.value, trial.values)


def test_a_run_without_a_search_has_none(tmp_path: Path) -> None:
    assert read_searched(tmp_path) is None
    (tmp_path / "spec.json").write_text(json.dumps({"jobs": {}}))
    (tmp_path / "journal.jsonl").write_text("")
    assert read_searched(tmp_path) is None
    lines: list[Line] = [{"t": 0.0, "event": "session"}]
    assert "search" not in Page(render(build_history(as_events(lines)), "run")).headings


def test_a_metric_that_is_no_number_is_no_result(run_of: Callable[..., Path]) -> None:
    found = searched(run_of(told=lambda trial, epoch: math.nan if trial else 1.0, trials=3))
    assert [row.status for row in found.rows] == ["stopped", "failed", "failed"]
    assert found.best is not None and found.best.told.trial == 0


POPULATION: dict[str, Any] = {
    "stopping": {"name": "population", "interval": 1},
    "job": {"optimizer": "SGD", "stop": {"epochs": 6}},
    "over": {"optimizer.arguments.lr": {"log_uniform": [0.001, 1.0]}},
    "trials": 8,
}
TWO: dict[str, Any] = {"metric": ["loss", "latency"], "mode": ["min", "min"], "sampler": "nsga2"}


def finite(trial: int, epoch: int) -> float:
    return value(trial, epoch) or 2.0 if value(trial, epoch) == value(trial, epoch) else 2.0


def test_a_population_shows_who_went_on_from_whom(run_of: Callable[..., Path]) -> None:
    folder = run_of(told=finite, **POPULATION)
    found, figures = searched(folder), page(folder).figures
    check_keys(figures)
    moves = [one for one in found.told.decisions if one.copy is not None]
    assert moves
    lineage = {trace["name"]: trace for trace in figures["search-lineage"]["data"]}
    ends = list(zip(*[iter(zip(lineage["goes on from"]["x"], lineage["goes on from"]["y"]))] * 3))
    for ((donor_epoch, donor), (start, member), gap), one in zip(ends, moves, strict=True):
        assert one.copy is not None and gap == (None, None)
        assert (donor_epoch, donor, start, member) == (one.copy.epoch, one.copy.donor, one.start, one.trial)
    way = lineage["way to the best"]
    assert found.best is not None and (way["x"][0], way["y"][-2]) == (0, found.best.told.trial)
    last = {one.trial: one.copy.values for one in moves if one.copy is not None}
    for row in found.rows:
        now = last.get(row.told.trial, row.told.values)
        assert row.values == now
        line = next(trace for trace in figures["search-value-0"]["data"] if trace["name"] == row.told.job)
        assert line["y"][-1] == now["optimizer.arguments.lr"]


def test_several_metrics_show_their_front(run_of: Callable[..., Path]) -> None:
    folder = run_of(told=finite, **TWO)
    found, told = searched(folder), page(folder)
    check_keys(told.figures)
    front = {row.told.job for row in found.front}
    traces = {trace["name"]: trace for trace in told.figures["search-front-0"]["data"]}
    assert set(traces["on the front"]["meta"]["networks"]) == front
    assert len(traces["others"]["x"]) + len(front) == len(found.rows)
    assert len(front) > 1 and "The Pareto front" in told.text


def test_trials_that_people_trained_have_a_table(run_of: Callable[..., Path]) -> None:
    folder = run_of(trials=5)
    values = {"optimizer.arguments.lr": 0.0125, "model.arguments.depth": 3}
    lines = [
        {"event": "own_trial", "t": 1.0, "unix": 1.7e9, "trial": 0, "time": 0, "values": values, **how}
        for how in ({"status": "suggested", "value": None}, {"status": "done", "value": 0.4321})
    ]
    with open(folder / "journal.jsonl", "a") as journal:
        journal.writelines(json.dumps(line) + "\n" for line in lines)
    told = page(folder).text
    assert "Trials that people trained" in told and "0.4321" in told and "0.0125" in told
    assert [one.status for one in searched(folder).told.own] == ["done"]
