"""Run directories that earlier versions left: this one goes on with them, to the bits that they would have had.

unsealed: checkpoints of format 1, whose digest is inside; `spec.json` knows neither rehearsals nor determinism.
rehearsal: `spec.json` has `rehearsal`. determinism: it has `determinism`, and checkpoints have pins of such a level.
sealed: checkpoints of format 2, with a seal; there is an `ensemble.json`. first: the journal knows `deaf`, `reduce` and
`stopping`; a job was added. checksums: each line of the journal ends with one.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
from pathlib import Path

import pytest

import trainers
from tests.live.support.ensembles import RunFolder
from tests.live.support.processes import FLEET, run
from tests.warm.starting import warmed
from trainers.repeatable.instruction_sets import environment

KEPT = Path(__file__).parent / "old_runs"
FORMATS = ("unsealed", "rehearsal", "determinism", "sealed", "first", "checksums")
TRIED = ("first",)  # the rest takes a minute
INSTRUCTIONS = "sse4"
"""To these all are pinned, as by the spec where it can, and when the oldest were made."""
WEIGHTS = {  # SHA-256, as the versions that wrote the directories trained them to the end, all to the same
    "short": "6336c4128e3d870299a930531b6645e1846457682e7579a48a5200501e07dbab",
    "long": "b9cf5f1da0224e265d7418a498a3b509e1b27bb14e35aa6f2692d49152559021",
    "late": "d1a2435054a397bb8769ca606e5b46df7829e0be54dde2f304ddff7a6b036f95",
}


def digest(path: Path) -> str:
    """Of the parameters' bytes, in the order of their sorted names."""
    parameters = trainers.read(path).parameters
    return hashlib.sha256(b"".join(parameters[name].numpy().tobytes() for name in sorted(parameters))).hexdigest()


def finished_epochs(lines: list[str], job: str) -> list[int]:
    events = map(json.loads, lines)
    return [event["epoch"] for event in events if event["event"] == "epoch" and event["job"] == job]


def test_each_directory_is_tried() -> None:
    assert sorted(FORMATS) == sorted(path.name for path in KEPT.iterdir() if path.is_dir())


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="its bits are those of x86-64 processors")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in TRIED else pytest.mark.slow) for name in FORMATS]
)
def test_a_run_that_an_earlier_version_stopped_ends_with_the_weights_of_that_version(name: str, tmp_path: Path) -> None:
    shutil.copytree(KEPT / name, tmp_path, dirs_exist_ok=True)
    left = RunFolder(tmp_path / "stopped")
    before = (left.path / "journal.jsonl").read_text().splitlines()
    assert left.summary["status"] == "stopped", "else there is nothing to go on with"
    with warmed(**environment(INSTRUCTIONS)) as given:
        ended = run([*FLEET, "run", "ensemble.yaml", "--out", "stopped"], tmp_path, **given)
    assert ended.code == 0, ended.output
    weights = WEIGHTS if (left.path / "added").exists() else {job: WEIGHTS[job] for job in ("short", "long")}
    assert {name: job["status"] for name, job in left.summary["jobs"].items()} == dict.fromkeys(weights, "done")
    newest = {name: max((left.path / "checkpoints" / name).glob("*.h5")) for name in weights}
    assert {name: digest(path) for name, path in newest.items()} == weights
    after = (left.path / "journal.jsonl").read_text().splitlines()
    assert after[: len(before)] == before, "what the first session wrote stays as it is"
    assert finished_epochs(after, "long") == list(range(1, 61)), "the later session begins where the first ended"
    assert finished_epochs(after, "short") == [1, 2]
    assert not [event for event in left.events("warning") if "damaged" in event["text"]]
