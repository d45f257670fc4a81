"""Networks of the zoo, each with other layers, optimizers and schedules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.live.support import parts
from tests.live.support.ensembles import STEPS, Ensemble, Job, write_ensemble

SHORT, LONG = 2, 5
BEST = {"best": "accuracy"}


def network(name: str, model: str, optimizer: dict[str, Any], schedule: Any = None, **arguments: Any) -> Job:
    """A job on the pictures; the arguments are the model's."""
    made = {"name": f"trainers.zoo:{model}", "arguments": {"classes": parts.CLASSES, **arguments}}
    return {"name": name, "model": made, "optimizer": optimizer, **({"schedule": schedule} if schedule else {})}


def mlp(name: str, optimizer: dict[str, Any], schedule: Any = None, **arguments: Any) -> Job:
    return network(name, "MLP", optimizer, schedule, inputs=parts.SIDE**2, **arguments)


def _by(name: str, lr: float, **more: Any) -> dict[str, Any]:
    return {"name": name, "arguments": {"lr": lr, **more}}


_STEPS = {"name": "StepLR", "arguments": {"step_size": 7, "gamma": 0.5}}
_CYCLES = {"name": "CosineAnnealingWarmRestarts", "arguments": {"T_0": 8}}
_HALF = {"blocks": [1, 1], "channels": 1}
FAMILIES: list[Job] = [
    mlp("mlp", _by("SGD", 0.05, momentum=0.9), widths=[16], dropout=0.2),
    network("cnn", "CNN", _by("AdamW", 0.01), _STEPS, widths=[4]),
    network("resnet", "ResNet", _by("SGD", 0.05, momentum=0.9, nesterov=True), width=4, **_HALF),
    mlp("deep", _by("Adam", 0.01), _CYCLES, widths=[16, 16, 16]),
    network("dropping", "CNN", _by("RMSprop", 0.003), widths=[4, 4], dropout=0.3),
    network("plain", "CNN", _by("Adagrad", 0.02), widths=[4], batch_norm=False),
    network("bottleneck", "ResNet", _by("NAdam", 0.002), width=4, block="bottleneck", **_HALF),
    network("dense", "DenseNet", _by("SGD", 0.05), _STEPS, blocks=[1, 1], growth=4, channels=1),
    network("vgg", "VGG", _by("Adam", 0.003), blocks=[1, 1], widths=[4, 8], hidden=[16], channels=1, image=parts.SIDE),
    network(
        "vgg-norm", "VGG", _by("SGD", 0.02, momentum=0.9), blocks=[1, 1], widths=[4, 8], hidden=[], channels=1,
        image=parts.SIDE, batch_norm=True,
    ),
    network("shuffle", "ShuffleNetV2", _by("AdamW", 0.005), _CYCLES, blocks=[1, 1], widths=[8, 16], initial=4, last=16,
            channels=1),
    mlp("averaging", _by("ASGD", 0.05), widths=[24]),
]  # fmt: skip
FIXED: Job = mlp(
    "fixed", _by("SGD", 0.05), {"name": "OneCycleLR", "arguments": {"max_lr": 0.1, "total_steps": SHORT * STEPS}},
    widths=[8],
)  # fmt: skip
REACHED: Job = {**mlp("reached", _by("SGD", 0.05), widths=[8]), "stop": {"epochs": 9, "target": {"accuracy": 0.0}}}


def short_ensemble(folder: Path, jobs: Sequence[Job]) -> Ensemble:
    """The jobs, trained for a few epochs."""
    return _ensemble(folder, jobs, SHORT)


def long_ensemble(folder: Path, jobs: Sequence[Job]) -> Ensemble:
    """The same, trained for longer."""
    return _ensemble(folder, jobs, LONG)


def _ensemble(folder: Path, jobs: Sequence[Job], epochs: int) -> Ensemble:
    told = [{"stop": {"epochs": epochs}, **job} for job in jobs]
    return write_ensemble(folder, told, checkpoints=BEST)
