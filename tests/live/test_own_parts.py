"""Folds, a bag and a subset of one data set read one stream, and have the bits of plain DDP on their own samples."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

import trainers
from tests.live.support import parts
from tests.live.support.bits import assert_same_bits, final_states
from tests.live.support.ensembles import (
    HUNGRY,
    Ensemble,
    RunFolder,
    counting,
    mlp,
    pictures,
    write_ensemble,
    write_rates,
)
from tests.live.support.processes import FLEET, run, started
from tests.warm.starting import RIG_FOLDER

FOLDS = tuple(f"cv-fold-{fold}" for fold in range(3))
JOBS = (*FOLDS, "bag", "some")
ORDER, EPOCHS, BATCH, STOPPED = 3, 4, 2, 75
HAS_RIG = RIG_FOLDER in os.environ
TRAINERS = 4 if HAS_RIG else len(JOBS)
SOME = [70, 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53]

SAID = {
    "cv-fold-0": (parts.TRAINING - 27, "without fold 0 of 3"),
    "cv-fold-1": (parts.TRAINING - 26, "without fold 1 of 3"),
    "cv-fold-2": (parts.TRAINING - 26, "without fold 2 of 3"),
    "bag": (47, "a bag of 0.6"),
    "some": (len(SOME), f"{len(SOME)} named"),
}


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    """Three folds that keep books, and two perceptrons with dropout; no pads of theirs are alike."""
    folder = tmp_path_factory.mktemp("parts")
    jobs = [
        counting("cv", folds=3),
        mlp("bag", bag=0.6, seed={"weights": 8, "order": ORDER}, virtual_workers=3),
        mlp("some", subset=SOME, virtual_workers=2),
    ]
    data = {key: value for key, value in pictures({"seconds": 0.002}).items() if key != "held_out"}
    made = write_ensemble(
        folder, [{**job, "stop": {"epochs": EPOCHS}, "batch_size": BATCH} for job in jobs], seed=ORDER,
        data={"pictures": data},
    )  # fmt: skip
    write_rates(folder / "rates.json", dict.fromkeys(JOBS, HUNGRY))
    return made


@pytest.fixture(scope="module")
def trained(ensemble: Ensemble) -> RunFolder:
    ended = run(ensemble.plain("run", "--trainers", str(TRAINERS)), ensemble.folder)
    assert ended.code == 0, ended.output
    return ensemble.left("run")


@pytest.mark.skipif(HAS_RIG, reason="it has four devices, and there are five jobs")
def test_they_read_one_lane(trained: RunFolder) -> None:
    first: dict[str, tuple[int, str]] = {}
    for event in trained.events("started"):
        first.setdefault(event["job"], (event["lane"], event["stream"]))
    ((_, stream),) = set(first.values())
    assert tuple(sorted(first)) == tuple(sorted(JOBS)) and f"seed {ORDER}" in stream


def test_the_journal_tells_what_each_trains_on(trained: RunFolder) -> None:
    said = {event["job"]: (event["samples"], event["part"]) for event in trained.events("job")}
    assert said == SAID


def test_a_plan_tells_it_too(ensemble: Ensemble) -> None:
    ended = run([*FLEET, "plan", str(ensemble.spec), "--json"], ensemble.folder)
    assert ended.code == 0, ended.output
    told = json.loads(ended.output)["jobs"]
    assert {name: (job["samples"], job["part"]) for name, job in told.items()} == SAID


def test_a_fold_s_pictures_are_looked_at_and_never_trained_on(trained: RunFolder) -> None:
    held_out = []
    for name in FOLDS:
        record = trained.summary["jobs"][name]
        seen = trainers.read(record["checkpoint"]).parameters["seen"]
        mine = [picture for picture, count in enumerate(seen.tolist()) if count == 0]
        assert record["metrics"]["number"] == pytest.approx(sum(mine) / len(mine), abs=1e-9)
        held_out += mine
    assert sorted(held_out) == list(range(parts.TRAINING))


def test_those_without_a_fold_are_not_evaluated(trained: RunFolder) -> None:
    for name in ("bag", "some"):
        assert set(trained.summary["jobs"][name]["metrics"]) == {"loss"}


@pytest.mark.parametrize(
    "job", ["cv-fold-1", "bag", "some", *(pytest.param(job, marks=pytest.mark.slow) for job in (FOLDS[0], FOLDS[2]))]
)
def test_they_have_the_bits_of_plain_ddp_on_their_own_samples(trained: RunFolder, job: str) -> None:
    ended = run([*FLEET, "replay", str(trained.path), job, "--ddp"], trained.path.parent)
    assert ended.code == 0 and "equal: every bit" in ended.output, ended.output


@pytest.mark.slow
def test_the_elastic_trainer_has_them_too(trained: RunFolder) -> None:
    ended = run([*FLEET, "replay", str(trained.path), "cv-fold-0", "--trainers", "2"], trained.path.parent)
    assert ended.code == 0 and "equal: every bit" in ended.output, ended.output


@pytest.mark.slow
def test_an_interrupted_run_on_other_trainers_has_the_same_bits(ensemble: Ensemble, trained: RunFolder) -> None:
    folder = ensemble.left("interrupted")
    with started(ensemble.plain("interrupted", "--trainers", "2"), ensemble.folder) as running:
        running.wait_for(lambda: bool(folder.events("epoch")), "an epoch")
        running.interrupt(signal.SIGINT)
        ended = running.finish()
    assert ended.code == STOPPED, ended.output
    again = run(ensemble.plain("interrupted", "--trainers", "3"), ensemble.folder)
    assert again.code == 0, again.output
    assert_same_bits(final_states(folder, JOBS), final_states(trained, JOBS))


def test_another_part_is_another_spec(ensemble: Ensemble, trained: RunFolder) -> None:
    ended = run(ensemble.plain("run", "--set", "jobs.bag.bag=0.5"), ensemble.folder)
    assert ended.code == 2 and "another spec" in ended.output and "bag" in ended.output, ended.output


def test_parts_that_cannot_be_are_told_all_at_once(tmp_path: Path) -> None:
    jobs = [
        mlp("many", folds=80),
        mlp("far", subset=[0, parts.TRAINING]),
        mlp("much", subset=parts.TRAINING + 1),
        mlp("own", task={"name": "parts:Plain"}, data=None, model=None, optimizer=None, metrics=[], subset=[0, 900]),
    ]
    data = {key: value for key, value in pictures().items() if key != "held_out"}
    made = write_ensemble(tmp_path, jobs, data={"pictures": data})
    ended = run(made.plain("run"), tmp_path)
    assert ended.code == 2 and "Traceback" not in ended.output, ended.output
    text = " ".join(ended.output.split())
    for part in (
        "more folds than the 79 samples", "no sample 79", "the data set has 79 training samples", "no sample 900",
    ):  # fmt: skip
        assert part in text, ended.output


def test_folds_of_a_task_with_held_out_samples_are_refused(tmp_path: Path) -> None:
    job = mlp("own", task={"name": "parts:Plain"}, data=None, model=None, optimizer=None, metrics=[], folds=2)
    ended = run(write_ensemble(tmp_path, [job]).plain("run"), tmp_path)
    assert ended.code == 2 and "let dataset(False) give None" in " ".join(ended.output.split()), ended.output
