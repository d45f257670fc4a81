"""Ranks that are lost one at a time: the others go on in place where they can, else all are started again."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.live.support.bits import assert_same_bits, final_states
from tests.live.support.ensembles import Ensemble, RunFolder, cnn, mlp, write_ensemble
from tests.live.support.processes import ROOT, Running, run, started

JOBS = ("mlp", "cnn")
EPOCHS = 12
SPAWNER = """
import os, sys
if os.environ["OMPI_COMM_WORLD_RANK"] == "1" and not os.path.exists("lost"):
    open("lost", "w").close()
    {end}
"""


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    jobs = [mlp(batch_size=1), cnn(batch_size=1)]
    return write_ensemble(tmp_path_factory.mktemp("lost"), [{**job, "stop": {"epochs": EPOCHS}} for job in jobs])


@pytest.fixture(scope="module")
def undisturbed(ensemble: Ensemble) -> RunFolder:
    ended = run(ensemble.plain("undisturbed"), ensemble.folder)
    assert ended.code == 0, ended.output
    return ensemble.left("undisturbed")


def kill_one(running: Running, folder: RunFolder, rank: int | None = None) -> int:
    """Kill a rank once each job has a checkpoint; by default one that trains, and not alone. Returns its device."""

    def trained() -> bool:
        assert running.process.poll() is None, running.output
        return all(folder.events("checkpoint", job) for job in JOBS)

    running.wait_for(trained, "a checkpoint of each job")
    held = {event["job"]: event["devices"] for event in folder.events("started")}
    device = max(held.values(), key=len)[-1]
    running.kill_rank(1 + device if rank is None else rank)
    return device


def test_the_others_go_on_in_place_when_a_trainer_is_lost(ensemble: Ensemble, undisturbed: RunFolder) -> None:
    folder = ensemble.left("trainer")
    with started(ensemble.plain("trainer", "--trainers", "3"), ensemble.folder) as running:
        device = kill_one(running, folder)
        ended = running.finish()
    assert ended.code == 0, ended.output
    assert len(folder.events("session")) == 1, "all ranks were started again"
    (lost,) = folder.events("lost")
    assert lost["devices"] == [device] and lost["ranks"] == [1 + device]
    assert f"rank {1 + device} on" in ended.output and "was lost" in ended.output
    after = folder.journal[folder.journal.index(lost) :]
    assert not any(device in event["devices"] for event in after if event["event"] == "started")
    set_back = [event for event in folder.events("stopped") if event["why"] == "lost"]
    assert len(set_back) <= 1, "the other network lost nothing"
    for event in set_back:
        again = next(e for e in after if e["event"] == "started" and e["job"] == event["job"])
        assert (again["epoch"], again["moved"]) == (event["epoch"], False)
    assert_same_bits(final_states(folder, JOBS), final_states(undisturbed, JOBS))


@pytest.mark.slow
def test_a_lost_preprocessors_work_is_taken_over(ensemble: Ensemble, undisturbed: RunFolder) -> None:
    folder = ensemble.left("preprocessor")
    command = ensemble.plain("preprocessor", "--trainers", "2", "--preprocessors", "2")
    with started(command, ensemble.folder) as running:
        kill_one(running, folder, rank=1)
        ended = running.finish()
    assert ended.code == 0, ended.output
    (chosen,) = folder.events("preprocessors")
    assert chosen["chosen"] == 2, "nothing was to be taken over"
    assert len(folder.events("session")) == 1, "all ranks were started again"
    (lost,) = folder.events("lost")
    assert (lost["ranks"], lost["devices"]) == ([1], [])
    assert_same_bits(final_states(folder, JOBS), final_states(undisturbed, JOBS))


@pytest.mark.slow
def test_all_ranks_are_started_again_when_the_coordinator_is_lost(ensemble: Ensemble, undisturbed: RunFolder) -> None:
    folder = ensemble.left("coordinator")
    with started(ensemble.plain("coordinator", "--trainers", "2"), ensemble.folder) as running:
        kill_one(running, folder, rank=0)
        ended = running.finish()
    assert ended.code == 0 and "all ranks are started again" in ended.output, ended.output
    assert len(folder.events("session")) == 2 and not folder.events("lost")
    assert_same_bits(final_states(folder, JOBS), final_states(undisturbed, JOBS))


@pytest.mark.parametrize(
    ("option", "end", "words"),
    [
        ("--in-place", "os.kill(os.getpid(), 9)", "lost before MPI had started"),
        ("--no-in-place", "os._exit(14)", "MPI failed"),
    ],
)
@pytest.mark.slow
def test_ranks_are_started_again_when_one_is_lost_before_mpi_has_started(
    option: str, end: str, words: str, tmp_path: Path
) -> None:
    """MPI's own start would wait for it for ever, or fail with a code of its own (14: an unknown error)."""
    (tmp_path / "sitecustomize.py").write_text(
        f"import os\nif 'OMPI_COMM_WORLD_RANK' in os.environ:\n    exec({SPAWNER.format(end=end)!r})\n"
    )
    ensemble = write_ensemble(tmp_path, [mlp()])
    ended = run(ensemble.plain("run", "--trainers", "2", option), tmp_path, PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert (tmp_path / "lost").exists(), sys.path
    assert ended.code == 0 and words in ended.output and "exit code: 70" not in ended.output, ended.output
