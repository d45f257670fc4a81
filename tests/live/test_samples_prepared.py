"""A run tells how many samples its preprocessors prepared for each one that its networks read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from tests.live.support.ensembles import Ensemble, mlp, write_ensemble
from tests.live.support.processes import Ended, run

TRAINING, HELD_OUT, EPOCHS, NETWORKS = 240, 40, 3, 2  # an epoch needs no padding
READ = NETWORKS * EPOCHS * (TRAINING + HELD_OUT)
SIDE = 12


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    """Two networks of different seeds, which share no stream, over pictures larger than what is cut out of them."""
    folder = tmp_path_factory.mktemp("photographs")
    rng = np.random.default_rng(4)
    for part, count in (("train", TRAINING), ("held_out", HELD_OUT)):
        for number in range(count):
            path = folder / part / f"class{number % 10}" / f"{number:04}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            cv2.imwrite(str(path), rng.integers(0, 256, (96, 128, 3), np.uint8))
    data = {
        "train": {"source": "image_folder", "arguments": {"path": "train"}},
        "held_out": {"source": "image_folder", "arguments": {"path": "held_out"}},
        "transforms": [{"random_resized_crop": {"size": SIDE}}, {"flip": {}}],
        "held_out_transforms": [{"resize": {"shortest": SIDE}}, {"center_crop": {"size": SIDE}}],
    }
    model = {"name": "trainers.zoo:MLP", "arguments": {"inputs": 3 * SIDE**2, "widths": [8], "classes": 10}}
    jobs = [mlp(f"net{seed}") | {"model": model, "seed": seed, "stop": {"epochs": EPOCHS}} for seed in range(NETWORKS)]
    return write_ensemble(folder, jobs, data={"pictures": data})


def trained(ensemble: Ensemble, out: str, *options: str) -> tuple[Ended, dict[str, Any], Path]:
    """How a run ended, what it says of samples, and where it lies."""
    ended = run(ensemble.plain(out, "--trainers", "2", "--preprocessors", "2", *options), ensemble.folder)
    assert ended.code == 0, ended.output
    left = ensemble.left(out)
    (line,) = left.events("samples")
    counted: dict[str, Any] = left.summary["samples"]
    assert counted["of_data"] == {"pictures": {kind: counted[kind] for kind in ("read", "laid", "made")}}
    assert {kind: line[kind] for kind in ("read", "laid", "made")} == {
        kind: {"pictures": counted[kind]} for kind in ("read", "laid", "made")
    }
    return ended, counted, left.path


def test_pictures_that_are_kept_are_prepared_once_for_all_networks_and_epochs(photographs: Ensemble) -> None:
    ended, counted, path = trained(photographs, "kept")
    assert counted["read"] == READ <= counted["laid"]
    assert counted["made"] == TRAINING + HELD_OUT
    told = f"samples made for each one read: {(TRAINING + HELD_OUT) / READ:.2f}"
    assert told in ended.output and told.capitalize() in (path / "report.html").read_text()


def test_where_none_are_kept_all_that_is_made_is_prepared(photographs: Ensemble) -> None:
    _, counted, _ = trained(photographs, "not-kept", "--set", "resources.store={memory: 0}")
    assert counted["read"] == READ <= counted["laid"] == counted["made"]
