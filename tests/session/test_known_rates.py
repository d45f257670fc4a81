"""Rates that need not be measured: whose they are, and which file's count."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleet.journal.directory import RunDirectory
from fleet.journal.whole_files import RateProfile
from fleet.session.prediction import KnownRates
from fleet.workers.agreement import BadInput
from fleet.workers.runtime import Rehearsal, Runtime

Runtimes = Callable[..., Runtime]
TWO = ({"name": "a"}, {"name": "b", "batch_size": 8})


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    made = RunDirectory(tmp_path / "run")
    made.path.mkdir()
    return made


def write_journal(directory: RunDirectory, *events: dict[str, Any]) -> None:
    directory.journal.write_text("".join(json.dumps({"t": 0.0, **event}) + "\n" for event in events))


def measured(runtime: Runtime, job: str, rates: dict[int, float], path: Path, device: str = "cpu") -> None:
    """Write down what an earlier session measured."""
    fingerprint = runtime.fingerprint(job, device)
    RateProfile("here", "now", {fingerprint: rates}, {fingerprint: job}).write(path)


def test_what_the_run_measured_before_is_known_again(runtime: Runtimes, directory: RunDirectory) -> None:
    made = runtime(*TWO)
    measured(made, "a", {1: 10.0, 2: 19.0}, directory.profile)
    assert KnownRates(made, directory, "cpu").of_all() == {"a": {1: 10.0, 2: 19.0}}


def test_a_job_is_known_by_what_its_rate_depends_on_not_by_its_name(runtime: Runtimes, directory: RunDirectory) -> None:
    measured(runtime(*TWO), "a", {1: 10.0}, directory.profile)
    renamed = runtime({"name": "c"}, {"name": "d", "batch_size": 8})
    assert KnownRates(renamed, directory, "cpu").of_all() == {"c": {1: 10.0}}


@pytest.mark.parametrize(
    "asked", [{"autocast": "bfloat16"}, {"compile": True}, {"accumulate": 2}, {"memory_format": "channels_last"}]
)
def test_its_rate_depends_on_what_it_asks_of_a_step(
    asked: dict[str, Any], runtime: Runtimes, directory: RunDirectory
) -> None:
    measured(runtime({"name": "a"}), "a", {1: 10.0}, directory.profile)
    assert KnownRates(runtime({"name": "c", **asked}), directory, "cpu").of_all() == {}
    measured(runtime({"name": "a", **asked}), "a", {1: 12.0}, directory.profile)
    assert KnownRates(runtime({"name": "c", **asked}), directory, "cpu").of_all() == {"c": {1: 12.0}}


def test_rates_of_another_kind_of_device_are_found_by_name_alone(runtime: Runtimes, directory: RunDirectory) -> None:
    measured(runtime(*TWO), "a", {1: 10.0}, directory.profile)
    known = KnownRates(runtime({"name": "a"}, {"name": "c"}), directory, "cuda:0")
    assert known.of_all() == {"a": {1: 10.0}}


def test_older_files_have_rates_of_a_kind_of_device(runtime: Runtimes, directory: RunDirectory) -> None:
    measured(runtime(*TWO), "a", {1: 10.0}, directory.profile, "cuda")
    known = KnownRates(runtime({"name": "renamed"}), directory, "NVIDIA A100", kind="cuda:0")
    assert known.of_all() == {"renamed": {1: 10.0}}


def test_each_model_of_a_device_has_its_own_rates(runtime: Runtimes, directory: RunDirectory) -> None:
    made = runtime({"name": "a"})
    measured(made, "a", {1: 10.0}, directory.profile, "NVIDIA V100")
    slow = RateProfile.read(directory.profile)
    measured(made, "a", {1: 90.0}, directory.profile, "NVIDIA H100")
    slow.updated(RateProfile.read(directory.profile)).write(directory.profile)
    for model, rate in (("NVIDIA V100", 10.0), ("NVIDIA H100", 90.0)):
        assert KnownRates(made, directory, model, kind="cuda:0").of_all() == {"a": {1: rate}}


def test_whoever_profiles_anew_does_not_get_the_rates_of_before(runtime: Runtimes, directory: RunDirectory) -> None:
    made = runtime(*TWO)
    measured(made, "a", {1: 10.0}, directory.profile)
    assert KnownRates(made, directory, "cpu", again=True).of_all() == {}


def test_a_file_of_the_spec_counts_before_the_run_s_own(
    runtime: Runtimes, directory: RunDirectory, tmp_path: Path
) -> None:
    file = tmp_path / "rates.json"
    made = runtime(*TWO, profile={"file": str(file)})
    measured(made, "a", {1: 10.0}, directory.profile)
    measured(made, "a", {1: 77.0}, file)
    assert KnownRates(made, directory, "cpu").of_all() == {"a": {1: 77.0}}


def test_another_batch_has_a_rate_of_its_own(runtime: Runtimes, directory: RunDirectory) -> None:
    made = runtime(*TWO)
    measured(made.with_batch("a", 16), "a", {1: 30.0}, directory.profile)
    known = KnownRates(made, directory, "cpu")
    assert (known.alone(made, "a", 16), known.alone(made, "a", 32)) == (30.0, None)


def rehearsed(made: Runtime) -> Runtime:
    return replace(made, rehearsal=Rehearsal(1.0))


def test_a_rehearsal_needs_a_rate_of_each_job(runtime: Runtimes, directory: RunDirectory) -> None:
    made = rehearsed(runtime(*TWO, rehearse={"rates": {"a": {1: 5.0}}}))
    with pytest.raises(BadInput, match="there is none for b; give rehearse.rates"):
        KnownRates(made, directory, "cpu").of_all()


def test_a_rehearsal_remembers_what_was_guessed_of_newcomers(runtime: Runtimes, directory: RunDirectory) -> None:
    write_journal(directory, {"event": "rates", "job": "b", "source": "guessed", "measured": {"1": 4.0}})
    made = rehearsed(runtime(*TWO, rehearse={"rates": {"a": {1: 5.0}}}))
    assert KnownRates(made, directory, "cpu").of_all() == {"a": {1: 5.0}, "b": {1: 4.0}}


def cluster_of(device: str, **more: str) -> dict[str, Any]:
    ranks = [{"device_name": None}, {"device_name": device, **more}]
    return {"event": "cluster", "ranks": ranks, "devices_per_node": [0, 1]}


def test_measurements_that_were_begun_on_such_devices_go_on(runtime: Runtimes, directory: RunDirectory) -> None:
    begun = {"event": "profile", "job": "a", "count": 1, "rate": 10.0}
    ended = {"event": "profile", "job": "b", "count": 1, "rate": 20.0}
    write_journal(directory, cluster_of("cpu"), begun, ended, {"event": "rates", "job": "b", "measured": {"1": 20.0}})
    assert KnownRates(runtime(*TWO), directory, "cpu").begun() == {"a": {1: 10.0}}


def test_what_training_told_on_such_devices_is_known(runtime: Runtimes, directory: RunDirectory) -> None:
    """Its first steps, and what epochs made of that; a guess is nothing that is known."""
    told: list[dict[str, Any]] = [
        {"event": "rates", "job": "a", "source": "guessed", "measured": {"1": 99.0}},
        {"event": "rates", "job": "b", "source": "guessed", "measured": {"1": 98.0}},
        {"event": "timed", "job": "a", "devices": [0], "count": 1, "rate": 10.0},
        {"event": "timed", "job": "a", "devices": [0, 1], "count": 2, "rate": 18.0},
    ]
    write_journal(directory, cluster_of("cpu"), *told)
    assert KnownRates(runtime(*TWO), directory, "cpu").begun(learnt=True) == {"a": {1: 10.0, 2: 18.0}}
    learnt = {"event": "rates", "job": "a", "source": "training", "measured": {"1": 11.0, "2": 18.0}}
    write_journal(directory, cluster_of("cpu"), *told, learnt)
    assert KnownRates(runtime(*TWO), directory, "cpu").begun(learnt=True) == {"a": {1: 11.0, 2: 18.0}}
    write_journal(directory, cluster_of("cuda:0"), *told, learnt)
    assert KnownRates(runtime(*TWO), directory, "cpu").begun(learnt=True) == {}
    write_journal(directory, cluster_of("cpu"), *told, learnt)
    assert KnownRates(runtime(*TWO), directory, "cpu").begun() == {}, "they are to be measured"


def test_measurements_that_were_begun_on_other_devices_do_not(runtime: Runtimes, directory: RunDirectory) -> None:
    write_journal(directory, cluster_of("cuda:0"), {"event": "profile", "job": "a", "count": 1, "rate": 10.0})
    assert KnownRates(runtime(*TWO), directory, "cpu").begun() == {}


@pytest.mark.parametrize(("model", "known"), [("NVIDIA V100", {"a": {1: 10.0}}), ("NVIDIA H100", {})])
def test_measurements_go_on_where_devices_are_of_the_same_model(
    runtime: Runtimes, directory: RunDirectory, model: str, known: dict[str, Any]
) -> None:
    cluster = cluster_of("cuda:0", device_model="NVIDIA V100")
    write_journal(directory, cluster, {"event": "profile", "job": "a", "count": 1, "rate": 10.0})
    assert KnownRates(runtime(*TWO), directory, model, kind="cuda:0").begun() == known
