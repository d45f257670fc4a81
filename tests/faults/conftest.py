"""What healthy networks compute with nobody beside them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.faults.support import faulty
from tests.run.support.ensembles import Ensemble, Job, RunFolder, cnn, mlp, write_ensemble
from tests.run.support.processes import run
from tests.warm.starting import nursery, started_cold

__all__ = ["nursery", "started_cold"]

HEALTHY = ("mlp", "cnn")


def beside(folder: Path, *jobs: Job, timeout: float = 60.0, **sections: Any) -> Ensemble:
    """The ensemble of two healthy networks and `jobs`, on two trainers."""
    resources = {"trainers": 2, "device": "cpu", "ring_samples": 128, "slot_samples": 8, "timeout": timeout}
    ensemble = write_ensemble(folder, [*jobs, mlp(), cnn()], **{"resources": resources, **sections})
    shutil.copy(faulty.__file__, folder / "faulty.py")
    return ensemble


def going_wrong(fault: str, phase: str, **keys: Any) -> Job:
    """A job of `faulty.Task`."""
    name = f"{fault}-{phase}".replace(" ", "-")
    return {
        "name": name, "task": {"name": "faulty:Task", "arguments": {"fault": fault, "phase": phase}},
        "optimizer": None, "metrics": [], **keys,
    }  # fmt: skip


@pytest.fixture(scope="session")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run of the healthy networks alone."""
    ensemble = beside(tmp_path_factory.mktemp("healthy"))
    ended = run(ensemble.plain("run"), ensemble.folder)
    assert ended.code == 0, ended.output
    return ensemble.left("run")
