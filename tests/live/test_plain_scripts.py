"""The benchmark against plain scripts: both read the same pictures and train the same networks for as long."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.fashion_files import Files, fashion_files
from benchmarks.plain_script import Augmented, Network, train_network
from benchmarks.plain_scripts import Both, compare
from preprocess.sources.arrays import read_idx

COUNTS = {"train": 640, "held_out": 200}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return fashion_files(tmp_path_factory.mktemp("fashion"), COUNTS)[0]


@pytest.fixture
def both(files: Files, tmp_path: Path) -> Both:
    return Both(tmp_path, files, 1, COUNTS)


def test_stand_ins_have_the_published_shapes_and_are_the_same_each_time(files: Files, tmp_path: Path) -> None:
    again, what = fashion_files(tmp_path, COUNTS)
    assert "drawn" in what
    for part, count in COUNTS.items():
        images = read_idx(files[part]["images"])
        assert images.shape == (count, 28, 28) and images.dtype == np.uint8
        assert set(read_idx(files[part]["labels"]).tolist()) == set(range(10))
        assert (images == read_idx(again[part]["images"])).all()


def test_the_scripts_are_the_examples_networks(both: Both) -> None:
    assert list(both.networks) == ["mlp-256", "mlp-512-256", "cnn-0", "cnn-1", "resnet", "densenet"]
    resnet = both.networks["resnet"]
    assert (resnet.batch_size, resnet.epochs, resnet.total_steps, resnet.padding) == (128, 1, 5, 2)
    assert both.networks["cnn-0"].max_lr != both.networks["cnn-1"].max_lr
    assert Network(**json.loads(json.dumps(asdict(resnet)))) == resnet


def test_a_script_crops_flips_and_learns(both: Both) -> None:
    network = replace(both.networks["mlp-256"], epochs=8, total_steps=40)
    images = np.arange(2 * 28 * 28, dtype=np.uint8).reshape(2, 28, 28)
    pictures = Augmented(images, np.array([3, 4]), network.padding, network.mean, network.std)
    seen = {pictures[1][0].numpy().tobytes() for _ in range(200)}
    assert pictures[1][0].shape == (1, 28, 28) and pictures[1][1] == 4
    assert 35 < len(seen) <= 50, "25 places, each as it is and flipped"
    assert train_network(network) > 0.8


@pytest.mark.slow
def test_a_pair_of_runs_is_timed(tmp_path: Path) -> None:
    counts = {"train": 7680, "held_out": 200}  # the schedules last for longer than a measurement of 48 steps
    (pair,) = compare(Both(tmp_path, fashion_files(tmp_path, counts)[0], 1, counts), 1)
    assert pair.fleet > 0 and pair.scripts > 0
