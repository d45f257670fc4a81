"""`fleet stop`: a live run ends in good order, or one of its jobs does, stays stopped, and is taken up again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.live.support.ensembles import Ensemble, RunFolder, cnn, mlp, write_ensemble
from tests.live.support.processes import FLEET, Ended, run, started


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    """Two jobs that go on for longer than any test."""
    jobs = [{**job, "stop": {"epochs": 100_000}} for job in (mlp(), cnn())]
    return write_ensemble(tmp_path_factory.mktemp("stopped"), jobs, policy={"name": "malleable"})


def fleet(ensemble: Ensemble, *words: str) -> Ended:
    return run([*FLEET, *words], ensemble.folder)


def sessions_of(folder: RunFolder, job: str) -> list[int]:
    """The session of each time that a job was given devices."""
    found, session = [], -1
    for event in folder.journal:
        session += event["event"] == "session"
        if event["event"] == "started" and event["job"] == job:
            found.append(session)
    return found


def test_a_job_and_a_run_are_stopped_and_go_on(ensemble: Ensemble) -> None:
    folder = ensemble.left("out")
    with started(ensemble.plain("out", "--trainers", "2"), ensemble.folder) as it:
        it.wait_for(lambda: {e["job"] for e in folder.events("epoch")} == {"mlp", "cnn"}, "both jobs to train")
        wrong = fleet(ensemble, "stop", "out", "mlpp", "cmn")
        assert wrong.code == 2 and "did you mean mlp?" in wrong.output and "did you mean cnn?" in wrong.output
        one = fleet(ensemble, "stop", "out", "mlp")
        assert one.code == 0 and "--undo" in one.output, one.output
        (halted,) = folder.events("halted")
        assert folder.checkpoints("mlp"), "its last state is saved"
        status = json.loads(fleet(ensemble, "status", "out", "--json", "--all").output)
        assert (status["state"], status["counts"]["stopped"], status["counts"]["running"]) == ("training", 1, 1)
        assert status["jobs"]["mlp"]["epochs"] == halted["epoch"]
        whole = fleet(ensemble, "stop", "out")
        assert whole.code == 0, whole.output
        assert it.finish().code == 75
    assert folder.summary["status"] == "stopped"
    assert {name: job["status"] for name, job in folder.summary["jobs"].items()} == {"mlp": "stopped", "cnn": "pending"}
    again = fleet(ensemble, "stop", "out")
    assert again.code == 0 and "nothing to stop" in again.output
    with started(ensemble.plain("out", "--trainers", "2"), ensemble.folder) as it:
        it.wait_for(
            lambda: len(folder.events("session")) == 2 and 1 in sessions_of(folder, "cnn"), "the other to train"
        )
        assert 1 not in sessions_of(folder, "mlp"), "it stays stopped"
        undone = fleet(ensemble, "stop", "out", "mlp", "--undo")
        assert undone.code == 0 and "goes on" in undone.output, undone.output
        it.wait_for(lambda: 1 in sessions_of(folder, "mlp"), "the job to train again")
        assert fleet(ensemble, "stop", "out").code == 0
        assert it.finish().code == 75
    begun = folder.events("started", "mlp")[-1]
    assert (begun["epoch"], begun["step"]) == (halted["epoch"], halted["step"]), "it goes on from where it stood"


def test_a_wish_of_the_run_before_stops_no_later_one(ensemble: Ensemble) -> None:
    folder = Path(ensemble.folder, "old")
    (folder / "stop").mkdir(parents=True)
    holder = {"host": "n", "pid": 1, "started": 1, "namespace": 1, "boot": "b", "beat": 0}
    (folder / "stop" / "run.json").write_text(json.dumps({"holder": holder, "by": "me"}))
    left = ensemble.left("old")
    with started(ensemble.plain("old", "--trainers", "1"), ensemble.folder) as it:
        it.wait_for(lambda: len(left.events("epoch")) > 3, "a job to train")
        assert not left.events("stopping")
        assert fleet(ensemble, "stop", "old").code == 0
        assert it.finish().code == 75
