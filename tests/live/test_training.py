"""Whole runs: what they leave, and that the number of devices, the launcher and the policy change no bit of it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

import trainers
from tests.live.support import parts
from tests.live.support.bits import assert_same_bits, final_states
from tests.live.support.ensembles import LEARNING_RATE, SCALING, STEPS, WORKERS, Ensemble, RunFolder, write_rates
from tests.live.support.processes import run

JOBS = ("mlp", "cnn", "count")
EPOCHS = 2
WAYS = (
    "alone",
    "three",
    *(pytest.param(way, marks=pytest.mark.slow) for way in ("five", "two-preprocessors", "baseline")),
)
TRAINERS = {"alone": 1, "three": 3, "five": 5, "two-preprocessors": 4, "baseline": 2}


def command(small: Ensemble, way: str) -> list[str]:
    """1 + 3, 1 + 5 and 2 + 4 ranks, started by fleet itself or by mpiexec, and another policy.

    Where there are five, a network gains by further devices; elsewhere all preprocessors are asked for.
    """
    write_rates(small.folder / "scaling.json", dict.fromkeys(JOBS, SCALING))
    scaling = ("--set", "profile.file=scaling.json")
    return {
        "three": small.plain("three", "--trainers", "3"),
        "five": small.under_mpiexec(6, "five", "--trainers", "5", *scaling),
        "two-preprocessors": small.under_mpiexec(6, "two-preprocessors", "--trainers", "4", "--preprocessors", "2"),
        "baseline": small.plain("baseline", "--trainers", "2", "--policy", "baseline"),
    }[way]


@pytest.fixture(scope="module", params=WAYS)
def finished(request: pytest.FixtureRequest, small: Ensemble, alone: RunFolder) -> tuple[str, RunFolder]:
    """The small ensemble, trained in one of the ways."""
    way: str = request.param
    if way != "alone":
        ended = run(command(small, way), small.folder)
        assert ended.code == 0, ended.output
    return way, small.left(way)


def test_run_json_says_that_all_is_done(finished: tuple[str, RunFolder]) -> None:
    way, folder = finished
    summary = folder.summary
    assert summary["status"] == "done"
    assert summary["policy"] == ("baseline" if way == "baseline" else "flotilla")
    assert isinstance(summary["wall_seconds"], float) and summary["wall_seconds"] > 0
    assert set(summary["overhead_seconds"]) == {"profiling", "scheduling", "checkpoint", "reforming"}
    assert all(isinstance(seconds, float) and seconds >= 0 for seconds in summary["overhead_seconds"].values())
    assert tuple(summary["jobs"]) == JOBS
    for name, job in summary["jobs"].items():
        assert (job["status"], job["epochs"], job["error"]) == ("done", EPOCHS, None)
        assert {"loss", "test_loss"} < set(job["metrics"])
        assert ("number" if name == "count" else "accuracy") in job["metrics"]
        assert Path(job["checkpoint"]).is_file()


def test_what_the_spec_says_for_any_policy_holds_for_another_one(finished: tuple[str, RunFolder]) -> None:
    _, folder = finished
    assert json.loads((folder.path / "ensemble.json").read_text())["spec"]["policy"]["restart"] == 3.0


def test_rounds_of_run_json_use_the_devices_there_are(finished: tuple[str, RunFolder]) -> None:
    way, folder = finished
    rounds = folder.summary["rounds"]
    assert rounds and {job for round_ in rounds for job in round_["allocation"]} == set(JOBS)
    for round_ in rounds:
        used = [device for devices in round_["allocation"].values() for device in devices]
        assert len(used) == len(set(used)) and set(used) <= set(range(TRAINERS[way]))
        assert 0 <= round_["start"] <= round_["end"] <= folder.summary["wall_seconds"]


def test_journal_is_complete_and_in_order(finished: tuple[str, RunFolder]) -> None:
    way, folder = finished
    journal = folder.journal
    kinds = [event["event"] for event in journal]
    assert kinds[:2] == ["session", "cluster"] and kinds[-1] == "ended" and journal[-1]["status"] == "done"
    assert all(earlier["t"] <= later["t"] for earlier, later in zip(journal, journal[1:]))
    assert not folder.events("failed") and not folder.events("profile")
    assert kinds.count("planned") == kinds.count("round_end") == len(folder.summary["rounds"])
    ranks = folder.events("cluster")[0]["ranks"]
    assert [rank["device"] for rank in ranks if rank["role"] == "trainer"] == list(range(TRAINERS[way]))
    preprocessors = 2 if way == "two-preprocessors" else 1
    assert sum("preprocessor" in rank["role"] for rank in ranks) == preprocessors
    assert folder.events("preprocessors")[0]["chosen"] == preprocessors
    for job in JOBS:
        assert len(folder.events("job", job)) == len(folder.events("done", job)) == 1
        assert [event["epoch"] for event in folder.events("epoch", job)] == [1, 2]
        assert [event["step"] for event in folder.events("epoch", job)] == [STEPS, 2 * STEPS]
        assert len(folder.events("checkpoint", job)) >= EPOCHS
        for event in folder.events("epoch", job):
            members = {str(device) for device in event["devices"]}
            assert set(event["waited"]) == set(event["computed"]) == members


def test_report_and_metrics_are_there(finished: tuple[str, RunFolder]) -> None:
    _, folder = finished
    report = (folder.path / "report.html").read_text()
    assert all(job in report for job in JOBS)
    with open(folder.path / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert sorted((row["job"], int(row["epoch"])) for row in rows) == sorted((job, e) for job in JOBS for e in (1, 2))
    for job in JOBS:
        assert list((folder.path / "tensorboard" / job).glob("events.out.*"))


def test_newest_checkpoints_are_kept(finished: tuple[str, RunFolder]) -> None:
    _, folder = finished
    for job in JOBS:
        written = [event["path"] for event in folder.events("checkpoint", job)]
        assert [str(path) for path in folder.checkpoints(job)] == written[-2:]
        assert written[-1] == folder.summary["jobs"][job]["checkpoint"]
        assert trainers.read(written[-1]).steps == EPOCHS * STEPS


def test_every_picture_was_trained_on_once_an_epoch(finished: tuple[str, RunFolder]) -> None:
    """79 pictures for two virtual workers: one, the epoch's first, comes twice (DistributedSampler's padding)."""
    _, folder = finished
    final = trainers.read(folder.summary["jobs"]["count"]["checkpoint"])
    times = [float(count) for count in final.parameters["seen"] * (-WORKERS / LEARNING_RATE)]
    assert sum(times) == EPOCHS * (parts.TRAINING + 1)
    assert min(times) == EPOCHS and max(times) <= 2 * EPOCHS


def test_every_held_out_picture_was_looked_at(finished: tuple[str, RunFolder]) -> None:
    _, folder = finished
    assert folder.summary["jobs"]["count"]["metrics"]["number"] == (parts.HELD_OUT - 1) / 2


def test_bits_are_those_of_one_device(finished: tuple[str, RunFolder], alone: RunFolder) -> None:
    """Parameters, moments, random states, buffers and history."""
    way, folder = finished
    if way == "alone":
        pytest.skip("this is the run that the others are held against")
    assert_same_bits(final_states(folder, JOBS), final_states(alone, JOBS))


def test_devices_were_shared_out_as_many_as_there_are(finished: tuple[str, RunFolder]) -> None:
    """Otherwise equal bits would say little: with more devices than networks, some may have several."""
    way, folder = finished
    rounds = [list(map(len, round_["allocation"].values())) for round_ in folder.summary["rounds"]]
    assert max(map(sum, rounds)) == (TRAINERS[way] if way == "five" else min(TRAINERS[way], len(JOBS)))
    assert (max(rounds[0]) > 1) == (way == "five")


def test_a_finished_run_is_not_trained_again(small: Ensemble, alone: RunFolder) -> None:
    before = alone.journal
    states = {job: path.stat().st_mtime_ns for job, path in final_states(alone, JOBS).items()}
    ended = run(small.plain("alone"), small.folder)
    assert ended.code == 0, ended.output
    new = [event["event"] for event in alone.journal[len(before) :]]
    assert new[0] == "session" and new[-1] == "ended"
    assert not {"profile", "preprocessors", "planned", "started", "epoch", "checkpoint"} & set(new)
    assert {job: path.stat().st_mtime_ns for job, path in final_states(alone, JOBS).items()} == states
    assert alone.summary["status"] == "done"


def test_another_spec_is_kept_out_of_the_directory(small: Ensemble, alone: RunFolder) -> None:
    before = alone.path.joinpath("run.json").read_bytes()
    ended = run(small.plain("alone", "--set", "jobs.0.batch_size=2"), small.folder)
    assert ended.code == 2, ended.output
    assert "another spec" in ended.output and "batch_size" in ended.output and "Traceback" not in ended.output
    assert alone.path.joinpath("run.json").read_bytes() == before
