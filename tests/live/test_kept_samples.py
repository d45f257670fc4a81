"""Runs that keep prepared samples: the bits of runs that keep none, and of plain DDP, whatever happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live.support.bits import assert_same_bits, final_states
from tests.live.support.ensembles import HUNGRY, Ensemble, RunFolder, write_ensemble, write_rates
from tests.live.support.processes import FLEET, run, started
from tests.preprocess.support.pictures import write_pictures

JOBS = ("one", "two")
NONE, LITTLE = '{"memory": 0}', '{"memory": 0.0003, "disk": 0.0006}'


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    """Two convolutional networks of one seed each, on pictures that are decoded, cut out at random and flipped."""
    folder = tmp_path_factory.mktemp("kept")
    root = write_pictures(folder / "pictures")
    data = {
        "train": {"source": "image_folder", "arguments": {"path": str(root / "train")}},
        "held_out": {"source": "image_folder", "arguments": {"path": str(root / "held_out")}},
        "transforms": [{"random_resized_crop": {"size": 16}}, {"flip": {}}],
        "held_out_transforms": [{"resize": {"shortest": 24}}, {"center_crop": {"size": 16}}],
    }
    model = {"name": "trainers.zoo:CNN", "arguments": {"widths": [4], "channels": 3, "classes": 2}}
    jobs = [
        {"name": name, "model": model, "seed": seed, "batch_size": 2, "stop": {"epochs": 3}}
        for seed, name in enumerate(JOBS)
    ]
    made = write_ensemble(
        folder, jobs, data={"pictures": data},
        resources={"trainers": 2, "preprocessors": 3, "device": "cpu", "ring_samples": 128, "slot_samples": 8},
    )  # fmt: skip
    write_rates(folder / "rates.json", dict.fromkeys(JOBS, HUNGRY))
    return made


@pytest.fixture(scope="module")
def plain(ensemble: Ensemble) -> RunFolder:
    """A run that keeps nothing."""
    ended = run(ensemble.plain("plain", "--set", f"resources.store={NONE}"), ensemble.folder)
    assert ended.code == 0, ended.output
    return ensemble.left("plain")


def test_what_is_kept_changes_no_bit(ensemble: Ensemble, plain: RunFolder) -> None:
    ended = run(ensemble.plain("kept"), ensemble.folder)
    assert ended.code == 0, ended.output
    assert_same_bits(final_states(ensemble.left("kept"), JOBS), final_states(plain, JOBS))
    replayed = run([*FLEET, "replay", str(ensemble.folder / "kept"), "two", "--ddp"], ensemble.folder)
    assert replayed.code == 0 and "equal: every bit" in replayed.output, replayed.output


def test_little_room_in_memory_and_on_disk_changes_no_bit(ensemble: Ensemble, plain: RunFolder, tmp_path: Path) -> None:
    store = LITTLE[:-1] + f', "path": "{tmp_path}"}}'
    ended = run(ensemble.plain("little", "--set", f"resources.store={store}"), ensemble.folder)
    assert ended.code == 0, ended.output
    assert_same_bits(final_states(ensemble.left("little"), JOBS), final_states(plain, JOBS))
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_disk_that_is_not_there_is_told_and_changes_no_bit(ensemble: Ensemble, plain: RunFolder) -> None:
    store = LITTLE[:-1] + ', "path": "/nowhere"}'
    ended = run(ensemble.plain("no-disk", "--set", f"resources.store={store}"), ensemble.folder)
    assert ended.code == 0 and "no prepared samples are kept on disk" in ended.output, ended.output
    assert_same_bits(final_states(ensemble.left("no-disk"), JOBS), final_states(plain, JOBS))


def test_a_lost_preprocessor_changes_no_bit(ensemble: Ensemble, plain: RunFolder) -> None:
    folder = ensemble.left("lost")
    with started(ensemble.plain("lost"), ensemble.folder) as running:
        running.wait_for(lambda: bool(folder.events("epoch")), "an epoch")
        running.kill_rank(1)
        ended = running.finish()
    assert ended.code == 0, ended.output
    assert len(folder.events("session")) == 1, "all ranks were started again"
    assert_same_bits(final_states(folder, JOBS), final_states(plain, JOBS))
