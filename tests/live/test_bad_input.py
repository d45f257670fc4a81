"""What a person got wrong: told in a few lines, with exit code 2, and nothing is begun."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.live.support.ensembles import Ensemble, mlp, write_ensemble
from tests.live.support.processes import FLEET, run

Command = Callable[[Ensemble], "list[str]"]
CAN_MOUNT = (
    os.geteuid() == 0
    and shutil.which("unshare") is not None
    and subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True).returncode == 0
)
needs_mounts = pytest.mark.skipif(not CAN_MOUNT, reason="a small disk can be mounted only by root, with unshare")

IDX = {"train": {"source": "idx", "arguments": {"images": "lost-images", "labels": "lost-labels"}}}
CASES: dict[str, tuple[dict[str, Any], Command, tuple[str, ...]]] = {
    "unknown key": ({"resorces": {"trainers": 1}}, lambda e: e.plain("run"), ("resorces", "resources")),
    "missing data file": ({"data": {"pictures": IDX}}, lambda e: e.plain("run"), ("lost-images",)),
    "too little memory": (
        {"resources": {"trainers": 1, "device": "cpu", "memory_gib": 1e-5}}, lambda e: e.plain("run"), ("memory_gib",),
    ),
    "more trainers than virtual workers": (
        {}, lambda e: e.under_mpiexec(4, "run", "--trainers", "2"), ("3 trainers", "2 virtual workers"),
    ),
    "one rank": ({}, lambda e: e.under_mpiexec(1, "run"), ("1 rank", "at least 2")),
    "no trainer among the ranks": (
        {}, lambda e: e.under_mpiexec(2, "run", "--preprocessors", "2"), ("leave 0 trainers", "at least 3 ranks"),
    ),
    "no trainers asked for": ({}, lambda e: e.plain("run", "--trainers", "0"), ("trainers",)),
    "pretended nodes": ({}, lambda e: e.plain("run", "--cluster", "1x2"), ("--rehearse",)),
    "profile that is none": (
        {"profile": {"file": "parts.py"}}, lambda e: e.plain("run"), ("parts.py is not a profile", "fleet profile"),
    ),
}  # fmt: skip


FOUND_BY_RANKS = {"too little memory", "more trainers than virtual workers", "profile that is none"}
ALL = [pytest.param(case, marks=[pytest.mark.slow] if case in FOUND_BY_RANKS else []) for case in CASES]


@pytest.mark.parametrize("case", ALL)
def test_mistake_is_told_in_words(case: str, tmp_path: Path) -> None:
    changes, command, words = CASES[case]
    jobs = changes.get("jobs", [mlp()])
    ensemble = write_ensemble(tmp_path, jobs, **{key: value for key, value in changes.items() if key != "jobs"})
    ended = run(command(ensemble), tmp_path)
    assert ended.code == 2, ended.output
    assert "Traceback" not in ended.output, ended.output
    for word in words:
        assert word in ended.output, ended.output
    assert not ensemble.left("run").journal, "something was begun"


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    """What only imports, other sections and the data can show."""
    jobs = [
        mlp("typo", model={"name": "trainers.zoo:MPL"}, virtual_workers=1),
        mlp("lost", model={"name": "no_such_module:Net"}, virtual_workers=1),
        mlp("greedy", batch_size=128, virtual_workers=1),
    ]
    ensemble = write_ensemble(tmp_path, jobs, profile={"file": "raets.json"})
    ended = run(ensemble.plain("run", "--policy", "flotila", "--trainers", "4"), tmp_path)
    assert ended.code == 2 and "Traceback" not in ended.output, ended.output
    typo, lost, greedy, rest = "jobs[0].model", "jobs[1].model", "jobs[2].batch_size", ("MLP", "no_such_module", "79")
    for word in (typo, lost, greedy, *rest, "rates.json", "flotilla", "resources.trainers", "3 virtual workers"):
        assert word in ended.output, f"{word} is not in:\n{ended.output}"


def test_spec_that_is_not_there(tmp_path: Path) -> None:
    ended = run([*FLEET, "run", str(tmp_path / "lost.yaml")], tmp_path)
    assert ended.code == 2 and "lost.yaml" in ended.output and "Traceback" not in ended.output


@pytest.mark.slow
def test_directory_that_cannot_be_made(tmp_path: Path) -> None:
    ensemble = write_ensemble(tmp_path, [mlp()])
    (tmp_path / "file").touch()
    ended = run(ensemble.plain("file/run"), tmp_path)
    assert ended.code == 2, ended.output
    assert "file/run" in ended.output and "Traceback" not in ended.output


@needs_mounts
@pytest.mark.slow
def test_too_little_shared_memory(tmp_path: Path) -> None:
    ensemble = write_ensemble(tmp_path, [mlp()], resources={"trainers": 1, "device": "cpu", "ring_samples": 65536})
    ended = run(small_disk("/dev/shm", "4m", ensemble.plain("run")), tmp_path)
    assert ended.code == 2, ended.output
    assert "shared memory" in ended.output and "ring_samples" in ended.output and "Traceback" not in ended.output


@pytest.mark.slow
@needs_mounts
def test_no_space_left_for_checkpoints(tmp_path: Path) -> None:
    """The run ends with what is wrong; when there is room, the same command goes on."""
    model = {"inputs": 144, "widths": [2048, 512], "classes": 10}  # a checkpoint of 10 MiB
    ensemble = write_ensemble(tmp_path, [mlp(model={"name": "trainers.zoo:MLP", "arguments": model})])
    disk, command = tmp_path / "disk", ensemble.plain("disk/run")
    disk.mkdir()
    script = f'"$@"; echo "first: $?"; mount -o remount,size=200m {disk} && "$@"; echo "second: $?"'
    ended = run(small_disk(str(disk), "8m", ["sh", "-c", script, "sh", *command]), tmp_path)
    first, _, second = ended.output.partition("first: 1")
    assert second, ended.output
    assert "No space left on device" in first and "run the same command again" in first
    assert "Traceback" not in first, first
    assert "second: 0" in second, second


def small_disk(place: str, size: str, command: list[str]) -> list[str]:
    """The command, which finds a disk of this size at `place`, as nobody else does."""
    return ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o size={size} none {place} && exec "$@"', "sh", *command]
