"""Small ensembles on disk, and what a run of one leaves behind."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.live.support import parts
from tests.live.support.processes import FLEET, MPIEXEC
from tests.warm.starting import RIG_FOLDER

WORKERS, BATCH = 2, 4  # a step is 8 pictures, an epoch of 79 is 10 steps
STEPS = -(-parts.TRAINING // (WORKERS * BATCH))
LEARNING_RATE = 0.125  # of the counting network; a power of two, so that its books are exact

HUNGRY, WELL_FED = {1: 1e6, 2: 1.9e6}, {1: 1000.0, 2: 1e6}  # samples/s by devices
SCALING = {1: 1000.0, 2: 1900.0, 3: 2700.0}

Job = dict[str, Any]


def mlp(name: str = "mlp", **keys: Any) -> Job:
    """A perceptron with dropout: its bits depend on every virtual worker's random state."""
    model = {"inputs": parts.SIDE**2, "widths": [16], "classes": parts.CLASSES, "dropout": 0.2}
    return {"name": name, "model": {"name": "trainers.zoo:MLP", "arguments": model}, **keys}


def cnn(name: str = "cnn", **keys: Any) -> Job:
    """A convolutional network with BatchNorm, Adam and a schedule: buffers, moments and step counts."""
    return {
        "name": name,
        "model": {"name": "trainers.zoo:CNN", "arguments": {"widths": [4], "classes": parts.CLASSES}},
        "optimizer": {"name": "AdamW", "arguments": {"lr": 0.01}},
        "schedule": {"name": "CosineAnnealingLR", "arguments": {"T_max": 40}},
        **keys,
    }


def counting(name: str = "count", **keys: Any) -> Job:
    """The network whose parameters tell how often it was trained on each picture."""
    return {
        "name": name,
        "model": {"name": "parts:Counting"},
        "loss": {"name": "parts:counted"},
        "optimizer": {"name": "SGD", "arguments": {"lr": LEARNING_RATE, "momentum": 0.0}},
        "metrics": ["parts:number"],
        **keys,
    }


def faulty(name: str, fault: str, picture: int | None = 40) -> Job:
    """A network that goes wrong when it meets a picture; see parts.Faulty."""
    return {"name": name, "model": {"name": "parts:Faulty", "arguments": {"fault": fault, "picture": picture}}}


@dataclass(frozen=True)
class Ensemble:
    """A folder with a spec, the module that it names, and rates of its jobs, so that nothing need be measured."""

    folder: Path

    @property
    def spec(self) -> Path:
        return self.folder / "ensemble.yaml"

    def plain(self, out: str, *options: str) -> list[str]:
        """`fleet run`, which starts its ranks itself."""
        return [*FLEET, "run", str(self.spec), "--out", str(self.folder / out), *options]

    def under_mpiexec(self, ranks: int, out: str, *options: str) -> list[str]:
        """The same in ranks that a launcher starts."""
        return [*MPIEXEC, "-n", str(ranks), *self.plain(out, *options)]

    def left(self, out: str) -> RunFolder:
        return RunFolder(self.folder / out)


def write_ensemble(
    folder: Path, jobs: Sequence[Job], measured: bool = True, rates: Mapping[int, float] = HUNGRY, **sections: Any
) -> Ensemble:
    """Write the ensemble of `jobs` to `folder`.

    Args:
        measured: give the spec a file of rates.
        rates: of every job. HUNGRY asks for all preprocessors, and more than they make; so a second device brings
            nothing. With WELL_FED it brings something, whatever training tells of one.
        sections: of the spec, in place of those that all these ensembles share.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(parts.__file__, folder / "parts.py")
    spec: dict[str, Any] = {
        "name": "small",
        "seed": 3,
        "data": {"pictures": pictures()},
        "defaults": {
            "data": "pictures",
            "optimizer": {"name": "SGD", "arguments": {"lr": 0.05, "momentum": 0.9}},
            "metrics": ["accuracy"],
            "virtual_workers": WORKERS,
            "batch_size": BATCH,
            "stop": {"epochs": 2},
        },
        "jobs": list(jobs),
        "resources": {"trainers": 1, "device": "cpu", "ring_samples": 128, "slot_samples": 8},
        **sections,
        "checkpoints": {"seconds": 0.0, **sections.get("checkpoints", {})},  # kills come between epochs
    }
    if RIG_FOLDER in os.environ:
        spec["resources"] = {**spec["resources"], "device": "auto"}
    if measured:
        write_rates(folder / "rates.json", {job["name"]: rates for job in jobs if "name" in job})
        spec.setdefault("profile", {"file": "rates.json"})
    ensemble = Ensemble(folder)
    ensemble.spec.write_text(yaml.safe_dump(spec, sort_keys=False))
    return ensemble


def pictures(train: Mapping[str, Any] | None = None, held_out: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The data section; what is given are further arguments of the two data sets."""
    return {
        "train": {"source": "parts:Pictures", "arguments": {"train": True, **(train or {})}},
        "held_out": {"source": "parts:Pictures", "arguments": {"train": False, **(held_out or {})}},
        "transforms": [{"random_crop": {"size": parts.SIDE, "padding": 2}}, {"flip": {}}],
    }


def write_rates(path: Path, rates: Mapping[str, Mapping[int, float]]) -> None:
    """A profile that a person wrote: its fingerprints are the jobs' own names."""
    path.write_text(json.dumps({"rates": rates, "names": {job: job for job in rates}}))


@dataclass(frozen=True)
class RunFolder:
    """A run directory."""

    path: Path

    @property
    def summary(self) -> dict[str, Any]:
        """run.json."""
        return json.loads(self.run_json)  # type: ignore[no-any-return]

    @property
    def run_json(self) -> str:
        """Its text."""
        return (self.path / "run.json").read_text()

    @property
    def journal(self) -> list[dict[str, Any]]:
        """All whole lines of the journal; none before it exists."""
        path = self.path / "journal.jsonl"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def events(self, kind: str, job: str | None = None) -> list[dict[str, Any]]:
        return [event for event in self.journal if event["event"] == kind and job in (None, event.get("job"))]

    def checkpoints(self, job: str) -> list[Path]:
        """A job's checkpoints, oldest first."""
        return sorted((self.path / "checkpoints" / job).glob("epoch-*.h5"))
