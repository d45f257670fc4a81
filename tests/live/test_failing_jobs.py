"""Networks that go wrong: each is marked failed with what it raised, and the others finish."""

from __future__ import annotations

import pytest

from tests.live.support.ensembles import WELL_FED, Ensemble, RunFolder, faulty, mlp, write_ensemble
from tests.live.support.processes import Ended, run

SAYS = {"leaking": "RuntimeError: the hull leaks", "foggy": "Diverged", "heavy": "MemoryError: no room for the cargo"}
FAULTS = {"leaking": "raise", "foggy": "nan", "heavy": "memory"}


@pytest.fixture(scope="module")
def unlucky(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    """A sound network, and three that meet one picture with which they cannot deal."""
    jobs = [mlp(), *(faulty(name, fault) for name, fault in FAULTS.items())]
    return write_ensemble(tmp_path_factory.mktemp("unlucky"), jobs)


@pytest.fixture(scope="module")
def ended(unlucky: Ensemble) -> Ended:
    """Each network on one device."""
    return run(unlucky.plain("run", "--trainers", "2"), unlucky.folder)


@pytest.fixture(scope="module")
def folder(unlucky: Ensemble, ended: Ended) -> RunFolder:
    return unlucky.left("run")


def test_run_ends_with_one_and_says_which_failed(ended: Ended, folder: RunFolder) -> None:
    assert ended.code == 1, ended.output
    assert folder.summary["status"] == "failed"
    assert "1 done, 3 failed" in ended.output
    assert all(f"{name} FAILED: " in ended.output for name in FAULTS)


def test_failed_networks_carry_their_traceback(folder: RunFolder) -> None:
    for name, text in SAYS.items():
        record = folder.summary["jobs"][name]
        assert record["status"] == "failed"
        assert "Traceback" in record["error"] and text in record["error"]
        (event,) = folder.events("failed", name)
        assert text.partition(":")[0] in event["error"] and event["traceback"] == record["error"]


def test_sound_network_finishes(folder: RunFolder) -> None:
    record = folder.summary["jobs"]["mlp"]
    assert (record["status"], record["epochs"], record["error"]) == ("done", 2, None)


@pytest.mark.slow
def test_one_member_of_a_group_fails(unlucky: Ensemble) -> None:
    """One of two members meets the picture; the other learns of it from its peer, and both train what comes next."""
    jobs = [mlp(virtual_workers=1), faulty("leaking", "raise")]
    ensemble = write_ensemble(unlucky.folder / "grouped", jobs, rates=WELL_FED)
    ended = run(ensemble.under_mpiexec(4, "run", "--trainers", "3"), ensemble.folder)
    grouped = ensemble.left("run")
    assert ended.code == 1, ended.output
    (event,) = grouped.events("failed")
    assert event["job"] == "leaking" and len(event["devices"]) == 2
    assert SAYS["leaking"] in grouped.summary["jobs"]["leaking"]["error"]
    assert grouped.summary["jobs"]["mlp"]["status"] == "done"


@pytest.mark.slow
@pytest.mark.parametrize(("when", "told"), [("before", "profile"), ("training", "timed")])
def test_failure_while_rates_are_measured(when: str, told: str, unlucky: Ensemble) -> None:
    """Without known rates the first batches are those of the profiler, or of the job's first steps."""
    jobs = [mlp(), faulty("sunk", "raise", picture=None)]
    ensemble = write_ensemble(
        unlucky.folder / f"measured-{when}", jobs, measured=False, profile={"when": when, "batches": 4, "timed": 4},
        resources={"device": "cpu"},
    )  # fmt: skip
    end = run(ensemble.plain("run", "--trainers", "2"), ensemble.folder)
    folder = ensemble.left("run")
    assert end.code == 1, end.output
    assert folder.summary["jobs"]["mlp"]["status"] == "done"
    assert "the hull leaks" in folder.summary["jobs"]["sunk"]["error"]
    assert {event["job"] for event in folder.events(told)} == {"mlp"}
    assert all(0 < event["forming"] < 60 for event in folder.events("profile"))
