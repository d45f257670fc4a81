"""Jobs with a batch range under a policy that chooses batches: the choice is made once, and the bits are its own."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.live.support.bits import assert_same_bits, final_states
from tests.live.support.ensembles import BATCH, WORKERS, Ensemble, RunFolder, cnn, mlp, write_ensemble
from tests.live.support.processes import run, started

STOPPED = 75
EPOCHS = {"mlp": 2, "cnn": 20}
LARGEST = 64
SLOW = {1: 20.0, 2: 39.0}
"""Samples a second by devices."""
JOBS = tuple(EPOCHS)


def jobs(**batch: Any) -> list[dict[str, Any]]:
    return [{**job, "stop": {"epochs": EPOCHS[job["name"]]}} for job in (mlp(), cnn(**batch))]


@pytest.fixture(scope="module")
def ranged(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    """The least batch is so slow, as the file of rates says, that a larger one trains faster, on any machine."""
    folder = tmp_path_factory.mktemp("ranged")
    wanted = jobs(batch_range=[WORKERS * BATCH - 1, LARGEST + 1])
    return write_ensemble(folder, wanted, rates=SLOW, policy={"name": "throughput"})


@pytest.fixture(scope="module")
def stopped(ranged: Ensemble) -> RunFolder:
    """A run of it that was stopped once its range was settled, and went on."""
    folder = ranged.left("out")
    with started(ranged.plain("out", "--trainers", "2"), ranged.folder) as it:
        it.wait_for(lambda: bool(folder.events("checkpoint", "cnn")), "a checkpoint of the network with a range")
        it.interrupt(signal.SIGINT)
        assert it.finish().code in (0, STOPPED), it.output
    ended = run(ranged.plain("out", "--trainers", "2"), ranged.folder)
    assert ended.code == 0, ended.output
    return folder


def test_the_batch_is_chosen_once_among_the_multiples_of_the_workers(stopped: RunFolder) -> None:
    chosen = stopped.events("batch")
    assert [event["job"] for event in chosen] == ["cnn"]
    assert WORKERS * BATCH < chosen[0]["batch"] <= LARGEST and chosen[0]["batch"] % WORKERS == 0
    assert chosen[0]["t"] <= stopped.events("started", "cnn")[0]["t"]


def test_the_ends_of_the_range_are_measured_once(stopped: RunFolder) -> None:
    measured = {event["batch"]: event["rate"] for event in stopped.events("batch_profile")}
    assert measured.keys() == {LARGEST} and measured[LARGEST] > 0  # the job's own batch is the other end
    assert len(stopped.events("batch_profile")) == 1


def test_bits_are_those_of_a_run_that_always_had_that_batch(
    stopped: RunFolder, tmp_path_factory: pytest.TempPathFactory
) -> None:
    size = stopped.events("batch")[0]["batch"] // WORKERS
    steps = [event["step"] for event in stopped.events("epoch", "cnn")]
    fixed = write_ensemble(tmp_path_factory.mktemp("fixed"), jobs(batch_size=size), policy={"name": "baseline"})
    ended = run(fixed.plain("out"), fixed.folder)
    assert ended.code == 0, ended.output
    assert [event["step"] for event in fixed.left("out").events("epoch", "cnn")] == sorted(set(steps))
    assert_same_bits(final_states(stopped, JOBS), final_states(fixed.left("out"), JOBS))


@pytest.mark.slow
def test_a_policy_that_chooses_no_batches_says_so(ranged: Ensemble, tmp_path: Path) -> None:
    wanted = jobs(batch_range=[WORKERS * BATCH, LARGEST])
    ensemble = write_ensemble(tmp_path, [{**job, "stop": {"epochs": 1}} for job in wanted])
    ended = run(ensemble.plain("out"), ensemble.folder)
    assert ended.code == 0, ended.output
    folder = ensemble.left("out")
    assert not folder.events("batch")
    assert ["chooses no batches" in event["text"] for event in folder.events("warning", "cnn")] == [True]
