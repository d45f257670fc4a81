"""A sample has the same bytes whoever makes it, and after whatever else, wherever its code draws random numbers."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from preprocess import Dataset, DatasetSpec
from preprocess.samples.order import HELD_OUT, TRAIN

ROOT = Path(__file__).resolve().parents[2]
OWN = """
import random
import numpy as np

def add(image, *numbers):
    return (image + np.array(numbers).sum() * 1000).astype(np.uint8)

def by_argument(image, rng):
    return add(image, rng.random(), rng.normal())

def by_python(image, rng):
    return add(image, random.random(), random.gauss(0, 1), random.randint(0, 9))

def by_numpy(image, rng):
    return add(image, np.random.rand(), np.random.randn(), np.random.randint(9))

def by_torch(image, rng):
    if image.any():  # it is tried on zeros when it is opened
        import torch
        image = add(image, torch.rand(1).item(), torch.randn(1).item(), torch.randint(9, ()).item())
    return image

def by_all(image, rng):
    return by_python(by_torch(by_numpy(by_argument(image, rng), rng), rng), rng)
"""
MAKE_ONE = """
import json, sys
import numpy as np
from preprocess import Dataset, DatasetSpec
spec, kind, seed, epoch, sample = json.loads(sys.argv[1])
dataset = Dataset(DatasetSpec.from_json(spec))
inputs, targets = dataset.layout.empty(1)
dataset.make(kind, seed, epoch, sample, inputs[0], targets)
print(inputs.tobytes().hex())
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "drawing.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("drawing", None)


def spec_of(data_values: dict[str, Any], name: str) -> dict[str, Any]:
    steps = [{"random_crop": {"size": 8, "padding": 2}}, f"drawing:{name}", "flip"]
    return {**data_values, "transforms": steps, "held_out_transforms": steps}


def made(dataset: Dataset, kind: str, epoch: int, sample: int) -> bytes:
    inputs, targets = dataset.layout.empty(1)
    dataset.make(kind, 7, epoch, sample, inputs[0], targets)
    return inputs.tobytes()


@pytest.mark.parametrize("name", ["by_argument", "by_python", "by_numpy", "by_torch", "by_all"])
def test_bytes_do_not_depend_on_what_was_made_before(module: Path, data_values: dict[str, Any], name: str) -> None:
    spec = DatasetSpec.from_json(spec_of(data_values, name))
    wanted = [(kind, epoch, sample) for kind in (TRAIN, HELD_OUT) for epoch in (0, 1) for sample in range(6)]
    one = Dataset(spec)
    first = {key: made(one, *key) for key in wanted}
    other = Dataset(spec)
    shuffled = [wanted[i] for i in np.random.default_rng(0).permutation(len(wanted))]
    for key in shuffled * 2:
        random.gauss(0, 1)  # leaves a second number behind, as randn does
        np.random.randn()
        torch.randn(3)
        assert made(other, *key) == first[key], key
    assert len({first[TRAIN, epoch, sample] for epoch in (0, 1) for sample in range(6)}) == 12
    assert all(first[HELD_OUT, 0, sample] == first[HELD_OUT, 1, sample] for sample in range(6))


def test_a_sample_that_is_the_first_of_its_process_is_no_exception(module: Path, data_values: dict[str, Any]) -> None:
    spec = spec_of(data_values, "by_all")
    here = Dataset(DatasetSpec.from_json(spec))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(module)))}
    command = [sys.executable, "-c", MAKE_ONE, json.dumps([spec, HELD_OUT, 7, 0, 3])]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert bytes.fromhex(done.stdout) == made(here, HELD_OUT, 0, 3)
