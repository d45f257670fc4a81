"""Runs that know no rates: they guess, learn from first steps, and leave what they learnt and the same weights."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.live.support.bits import assert_same_bits, final_states
from tests.live.support.ensembles import Ensemble, RunFolder, cnn, mlp, write_ensemble
from tests.live.support.processes import run, started

JOBS = ("mlp", "cnn")
PROFILE = {"batches": 4, "timed": 2}


@pytest.fixture(scope="module")
def unmeasured(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    return write_ensemble(tmp_path_factory.mktemp("unmeasured"), [mlp(), cnn()], measured=False, profile=PROFILE)


@pytest.fixture(scope="module")
def learnt(unmeasured: Ensemble) -> RunFolder:
    """Of a run that knew nothing."""
    ended = run(unmeasured.plain("learnt", "--trainers", "2"), unmeasured.folder)
    assert ended.code == 0, ended.output
    return unmeasured.left("learnt")


def test_nothing_is_measured_before_training(learnt: RunFolder) -> None:
    assert not learnt.events("profile") and not learnt.events("preprocessors")
    for job in JOBS:
        first, *later = learnt.events("rates", job)
        assert first["source"] == "guessed" and later[-1]["source"] == "training"
    wall, spent = learnt.summary["wall_seconds"], learnt.summary["overhead_seconds"]["profiling"]
    assert 0 <= spent < wall


def test_first_steps_tell_a_rate_once_for_each_number_of_devices(learnt: RunFolder) -> None:
    timed = [(event["job"], event["count"]) for event in learnt.events("timed")]
    assert {job for job, _ in timed} == set(JOBS) and len(timed) == len(set(timed))
    assert all(len(event["devices"]) == event["count"] and event["rate"] > 0 for event in learnt.events("timed"))


def test_weights_are_those_of_a_run_that_measures_before(unmeasured: Ensemble, learnt: RunFolder) -> None:
    ended = run(unmeasured.plain("before", "--trainers", "2", "--set", "profile.when=before"), unmeasured.folder)
    assert ended.code == 0, ended.output
    before = unmeasured.left("before")
    assert {event["job"] for event in before.events("profile")} == set(JOBS) and not before.events("timed")
    assert_same_bits(final_states(learnt, JOBS), final_states(before, JOBS))


def test_other_runs_begin_with_what_was_learnt(unmeasured: Ensemble, learnt: RunFolder) -> None:
    kept = json.loads((learnt.path / "profile.json").read_text())
    assert sorted(kept["names"].values()) == sorted(JOBS) and all(kept["rates"].values())
    options = ["--trainers", "2", "--set", f"profile.file={learnt.path / 'profile.json'}"]
    ended = run(unmeasured.plain("known", *options), unmeasured.folder)
    assert ended.code == 0, ended.output
    assert {unmeasured.left("known").events("rates", job)[0]["source"] for job in JOBS} == {"file"}


@pytest.mark.slow
def test_a_run_that_goes_on_guesses_nothing_again(tmp_path: Path) -> None:
    """The journal is enough: what was learnt of a network counts, though its run was killed."""
    jobs = [mlp(stop={"epochs": 400}), cnn(stop={"epochs": 400})]
    made = write_ensemble(tmp_path, jobs, measured=False, profile=PROFILE, policy={"name": "baseline"})
    folder = made.left("run")
    with started(made.plain("run", "--trainers", "2", "--restarts", "0"), tmp_path) as it:
        it.wait_for(lambda: {event["job"] for event in folder.events("timed")} == set(JOBS), "both to be timed")
        it.interrupt(signal.SIGINT)
        assert it.finish().code == 75
    (folder.path / "profile.json").unlink(missing_ok=True)
    before = len(folder.journal)
    with started(made.plain("run", "--trainers", "2", "--restarts", "0"), tmp_path) as it:
        it.wait_for(lambda: any(e["event"] == "started" for e in folder.journal[before:]), "somebody to go on")
        it.interrupt(signal.SIGINT)
        assert it.finish().code == 75
    rates = [event for event in folder.journal[before:] if event["event"] == "rates"]
    assert {event["job"]: event["source"] for event in rates[:2]} == dict.fromkeys(JOBS, "file")


def test_a_rehearsal_learns_the_rates_by_which_it_waits(tmp_path: Path) -> None:
    table: dict[str, Any] = {"mlp": {1: 300.0, 2: 500.0}, "cnn": {1: 200.0, 2: 380.0}}
    made = write_ensemble(tmp_path, [mlp(), cnn()], measured=False, rehearse={"rates": table, "learn": True})
    ended = run(made.plain("run", "--rehearse", "--cluster", "1x2"), tmp_path)
    assert ended.code == 0, ended.output
    folder = made.left("run")
    assert {folder.events("rates", job)[0]["source"] for job in JOBS} == {"guessed"}
    for event in folder.events("epoch"):
        assert event["rate"] < 1.2 * table[event["job"]][len(event["devices"])], "it waits as long as it should"
