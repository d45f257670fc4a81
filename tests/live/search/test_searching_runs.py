"""A search decides the same, and trains to the same bits, on any number of devices, under any policy, after a kill."""

from __future__ import annotations

import csv
import json
import shutil
from typing import Any

import pytest

from tests.live.search.conftest import SEARCH
from tests.live.support.bits import assert_same_bits
from tests.live.support.ensembles import Ensemble, RunFolder
from tests.live.support.processes import FLEET, run, started
from trainers import latest_good


def assert_same_search(mine: RunFolder, other: RunFolder) -> None:
    """The same decisions, winner, values of trials, and bits of the newest checkpoint of each that did not fail."""
    first, second = mine.summary, other.summary
    assert first["status"] == second["status"] == "done"
    assert first["search"] == second["search"]
    whole = [job for job, told in first["jobs"].items() if told["status"] != "failed"]
    newest = [{job: run.checkpoints(job)[-1] for job in whole if run.checkpoints(job)} for run in (mine, other)]
    assert_same_bits(*newest)


def statuses(folder: RunFolder) -> dict[str, Any]:
    return {trial["name"]: trial["status"] for trial in folder.summary["search"]["trials"]}


def decisions(folder: RunFolder) -> list[dict[str, Any]]:
    """What the journal says of them, but when."""
    kept = ("job", "trial", "start", "end", "time", "kind", "values", "cost")
    return [{key: line.get(key) for key in kept} for line in folder.events("search")]


def test_a_search_ends_well_whatever_its_trials_do(on_one_device: RunFolder) -> None:
    told, summary = statuses(on_one_device), on_one_device.summary
    assert summary["status"] == "done" and summary["search"]["over"]
    assert list(told) == [f"net-{trial}" for trial in range(10)]
    assert {"done", "stopped", "failed"} == set(told.values())
    errors = [job["error"] for job in summary["jobs"].values() if job["error"]]
    assert any("the hull leaks" in error for error in errors), errors
    assert any("diverged" in error for error in errors), errors
    assert {name: told[name] for name in told} == {name: summary["jobs"][name]["status"] for name in told}


def test_its_winner_has_the_best_value_of_those_that_its_journal_tells(on_one_device: RunFolder) -> None:
    search = on_one_device.summary["search"]
    wanted = {trial["name"]: trial["epochs"] for trial in search["trials"]}  # others were trained ahead for nothing
    results = [line for line in on_one_device.events("result") if line["epoch"] <= wanted[line["job"]]]
    last = {line["job"]: line["value"] for line in results if line["value"] is not None}
    assert search["best_value"] == min(last.values()) == last[search["best"]]


def test_no_epoch_of_a_trial_is_trained_twice_and_none_that_nobody_wanted(on_one_device: RunFolder) -> None:
    epochs = [(line["job"], line["epoch"]) for line in on_one_device.events("epoch")]
    assert len(set(epochs)) == len(epochs)
    for trial in on_one_device.summary["search"]["trials"]:
        newest, _ = latest_good(on_one_device.path / "checkpoints" / trial["name"])
        if trial["status"] != "failed":
            assert newest is not None and newest.epoch == trial["epochs"]


def test_three_devices_find_the_same(searching: Ensemble, on_one_device: RunFolder) -> None:
    ended = run(searching.plain("three", "--trainers", "3", "--policy", "flotilla"), searching.folder)
    assert ended.code == 0, ended.output
    assert "stopped by the search" in ended.output
    assert f"search: over after 10 trials; the best is {on_one_device.summary['search']['best']}" in ended.output
    assert_same_search(searching.left("three"), on_one_device)
    assert decisions(on_one_device) == decisions(searching.left("three"))


def test_a_killed_search_goes_on_to_the_same(searching: Ensemble, on_one_device: RunFolder) -> None:
    folder = searching.left("killed")
    gate = {"GATE": str(searching.folder / "never"), "GATE_AFTER": "9"}
    with started(searching.plain("killed", "--trainers", "2"), searching.folder, **gate) as it:
        it.wait_for(lambda: len(folder.events("result")) >= 4, "four results")
        it.kill()
    ended = run(searching.plain("killed", "--trainers", "3", "--policy", "malleable"), searching.folder)
    assert ended.code == 0, ended.output
    assert len(folder.events("session")) == 2
    assert_same_search(folder, on_one_device)


def test_more_trials_later_leave_what_was_decided(searching: Ensemble, on_one_device: RunFolder) -> None:
    folder = searching.left("longer")
    for trials in ("4", "10"):
        ended = run(searching.plain("longer", "--set", f"search.trials={trials}"), searching.folder)
        assert ended.code == 0, ended.output
        if trials == "4":
            first = decisions(folder)
            assert len(statuses(folder)) == 4 and folder.summary["status"] == "done"
    assert decisions(folder)[: len(first)] == first
    assert len(statuses(folder)) == 10
    assert [line["trials"] for line in folder.events("bounds")] == [4, 10]


def test_people_are_told_how_trials_stand(searching: Ensemble, on_one_device: RunFolder) -> None:
    told = run([*FLEET, "status", str(on_one_device.path), "--all", "--json"], searching.folder)
    counts = json.loads(told.output)["counts"]
    assert (counts["waiting"], counts["running"], counts["paused"]) == (0, 0, 0) and counts["pruned"] > 0
    best = run([*FLEET, "best", str(on_one_device.path), "--metric", "loss", "--json"], searching.folder)
    assert {row["status"] for row in json.loads(best.output)} >= {"done", "stopped"}
    plan = run([*FLEET, "plan", str(searching.spec)], searching.folder)
    assert plan.code == 0 and "at most 10 trials" in plan.output, plan.output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "trainers"),
    [("fifo", "2"), ("fifo", "3"), *((policy, n) for policy in ("flotilla", "malleable") for n in "123")],
)
def test_no_policy_and_no_number_of_devices_changes_it(
    searching: Ensemble, on_one_device: RunFolder, policy: str, trainers: str
) -> None:
    out = f"{policy}-{trainers}"
    ended = run(searching.plain(out, "--trainers", trainers, "--policy", policy), searching.folder)
    assert ended.code == 0, ended.output
    assert_same_search(searching.left(out), on_one_device)


@pytest.mark.slow
def test_what_a_policy_never_trains_is_no_result(searching: Ensemble, on_one_device: RunFolder) -> None:
    ended = run(searching.plain("dropped", "--policy", "fifo"), searching.folder)
    assert ended.code == 1 and "it asks for 2 devices; the cluster has 1" in ended.output
    folder = searching.left("dropped")
    assert not folder.events("result") and not folder.summary["search"]["over"]
    ended = run(searching.plain("dropped", "--policy", "flotilla"), searching.folder)
    assert ended.code == 0, ended.output
    assert_same_search(folder, on_one_device)


@pytest.mark.slow
def test_a_rehearsal_finds_the_same_on_any_number_of_devices(searching: Ensemble) -> None:
    folders = []
    for shape in ("1", "2x4"):
        options = ("--rehearse", "--cluster", shape, "--time-scale", "0.01")
        ended = run(searching.plain(f"rehearsed-{shape}", *options), searching.folder)
        assert ended.code == 0, ended.output
        folders.append(searching.left(f"rehearsed-{shape}"))
    first, second = (folder.summary["search"] for folder in folders)
    assert first == second and len(first["trials"]) == SEARCH["trials"]


@pytest.mark.slow
def test_a_trial_is_extended_like_any_network(searching: Ensemble, on_one_device: RunFolder) -> None:
    folder, best = searching.left("extended"), on_one_device.summary["search"]["best"]
    shutil.copytree(on_one_device.path, folder.path)
    ended = run([*FLEET, "extend", str(folder.path), best, "--epochs", "6"], searching.folder)
    assert ended.code == 0, ended.output
    assert folder.summary["jobs"][best]["epochs"] == 6
    assert folder.summary["search"] == on_one_device.summary["search"]


def test_it_is_played_again_as_it_was_on_any_devices(searching: Ensemble, on_one_device: RunFolder) -> None:
    command = [*FLEET, "simulate", "--search", str(on_one_device.path), "--json"]
    told = run([*command, "--devices", "3", "--devices", "64", "--policy", "flotilla"], searching.folder)
    assert told.code == 0, told.output
    found, search = json.loads(told.output), on_one_device.summary["search"]
    for one in (found["recorded"], *found["runs"]):
        assert one["as_recorded"] and one["decisions"] == search["decisions"]
        assert (one["best"], one["best_value"], one["missing_trials"]) == (search["best"], search["best_value"], 0)
        assert 0 < one["best_seconds"] <= one["makespan"]
    other = run([*command, "--stopping", "none"], searching.folder)
    assert other.code == 0 and json.loads(other.output)["runs"][0]["missing_epochs"] > 0, other.output


def test_its_report_and_its_metrics_tell_its_values(on_one_device: RunFolder) -> None:
    page = (on_one_device.path / "report.html").read_text()
    assert all(f'id="figure-search-{name}"' in page for name in ("parallel", "rungs", "time", "devices"))
    with open(on_one_device.path / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    values = {trial["name"]: trial["values"] for trial in on_one_device.summary["search"]["trials"]}
    for row in rows:
        assert float(row["optimizer.arguments.lr"]) == values[row["job"]]["optimizer.arguments.lr"]
        assert row["model.arguments.fault"] == values[row["job"]]["model.arguments.fault"]
