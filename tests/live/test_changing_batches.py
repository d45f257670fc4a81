"""Batches that change at epoch ends: the policy's wishes are met there, and the bits are those of DDP that does so."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.live.support.ensembles import RunFolder, cnn, mlp, pictures, write_ensemble
from tests.live.support.processes import FLEET, Ended, run, started

STOPPED = 75
RANGE = [4, 24]
LATE = {"late": 2.5, "later": 3.5}  # when they come, s: the first one trains alone by then
JOBS = ("long", *LATE)
SLOW = {"pictures": pictures({"seconds": 0.003})}  # an epoch takes a quarter of a second of no computing


def jobs() -> list[dict[str, Any]]:
    """One that is alone at first, and two that come later and take a device from it; the last trains on a bag."""
    batch = {"range": RANGE, "learning_rate": "square_root", "warm_up": 0.5}
    late = [mlp(name, batch=batch, stop={"epochs": 5}, arrival=arrival) for name, arrival in LATE.items()]
    late[-1]["bag"] = 0.8
    return [cnn("long", batch=batch, stop={"epochs": 30}), *late]


def write_rates(folder: Path) -> None:
    """On one device small batches are best; on two a large one makes up for the time of summing."""
    alone = {RANGE[0]: 1000.0, RANGE[1]: 990.0}
    rates = {job: {"1": 1000.0, "2": 1100.0} for job in JOBS}
    rates |= {f"{job}, batch {batch}": {"1": rate} for job in JOBS for batch, rate in alone.items()}
    (folder / "rates.json").write_text(json.dumps({"rates": rates, "names": {name: name for name in rates}}))


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run that was stopped when its batches had changed, and went on."""
    folder = tmp_path_factory.mktemp("changing")
    resources = {"trainers": 2, "device": "cpu", "ring_samples": 128, "slot_samples": 8}
    ensemble = write_ensemble(folder, jobs(), resources=resources, policy={"name": "throughput"}, data=SLOW)
    write_rates(folder)
    left = ensemble.left("out")
    with started(ensemble.plain("out"), folder) as it:
        it.wait_for(lambda: len(left.events("batch", "long")) > 1, "a second change of the batch")
        it.interrupt(signal.SIGINT)
        assert it.finish().code in (0, STOPPED), it.output
    ended = run(ensemble.plain("out"), folder)
    assert ended.code == 0, ended.output
    return left


def replay(folder: RunFolder, job: str, *options: str) -> Ended:
    return run([*FLEET, "replay", str(folder.path), job, *options], folder.path.parent)


def test_batches_change_between_epochs_alone(changed: RunFolder) -> None:
    changes = changed.events("batch")
    assert [event["batch"] for event in changes if event["job"] == "long"][:2] == RANGE[::-1]
    assert {event["job"] for event in changes} == set(JOBS)
    for event in changes:
        after = next(x for x in changed.events("started", event["job"]) if x["t"] >= event["t"])
        assert (after["epoch"], after["step"]) == (event["epoch"], 0)


def test_a_job_that_waited_for_its_epochs_end_goes_on_where_it_is(changed: RunFolder) -> None:
    """Whether one had to wait is a matter of chance: the coordinator's own tests see to it that one has to."""
    journal = changed.journal
    for place, stop in enumerate(journal):
        if stop["event"] == "stopped" and stop["why"] == "epoch":
            later = journal[place:]
            after = next(x for x in later if x["event"] == "session" or x.get("job") == stop["job"] and "moved" in x)
            if after["event"] == "started":  # else the run was stopped meanwhile
                assert (stop["step"], after["devices"], after["moved"]) == (0, stop["devices"], True)


@pytest.mark.parametrize("job", [pytest.param("long", marks=pytest.mark.slow), *LATE])
def test_under_stock_ddp_a_replay_has_the_bits_of_the_run(changed: RunFolder, job: str) -> None:
    ended = replay(changed, job, "--ddp")
    assert ended.code == 0 and "equal: every bit" in ended.output, ended.output


@pytest.mark.slow
def test_on_trainers_a_replay_has_them_too(changed: RunFolder) -> None:
    ended = replay(changed, "long", "--trainers", "2")
    assert ended.code == 0 and "equal: every bit" in ended.output, ended.output


def test_a_history_of_other_batches_has_other_bits(changed: RunFolder) -> None:
    journal = changed.path / "journal.jsonl"
    before = journal.read_bytes()
    lines = [json.loads(line) for line in before.splitlines()]
    kept = [line for line in lines if line["event"] != "batch"]
    journal.write_text("".join(json.dumps(line) + "\n" for line in kept))
    try:
        ended = replay(changed, "late", "--trainers", "1")
    finally:
        journal.write_bytes(before)
    assert ended.code == 1 and "Traceback" not in ended.output, ended.output


def test_a_batch_that_may_only_grow_so_much_comes_to_its_size_epoch_by_epoch(tmp_path: Path) -> None:
    """Alone on two devices the job wants the largest batch; its own is 8. Its bits are those of DDP all the same."""
    batch = {"range": RANGE, "learning_rate": "linear", "growth": 2}
    resources = {"trainers": 2, "device": "cpu", "ring_samples": 128, "slot_samples": 8}
    job = mlp("late", batch=batch, stop={"epochs": 4})
    ensemble = write_ensemble(tmp_path, [job], resources=resources, policy={"name": "throughput"})
    write_rates(tmp_path)
    ended = run(ensemble.plain("out"), tmp_path)
    assert ended.code == 0, ended.output
    left = ensemble.left("out")
    assert [(event["epoch"], event["batch"]) for event in left.events("batch")] == [(0, 16), (1, RANGE[1])]
    assert replay(left, "late", "--ddp").code == 0
