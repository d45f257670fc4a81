"""A valid spec, and folders with modules of their own that specs can name."""

from __future__ import annotations

import pathlib
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest

SPEC = """\
name: digits
seed: 3
data:
  digits:
    train: {source: "examples.digits:Digits", arguments: {train: true}}
    held_out: {source: "examples.digits:Digits", arguments: {train: false}}
    transforms: [{random_crop: {size: 28, padding: 2}}, flip]
    normalise: {mean: [0.1307], std: [0.3081]}
defaults:
  data: digits
  optimizer: {name: SGD, arguments: {lr: 5e-2, momentum: 0.9}}
  stop: {epochs: 8}
jobs:
  - name: mlp-1
    model: {name: "trainers.zoo:MLP", arguments: {widths: [128]}}
    metrics: [accuracy]
  - grid:
      name: "cnn-{width}"
      model: "trainers.zoo:CNN"
      over: {model.arguments.width: [8, 16]}
  - sample:
      name: "net-{index}"
      count: 3
      seed: 1
      model: "trainers.zoo:CNN"
      over:
        model.arguments.width: {choice: [8, 16]}
        optimizer.arguments.lr: {log_uniform: [0.001, 0.1]}
resources: {trainers: 3}
policy: {name: flotilla, parameters: {alpha: 0.8, delta: "12%"}}
checkpoints: {every: 1, keep: 2}
profile: {batches: 48, timed: 20, file: null}
rehearse: {rates: {mlp-1: {1: 100.0, 2: 190}}, time_scale: 0.5}
"""


@pytest.fixture
def text() -> str:
    return SPEC


@pytest.fixture
def small() -> dict[str, Any]:
    """A valid spec of one job, as a mapping of its own for each test."""
    return {
        "name": "small",
        "data": {"toy": {"train": "toys:Toy", "held_out": "toys:Toy"}},
        "jobs": [
            {
                "name": "one",
                "model": {"name": "toys:Net", "arguments": {"width": 4}},
                "data": "toy",
                "optimizer": {"name": "SGD", "arguments": {"lr": 0.1}},
                "metrics": ["accuracy"],
                "stop": {"epochs": 2},
            }
        ],
    }


@pytest.fixture
def module(tmp_path: pathlib.Path) -> Iterator[Callable[[str, str], pathlib.Path]]:
    """Write a module into the test's folder; what was imported from there is forgotten afterwards."""

    def write(name: str, source: str) -> pathlib.Path:
        file = tmp_path / f"{name}.py"
        file.write_text(textwrap.dedent(source))
        return file

    yield write
    for name, loaded in list(sys.modules.items()):
        if str(getattr(loaded, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]
