"""A run that is killed as its networks train, where checkpoints are as far apart as they are by default."""

from __future__ import annotations

import pytest

from fleet.spec.sections import Checkpoints
from tests.live.support.bits import assert_same_bits, final_states
from tests.live.support.ensembles import Ensemble, RunFolder, cnn, mlp, write_ensemble
from tests.live.support.processes import Running, run, started

JOBS = ("mlp", "cnn")
EPOCHS = 120
SECONDS = Checkpoints().seconds  # of training that a kill costs at most
AHEAD = 2  # epochs that each network has trained beyond its last checkpoint when the run is killed


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    """Two networks of so short epochs that many lie between two checkpoints, on a loaded machine too."""
    jobs = [{**job, "stop": {"epochs": EPOCHS}} for job in (mlp(batch_size=20), cnn(batch_size=20))]
    checkpoints = {"seconds": SECONDS, "keep": EPOCHS}
    return write_ensemble(tmp_path_factory.mktemp("by-time"), jobs, checkpoints=checkpoints)


@pytest.fixture(scope="module")
def undisturbed(ensemble: Ensemble) -> RunFolder:
    ended = run(ensemble.plain("undisturbed", "--trainers", "2"), ensemble.folder)
    assert ended.code == 0, ended.output
    return ensemble.left("undisturbed")


def saved(folder: RunFolder, job: str) -> int:
    """The epoch of a job's newest checkpoint; 0 if it has none."""
    return max((int(path.stem.split("-")[1]) for path in folder.checkpoints(job)), default=0)


def kill_ahead(running: Running, folder: RunFolder) -> None:
    """Kill all processes once every network has been saved, and has trained more epochs since."""

    def is_ahead() -> bool:
        assert running.process.poll() is None, running.output
        return all(len(folder.events("epoch", job)) >= (saved(folder, job) or EPOCHS) + AHEAD for job in JOBS)

    running.wait_for(is_ahead, f"{AHEAD} epochs of each network beyond its last checkpoint")
    running.kill()


def test_a_run_killed_between_checkpoints_loses_seconds_and_no_bit(ensemble: Ensemble, undisturbed: RunFolder) -> None:
    folder = ensemble.left("killed")
    with started(ensemble.plain("killed", "--trainers", "2"), ensemble.folder) as running:
        kill_ahead(running, folder)
    found = {job: saved(folder, job) for job in JOBS}
    for job, epoch in found.items():
        seconds = [event["seconds"] for event in folder.events("epoch", job)]
        assert 0 < epoch < len(seconds) < EPOCHS, "it was killed as it trained"
        assert len(folder.checkpoints(job)) < epoch, "not every epoch was saved"
        # An epoch may have ended whose checkpoint was being written.
        assert sum(seconds[epoch:]) <= SECONDS + max(seconds)
    ended = run(ensemble.plain("killed", "--trainers", "2"), ensemble.folder)
    assert ended.code == 0, ended.output
    again = folder.journal[[event["event"] for event in folder.journal].index("session", 1) :]
    begun = {event["job"]: event["epoch"] for event in reversed(again) if event["event"] == "started"}
    assert begun == found, "each goes on from its last checkpoint"
    assert_same_bits(final_states(folder, JOBS), final_states(undisturbed, JOBS))
