"""Networks with parts of one data set whose samples cannot all be read: others of the same part stand in for these."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from statistics import fmean

import pytest

import trainers
from fleet.models.recorded_spec import recorded_job, recorded_spec
from fleet.models.validation_data import held_out_of
from fleet.spec.subsets import part_of
from tests.live.support import parts
from tests.live.support.bits import assert_same_bits, final_states
from tests.live.support.ensembles import (
    HUNGRY,
    LEARNING_RATE,
    Ensemble,
    RunFolder,
    counting,
    pictures,
    write_ensemble,
    write_rates,
)
from tests.live.support.processes import FLEET, run, started

FOLDS = tuple(f"cv-fold-{fold}" for fold in range(3))
JOBS = (*FOLDS, "bag", "some")
ORDER, EPOCHS, BATCH, WORKERS = 3, 3, 2, 2
STOPPED = 75
TORN = (2, 5, 6, 19, 23, 40, 41, 60, 70)
SOME = (2, 5, 11, 23, 31)


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    """Three folds, a bag and a few: all keep books of the pictures that they are trained on."""
    folder = tmp_path_factory.mktemp("torn")
    jobs = [
        counting("cv", folds=3),
        counting("bag", bag=0.3, seed={"weights": 8, "order": ORDER}),
        counting("some", subset=list(SOME)),
    ]
    data = {key: value for key, value in pictures({"broken": list(TORN)}).items() if key != "held_out"}
    made = write_ensemble(
        folder, [{**job, "stop": {"epochs": EPOCHS}, "batch_size": BATCH} for job in jobs], seed=ORDER,
        data={"pictures": data | {"on_corrupt": "skip"}},
    )  # fmt: skip
    write_rates(folder / "rates.json", dict.fromkeys(JOBS, HUNGRY))
    return made


@pytest.fixture(scope="module")
def trained(ensemble: Ensemble) -> RunFolder:
    ended = run(ensemble.plain("run", "--trainers", "2"), ensemble.folder)
    assert ended.code == 0, ended.output
    return ensemble.left("run")


def own(folder: RunFolder, name: str, held_out: bool = False) -> set[int]:
    part = part_of(recorded_job(recorded_spec(folder.path), folder.path, name))
    assert part is not None
    return set((part.held_out(parts.TRAINING) if held_out else part.train(parts.TRAINING)).tolist())


@pytest.mark.parametrize("name", JOBS)
def test_each_is_trained_on_whole_batches_of_its_own_part(trained: RunFolder, name: str) -> None:
    mine = own(trained, name)
    seen = trainers.read(trained.summary["jobs"][name]["checkpoint"]).parameters["seen"]
    times = (-seen.double() / (LEARNING_RATE / WORKERS)).tolist()
    assert {picture for picture, count in enumerate(times) if count} == mine - set(TORN)
    assert mine & set(TORN) and min(times[picture] for picture in mine - set(TORN)) >= EPOCHS
    assert sum(times) == EPOCHS * (len(mine) + len(mine) % WORKERS), "padded to a multiple of the virtual workers"


@pytest.mark.parametrize("name", FOLDS)
def test_each_fold_is_looked_at_and_nothing_else(trained: RunFolder, name: str) -> None:
    """The mean of the pictures' numbers tells: whole numbers of the fold's, as many as it has."""
    fold = own(trained, name, held_out=True)
    torn, rest = fold & set(TORN), sorted(fold - set(TORN))
    told = trained.summary["jobs"][name]["metrics"]["number"] * len(fold) - sum(rest)
    assert told == pytest.approx(round(told), abs=1e-6) and round(told) in sums(rest, len(torn))


def sums(numbers: list[int], count: int) -> set[int]:
    """What so many of the numbers, one perhaps again, may come to."""
    found = {0}
    for _ in range(count):
        found = {one + other for one in found for other in numbers}
    return found


@pytest.mark.parametrize("name", ["cv-fold-1", pytest.param("bag", marks=pytest.mark.slow)])
def test_they_have_the_bits_of_plain_ddp(trained: RunFolder, name: str) -> None:
    ended = run([*FLEET, "replay", str(trained.path), name, "--ddp"], trained.path.parent)
    assert ended.code == 0 and "equal: every bit" in ended.output, ended.output


def test_on_one_trainer_with_two_preprocessors_they_have_the_same_bits(ensemble: Ensemble, trained: RunFolder) -> None:
    ended = run(ensemble.plain("more", "--trainers", "1", "--preprocessors", "2"), ensemble.folder)
    assert ended.code == 0, ended.output
    more = ensemble.left("more")
    assert_same_bits(final_states(more, JOBS), final_states(trained, JOBS))
    for folder in (trained, more):
        assert {event["sample"] for event in folder.events("skipped") if event["kind"] == "train"} == set(TORN)
    metrics = [{name: folder.summary["jobs"][name]["metrics"] for name in JOBS} for folder in (trained, more)]
    assert metrics[0] == metrics[1]


@pytest.mark.parametrize("name", FOLDS)
def test_who_makes_a_fold_anew_looks_at_the_same_pictures(trained: RunFolder, name: str) -> None:
    spec = recorded_spec(trained.path)
    looked_at = held_out_of(spec, [recorded_job(spec, trained.path, name)])
    numbers = [
        int(number) for images, _ in looked_at.batches(5) for number in images.amax(dim=(1, 2, 3)).int() - parts.MARK
    ]
    assert set(numbers) <= own(trained, name, held_out=True) - set(TORN)
    assert fmean(numbers) == pytest.approx(trained.summary["jobs"][name]["metrics"]["number"], abs=1e-9)


@pytest.mark.slow
def test_what_was_found_corrupt_stays_so_once_it_is_mended(
    ensemble: Ensemble, trained: RunFolder, tmp_path: Path
) -> None:
    mended = Ensemble(Path(shutil.copytree(ensemble.folder, tmp_path / "again", ignore=shutil.ignore_patterns("run"))))
    folder = mended.left("run")
    with started(mended.plain("run", "--trainers", "1"), mended.folder) as running:
        running.wait_for(lambda: bool(folder.events("epoch")), "an epoch")
        running.interrupt(signal.SIGINT)
        ended = running.finish()
    assert ended.code == STOPPED, ended.output
    module = mended.folder / "parts.py"
    module.write_text(module.read_text().replace("frozenset(broken)", "frozenset()"))
    ended = run(mended.plain("run", "--trainers", "2"), mended.folder)
    assert ended.code == 0, ended.output
    assert_same_bits(final_states(folder, JOBS), final_states(trained, JOBS))
