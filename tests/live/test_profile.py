"""Rates that are measured once and used again, and what a signal does meanwhile."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from fleet.journal.whole_files import ProfileError, RateProfile
from fleet.spec.sections import profile_files
from tests.journals import read_lines
from tests.live.support.ensembles import Ensemble, cnn, mlp, write_ensemble
from tests.live.support.processes import FLEET, run, started

JOBS = ("mlp", "cnn")


@pytest.fixture(scope="module")
def unmeasured(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    return write_ensemble(
        tmp_path_factory.mktemp("unmeasured"), [mlp(), cnn()], measured=False, profile={"batches": 6, "timed": 3}
    )


@pytest.fixture(scope="module")
def rates(unmeasured: Ensemble) -> Path:
    """What `fleet profile` writes, of two trainers."""
    out = unmeasured.folder / "rates.json"
    ended = run([*FLEET, "profile", str(unmeasured.spec), "--out", str(out), "--trainers", "2"], unmeasured.folder)
    assert ended.code == 0, ended.output
    return out


def test_profile_holds_a_rate_for_each_number_of_devices(rates: Path) -> None:
    content = json.loads(rates.read_text())
    assert sorted(content["names"].values()) == sorted(JOBS)
    for curve in content["rates"].values():
        assert set(curve) == {"1", "2"} and all(rate > 0 for rate in curve.values())


def test_profiling_trains_nothing(unmeasured: Ensemble, rates: Path) -> None:
    assert not list(unmeasured.folder.rglob("*.h5"))


def test_run_with_the_profile_measures_no_rate(unmeasured: Ensemble, rates: Path) -> None:
    ended = run(unmeasured.plain("run", "--trainers", "2", "--set", "profile.file=rates.json"), unmeasured.folder)
    assert ended.code == 0, ended.output
    folder = unmeasured.left("run")
    assert not folder.events("profile")
    measured = json.loads(rates.read_text())
    for job in JOBS:
        event = next(event for event in folder.events("rates", job) if event["source"] == "file")
        fingerprint = next(key for key, name in measured["names"].items() if name == job)
        assert event["measured"] == measured["rates"][fingerprint]


def test_parts_that_were_measured_apart_are_one_profile(unmeasured: Ensemble, tmp_path: Path) -> None:
    out = tmp_path / "sweep.json"
    for part in ("1/2", "2/2"):
        command = [*FLEET, "profile", str(unmeasured.spec), "--out", str(out), "--trainers", "1", "--part", part]
        ended = run(command, tmp_path)
        assert ended.code == 0, ended.output
    assert sorted(path.name for path in tmp_path.glob("*.json")) == ["sweep.1-of-2.json", "sweep.2-of-2.json"]
    assert sorted(RateProfile.read(*profile_files(out)).names.values()) == sorted(JOBS)
    assert list(RateProfile.read(tmp_path / "sweep.2-of-2.json").names.values()) == ["cnn"]
    ended = run(unmeasured.plain("parts", "--trainers", "1", "--set", f"profile.file={out}"), tmp_path)
    assert ended.code == 0, ended.output
    assert not unmeasured.left("parts").events("profile"), "nothing was measured again"


@pytest.mark.parametrize(("part", "words"), [("3/3", "2 jobs"), ("3/2", "such as 2/4"), ("x", "such as 2/4")])
def test_parts_that_cannot_be(part: str, words: str, unmeasured: Ensemble, tmp_path: Path) -> None:
    command = [*FLEET, "profile", str(unmeasured.spec), "--out", str(tmp_path / "x.json"), "--trainers", "1"]
    ended = run([*command, "--part", part], tmp_path)
    assert ended.code == 2 and words in ended.output, ended.output


@pytest.mark.slow
def test_signal_to_another_rank_while_rates_are_measured(tmp_path: Path) -> None:
    """A batch system's signal reaches every rank; it is kept until the measurements can be left."""
    jobs = [mlp(), cnn()]
    ensemble = write_ensemble(tmp_path, jobs, measured=False, profile={"when": "before", "batches": 40, "timed": 20})
    folder = ensemble.left("run")
    with started(ensemble.under_mpiexec(2, "run"), tmp_path) as running:
        running.wait_for(lambda: bool(folder.events("cluster")), "the run to begin")
        running.interrupt(signal.SIGUSR1)
        ended = running.finish()
    assert ended.code == 75, ended.output
    assert folder.summary["status"] == "stopped"


@pytest.mark.slow
def test_profiling_ends_with_its_allocation_and_the_next_goes_on(tmp_path: Path) -> None:
    """Slow jobs are measured for 8 s each, one after the other: a minute's worth, with half a minute to do it in."""
    names = [f"slow-{index}" for index in range(6)]
    jobs = [
        {"name": name, "model": {"name": "parts:Slow"}, "batch_size": size} for size, name in enumerate(names, start=2)
    ]
    ensemble = write_ensemble(tmp_path, jobs, measured=False)
    profile = [*FLEET, "profile", str(ensemble.spec), "--out", str(tmp_path / "rates.json"), "--trainers", "1"]
    profile += ["--set", "checkpoints.margin=1"]
    allocation = {"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": str(int(time.time() + 40))}
    ended = run(profile, tmp_path, **allocation)
    assert ended.code == 75 and "no further measurement" in ended.output, ended.output
    journal = next((tmp_path / "runs").iterdir()) / "journal.jsonl"
    (stopped,) = [event for event in read_lines(journal) if event["event"] == "ended"]
    assert stopped["wall_seconds"] < 40, "by the run's own clock, which began after the allocation's"
    first = [event["job"] for event in read_lines(journal) if event["event"] == "profile"]
    assert 0 < len(first) < len(names)
    ended = run(profile, tmp_path)
    assert ended.code == 0, ended.output
    measured = [event["job"] for event in read_lines(journal) if event["event"] == "profile"]
    assert sorted(measured) == names, "each once"
    assert sorted(json.loads((tmp_path / "rates.json").read_text())["names"].values()) == names


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"rates": 3}', '{"rates": {"net": {"one": 5}}}', '{"rates": {"net": {"1": -5}}}']
    + ['{"rates": {"net": {"0": 5}}}', '{"rates": {"net": {"1": NaN}}}'],
)
def test_file_that_is_no_profile_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rates.json"
    path.write_text(text)
    with pytest.raises(ProfileError, match="rates.json is not a profile"):
        RateProfile.read(path)
