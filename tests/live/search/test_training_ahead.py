"""Idle devices train ahead of need: it changes no decision and no bit, and what nobody wants is taken back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.live.search.conftest import SEARCH
from tests.live.search.test_searching_runs import assert_same_search, decisions
from tests.live.support.ensembles import Ensemble, RunFolder, write_ensemble
from tests.live.support.processes import run, started

NARROW: dict[str, Any] = {**SEARCH, "job": {**SEARCH["job"], "stop": {"epochs": 9}}, "width": 1, "trials": 6}
NARROW["stopping"] = {"name": "halving", "eta": 3, "rungs": [1, 3, 9]}
OPTIONS = ("--trainers", "3", "--set", "search.ahead=1.0")


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    """A search with one trial under way at a time, on more devices."""
    folder = tmp_path_factory.mktemp("narrow")
    return write_ensemble(folder, [], measured=False, search=NARROW, policy={"name": "local"}, ensemble=False)


@pytest.fixture(scope="module")
def waiting(narrow: Ensemble) -> RunFolder:
    """The search where devices only wait."""
    ended = run(narrow.plain("waiting", "--set", "search.ahead=false"), narrow.folder)
    assert ended.code == 0, ended.output
    return narrow.left("waiting")


@pytest.fixture(scope="module")
def ahead(narrow: Ensemble) -> RunFolder:
    """The search on three devices."""
    ended = run(narrow.plain("ahead", *OPTIONS), narrow.folder)
    assert ended.code == 0, ended.output
    return narrow.left("ahead")


def test_it_finds_the_same(waiting: RunFolder, ahead: RunFolder) -> None:
    assert not waiting.events("ahead") and waiting.summary["unused_epochs"] == 0
    assert_same_search(ahead, waiting)
    assert decisions(ahead) == decisions(waiting)


def test_little_is_trained_for_nothing_if_little_may_be(narrow: Ensemble, waiting: RunFolder) -> None:
    ended = run(narrow.plain("little", "--trainers", "3"), narrow.folder)
    assert ended.code == 0, ended.output
    folder = narrow.left("little")
    wanted = sum(trial["epochs"] for trial in folder.summary["search"]["trials"])
    assert folder.events("ahead") and folder.summary["unused_epochs"] <= 0.03 * wanted
    assert_same_search(folder, waiting)


def test_results_arrive_before_they_are_needed(ahead: RunFolder) -> None:
    lines = ahead.journal
    begun = {line["trial"]: number for number, line in reversed(list(enumerate(lines))) if line["event"] == "search"}
    early = [line for number, line in enumerate(lines) if line["event"] == "result" and number < begun[line["trial"]]]
    assert early


def test_what_nobody_wants_is_taken_back_and_told(narrow: Ensemble, ahead: RunFolder) -> None:
    taken = ahead.events("withdrawn")
    assert ahead.summary["unused_epochs"] == sum(line["unused"] for line in taken)
    wanted = {trial["name"]: trial["epochs"] for trial in ahead.summary["search"]["trials"]}
    for line in taken:
        assert line["epoch"] == wanted[line["job"]] == ahead.summary["jobs"][line["job"]]["epochs"]
    assert not list(Path(ahead.path / "checkpoints").glob("*/settled"))
    epochs = [(line["job"], line["epoch"]) for line in ahead.events("epoch")]
    assert len(set(epochs)) == len(epochs)


@pytest.mark.slow
def test_a_search_that_is_killed_meanwhile_goes_on_to_the_same(narrow: Ensemble, waiting: RunFolder) -> None:
    folder = narrow.left("killed")
    gate = {"GATE": str(narrow.folder / "never"), "GATE_AFTER": "9"}
    with started(narrow.plain("killed", *OPTIONS), narrow.folder, **gate) as it:
        it.wait_for(lambda: len(folder.events("ahead")) >= 4, "trials that train ahead")
        it.kill()
    ended = run(narrow.plain("killed", "--trainers", "2", *OPTIONS[2:]), narrow.folder)
    assert ended.code == 0, ended.output
    assert_same_search(folder, waiting)
