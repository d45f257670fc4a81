"""Trainers of two kinds: who may mix them, how virtual workers are dealt over them, and that bits stay the same."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import trainers
from tests.live.support.ensembles import Ensemble, RunFolder, cnn, mlp, write_ensemble, write_rates
from tests.live.support.processes import FLEET, run
from tests.warm.starting import RIG_FOLDER
from trainers.proof.comparison import compare_checkpoints

JOBS = (mlp(virtual_workers=10, stop={"epochs": 6}), cnn(virtual_workers=3))
KINDS = {"fast": "0,2", "slow": 1}
RATES = {"fast": {1: 1e6, 2: 1.9e6}, "slow": {1: 5e5}}


def ensemble_on(folder: Path, level: str = "D2", kinds: Any = KINDS, **sections: Any) -> Ensemble:
    """Three trainers; that of the kind `slow` is half as fast, says a file."""
    resources = {"trainers": 3, "device": "cpu", "ring_samples": 128, "slot_samples": 8, "kinds": kinds}
    more: dict[str, Any] = {"determinism": level, "resources": resources, "policy": {"name": "easyscale"}, **sections}
    ensemble = write_ensemble(folder, JOBS, measured=False, **{"profile": {"file": "rates.json"}, **more})
    by_kind = {f"{job['name']}, {kind}": rates for job in JOBS for kind, rates in RATES.items()}
    write_rates(folder / "rates.json", by_kind | {job["name"]: {1: 1e6} for job in JOBS})
    return ensemble


def runs(ensemble: Ensemble, *options: str, out: str = "run", **variables: str) -> RunFolder:
    ended = run(ensemble.plain(out, *options), ensemble.folder, **variables)
    assert ended.code == 0, ended.output
    return ensemble.left(out)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory, pinned: dict[str, str]) -> RunFolder:
    return runs(ensemble_on(tmp_path_factory.mktemp("mixed")), **pinned)


@pytest.mark.skipif(RIG_FOLDER in os.environ, reason="at D2 no kinds of accelerators are mixed")
def test_the_journal_tells_kinds_rates_and_shares(mixed: RunFolder) -> None:
    (cluster,) = mixed.events("cluster")
    assert [rank["kind"] for rank in cluster["ranks"]] == [None, "fast", "slow", "fast"]
    first = mixed.events("rates", "mlp")[0]
    assert {kind: rates["1"] for kind, rates in first["kinds"].items()} == {"fast": 1e6, "slow": 5e5}
    assert first["measured"] == first["kinds"]["fast"], "where it is fastest"
    starts = [event for event in mixed.events("started") if 1 in event["devices"] and len(event["devices"]) > 1]
    assert starts, "some job was given both kinds"
    for event in starts:
        workers = {"mlp": 10, "cnn": 3}[event["job"]]
        assert sum(event["shares"]) == workers and len(event["shares"]) == len(event["devices"])
    assert all("shares" not in event for event in mixed.events("started") if 1 not in event["devices"])


@pytest.mark.slow
def test_on_unlike_shares_jobs_have_the_bits_of_one_trainer(mixed: RunFolder, tmp_path: Path) -> None:
    alone = runs(ensemble_on(tmp_path, kinds={}), "--trainers", "1")
    for job in ("mlp", "cnn"):
        one, other = (trainers.read(folder.summary["jobs"][job]["checkpoint"]) for folder in (mixed, alone))
        result = compare_checkpoints(one, other)
        assert result.is_equal, result.differences[0]
        assert mixed.summary["jobs"][job]["metrics"] == alone.summary["jobs"][job]["metrics"]


@pytest.mark.parametrize("policy", ["easyscale", "flotilla"])
def test_below_d2_each_job_stays_on_one_kind(policy: str, tmp_path: Path) -> None:
    folder = runs(ensemble_on(tmp_path, "D1", policy={"name": policy}))
    homes = {job["name"]: {d == 1 for e in folder.events("started", job["name"]) for d in e["devices"]} for job in JOBS}
    assert all(len(kinds) == 1 for kinds in homes.values()), homes
    assert all("shares" not in event for event in folder.events("started"))


def test_each_kind_is_measured(tmp_path: Path) -> None:
    folder = runs(ensemble_on(tmp_path, "D1", profile={"batches": 2, "timed": 1}))
    measured = {(event["job"], event["kind"], event["count"]) for event in folder.events("profile")}
    assert measured >= {(job["name"], kind, 1) for job in JOBS for kind in KINDS}
    assert {count for _, kind, count in measured if kind == "slow"} == {1}, "there is one of them"
    assert all((event["devices"] == [1]) == (event["kind"] == "slow") for event in folder.events("profile"))
    kept = json.loads((folder.path / "profile.json").read_text())
    assert len(kept["rates"]) == len(JOBS) * len(KINDS)


@pytest.mark.slow
def test_a_rehearsal_waits_as_long_as_each_kind_takes(tmp_path: Path) -> None:
    rates: dict[str, Any] = {"mlp": {1: 400.0, 2: 700.0}, "cnn": {1: 400.0, 2: 700.0}}
    rehearse = {"rates": rates, "speeds": {"slow": 0.5}, "time_scale": 0.2}
    folder = runs(ensemble_on(tmp_path, rehearse=rehearse), "--rehearse")
    together = [event for event in folder.events("started") if len(set(event.get("shares", ()))) > 1]
    assert together, "some job was given both kinds"
    (event, *_) = together
    pace = next(e["paces"][event["job"]] for e in folder.events("planned") if e["round"] == event["round"])
    trained = [e["rate"] for e in folder.events("epoch", event["job"]) if e["devices"] == event["devices"]]
    assert all(rate < 1.15 * pace for rate in trained), "it does not train faster than it should"


@pytest.mark.skipif(RIG_FOLDER in os.environ, reason="at D2 no kinds of accelerators are mixed")
def test_a_plan_shows_kinds(tmp_path: Path) -> None:
    ensemble = ensemble_on(tmp_path, "D1")
    ended = run([*FLEET, "plan", str(ensemble.spec)], tmp_path)
    assert ended.code == 0 and "0 (cpu, fast)" in ended.output and "1 (cpu, slow)" in ended.output, ended.output
    planned = run([*FLEET, "plan", str(ensemble.spec), "--json"], tmp_path)
    ranks = json.loads(planned.output)["cluster"]["ranks"]
    assert [rank["kind"] for rank in ranks] == [None, "fast", "slow", "fast"]


def test_a_kind_of_devices_that_are_not_there_is_refused(tmp_path: Path) -> None:
    ensemble = ensemble_on(tmp_path, "D1", kinds={"fast": "0-7"})
    for command in (["plan", str(ensemble.spec)], ["run", str(ensemble.spec), "--out", str(tmp_path / "out")]):
        ended = run([*FLEET, *command], tmp_path)
        assert ended.code == 2 and "resources.kinds names device 7 as fast" in ended.output, ended.output
        assert "there are 3 trainers, 0 to 2" in ended.output and "Traceback" not in ended.output
