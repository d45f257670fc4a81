"""People and the clock say how far a search goes; what it decides is the same, sooner or later."""

from __future__ import annotations

import json
import shutil
from typing import Any

import fleet
from fleet.journal.run_requests import SearchRequests
from fleet.session.search.recorded import recorded
from fleet.spec import load
from tests.journals import as_events
from tests.live.search.test_recorded import unknown
from tests.live.search.test_searching_runs import assert_same_search, decisions
from tests.live.support.ensembles import Ensemble, RunFolder
from tests.live.support.processes import FLEET, run, started


def bounds(folder: RunFolder, key: str) -> list[Any]:
    return [line[key] for line in folder.events("bounds")]


def assert_found_again(searching: Ensemble, folder: RunFolder) -> None:
    """The journal alone tells all decisions."""
    found = recorded(load(searching.spec), unknown, as_events(folder.journal))
    assert found.search.digest() == folder.summary["search"]["decisions"] and found.search.is_over


def test_hours_end_a_search_and_more_of_them_go_on_with_it(searching: Ensemble, on_one_device: RunFolder) -> None:
    folder, second = searching.left("hours"), 1 / 3600
    budget = "search.budget.hours="
    ended = run(searching.plain("hours", "--set", f"{budget}{1e-6}"), searching.folder)
    assert ended.code == 0, ended.output
    assert folder.summary["search"]["over"] and bounds(folder, "by") == ["spec"]
    assert [line["kind"] for line in folder.events("search")] == ["start"] * 4 and not folder.events("result")
    so_far = (folder.events("session")[-1]["t"] + 1000) * second
    gate = searching.folder / "hours-gate"
    words = searching.plain("hours", "--set", f"{budget}{so_far}")
    with started(words, searching.folder, GATE=str(gate), GATE_AFTER="5") as it:
        it.wait_for(lambda: len(folder.events("result")) >= 3, "three results")
        SearchRequests(folder.path).change({"hours": 1e-6})
        it.wait_for(lambda: "wish" in bounds(folder, "by"), "the run to take the wish in")
        gate.touch()
        stopped = it.finish()
    assert stopped.code == 0, stopped.output
    first = decisions(folder)
    assert folder.summary["search"]["over"] and folder.summary["status"] == "done"
    assert first == decisions(on_one_device)[: len(first)] and 4 < len(first) < len(decisions(on_one_device))
    assert bounds(folder, "over") == [True, False, True] and bounds(folder, "by") == ["spec", "spec", "wish"]
    ended = run(searching.plain("hours", "--trainers", "2"), searching.folder)
    assert ended.code == 0, ended.output
    assert bounds(folder, "over") == [True, False, True, False]
    assert decisions(folder) == decisions(on_one_device)
    assert_same_search(folder, on_one_device)


def test_trials_that_people_add_while_it_goes_on_stay_for_later_starts(
    searching: Ensemble, on_one_device: RunFolder
) -> None:
    folder = searching.left("wished")
    gate = {"GATE": str(searching.folder / "wished-gate"), "GATE_AFTER": "5"}
    with started(searching.plain("wished", "--set", "search.trials=5"), searching.folder, **gate) as it:
        it.wait_for(lambda: bool(folder.events("result")), "a result")
        told = run([*FLEET, "change", str(folder.path), "--trials", "10", "--width", "2"], searching.folder)
        assert told.code == 0 and "goes by that from virtual time" in told.output, told.output
        (searching.folder / "wished-gate").touch()
        ended = it.finish()
    assert ended.code == 0, ended.output
    assert bounds(folder, "trials") == [5, 10] and bounds(folder, "wish") == [None, 0]
    assert bounds(folder, "width") == [4, 2]
    assert len(folder.summary["search"]["trials"]) == 10
    assert_found_again(searching, folder)
    again = run(searching.plain("wished", "--set", "search.trials=5"), searching.folder)
    assert again.code == 0 and bounds(folder, "trials") == [5, 10], "the spec says nothing new"


def test_a_person_trains_trials_beside_a_run_and_its_journal_tells_it(
    searching: Ensemble, on_one_device: RunFolder
) -> None:
    folder = searching.left("asked")
    shutil.copytree(on_one_device.path, folder.path)
    attached = fleet.attach(folder.path)
    first, second = attached.ask(), attached.ask()
    assert first.number == 0 and first.values.keys() == second.values.keys() and first.values != second.values
    attached.tell(first, 0.125)
    attached.tell(1, failed=True)
    ended = run(searching.plain("asked", "--set", "search.trials=12"), searching.folder)
    assert ended.code == 0, ended.output
    assert [line["status"] for line in folder.events("own_trial")] == ["done", "failed"]
    own = folder.summary["search"]["own_trials"]
    assert own == [
        {"number": 0, "values": json.loads(json.dumps(first.values)), "status": "done", "value": 0.125},
        {"number": 1, "values": json.loads(json.dumps(second.values)), "status": "failed", "value": None},
    ]
    first_decisions = decisions(on_one_device)
    assert decisions(folder)[: len(first_decisions)] == first_decisions
    assert len(folder.summary["search"]["trials"]) == 12
    assert_found_again(searching, folder)
    again = run(searching.plain("asked", "--set", "search.trials=12"), searching.folder)
    assert again.code == 0 and len(folder.events("own_trial")) == 2
    assert attached.results().best()["name"] == "own-0"
