"""What healthy networks compute with nobody beside them, and the shim that lets system calls fail."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.faults.support import faulty, shim
from tests.faults.support.small_runs import JOBS, OneRankRuns
from tests.live.support.bits import final_states
from tests.live.support.ensembles import Ensemble, Job, RunFolder, cnn, mlp, write_ensemble, write_rates
from tests.live.support.processes import run
from tests.warm.starting import nursery, pinned, started_cold, warmed
from trainers.repeatable.instruction_sets import environment

__all__ = ["nursery", "pinned", "started_cold"]

HEALTHY = ("mlp", "cnn")


def beside(folder: Path, *jobs: Job, timeout: float = 60.0, **sections: Any) -> Ensemble:
    """The ensemble of two healthy networks and `jobs`, on two trainers; without rates they are measured first."""
    sections = {"profile": {"when": "before"}, **sections} if not sections.get("measured", True) else sections
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


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    """Two networks on one device: of three epochs, of which two stay, and of one; they are measured first."""
    jobs = [mlp(stop={"epochs": 3}), cnn(stop={"epochs": 1})]
    resources = {"trainers": 1, "device": "cpu", "ring_samples": 128, "slot_samples": 8, "timeout": 20}
    return write_ensemble(
        tmp_path_factory.mktemp("tiny"), jobs, measured=False, resources=resources, profile={"when": "before"}
    )


@pytest.fixture(scope="session")
def undisturbed(tiny: Ensemble) -> Mapping[str, Path]:
    """The last checkpoints of a run of it."""
    ended = run(tiny.plain("undisturbed"), tiny.folder)
    assert ended.code == 0, ended.output
    return final_states(tiny.left("undisturbed"), JOBS)


@pytest.fixture(scope="session")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    """The two networks on trainers of two kinds, which share one of them: its bits are those of one trainer."""
    jobs = [mlp(virtual_workers=5, stop={"epochs": 6}), cnn(virtual_workers=3, stop={"epochs": 1})]
    folder = tmp_path_factory.mktemp("mixed")
    resources = {"trainers": 2, "device": "cpu", "ring_samples": 128, "slot_samples": 8, "timeout": 60}
    more: dict[str, Any] = {"determinism": "D2", "policy": {"name": "easyscale"}, "profile": {"file": "rates.json"}}
    kinds = {"fast": 0, "slow": 1}
    ensemble = write_ensemble(folder, jobs, measured=False, resources={**resources, "kinds": kinds}, **more)
    speeds = {"fast": 1e6, "slow": 5e5}
    own = {f"{job}, {kind}": {1: speed, 2: 1.9 * speed} for job in JOBS for kind, speed in speeds.items()}
    write_rates(folder / "rates.json", own | {job: {1: 1e6, 2: 1.9e6} for job in JOBS})
    return ensemble


@pytest.fixture(scope="session")
def changing(tmp_path_factory: pytest.TempPathFactory) -> Ensemble:
    """Two networks with small batches; once one is done, the other has its device, too, and a large batch."""
    batch = {"range": [4, 24], "learning_rate": "square_root", "warm_up": 0.5}
    jobs = [cnn(batch=batch, stop={"epochs": 10}), mlp(batch=batch, stop={"epochs": 2})]
    folder = tmp_path_factory.mktemp("changing")
    resources = {"trainers": 2, "device": "cpu", "ring_samples": 128, "slot_samples": 8, "timeout": 60}
    ensemble = write_ensemble(folder, jobs, resources=resources, policy={"name": "throughput"})
    own = {f"{job}, batch {size}": {1: rate} for job in JOBS for size, rate in ((4, 1000.0), (24, 990.0))}
    write_rates(folder / "rates.json", own | {job: {1: 1000.0, 2: 1100.0} for job in JOBS})
    return ensemble


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The shim."""
    built = shim.build(tmp_path_factory.mktemp("shim"))
    if built is None:
        pytest.skip("the shim that lets system calls fail needs a C compiler: install cc")
    return str(built)


@pytest.fixture(scope="session")
def shimmed(library: str) -> Iterator[dict[str, str]]:
    """What a process needs to run with the shim, which sleeps until it is told more."""
    with warmed(LD_PRELOAD=library) as given:
        yield given


@pytest.fixture(scope="session")
def pinned_and_shimmed(library: str) -> Iterator[dict[str, str]]:
    """The same for processes that keep to an instruction set."""
    with warmed(LD_PRELOAD=library, **environment("avx2")) as given:
        yield given


@pytest.fixture(scope="session")
def struck(tiny: Ensemble, shimmed: dict[str, str]) -> OneRankRuns:
    """Starts of it with the shim."""
    return OneRankRuns(tiny, shimmed)


@pytest.fixture(scope="session")
def plain(tiny: Ensemble) -> OneRankRuns:
    """Starts of it without."""
    return OneRankRuns(tiny, {})
