"""Ranks share the samples out; what they answer together has the bits of one process."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tests.live.support.ensembles import RunFolder
from tests.live.support.processes import FLEET, MPIEXEC, Ended, run
from tests.models.support import many

MEMBERS = ("mlp", "cnn", "resnet")


@pytest.fixture(scope="module")
def larger(trained: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A copy of the run with data sets of five batches, some with pictures that cannot be read, or not in time."""
    folder = tmp_path_factory.mktemp("larger") / "here"
    shutil.copytree(trained.path.parent, folder)
    shutil.copy(many.__file__, folder / "many.py")
    file = folder / "run" / "ensemble.json"
    content = json.loads(file.read_text().replace(str(trained.path.parent), str(folder)))
    (own,) = content["spec"]["data"].values()
    os.mkfifo(folder / "pipe")
    stuck = {"stuck": 70, "pipe": str(folder / "pipe")}
    for name, arguments in (("many", {}), ("broken", {"broken": [70, 150]}), ("stuck", stuck)):
        content["spec"]["data"][name] = {**own, "held_out": {"source": "many:Many", "arguments": arguments}}
    file.write_text(json.dumps(content))
    return RunFolder(folder / "run")


def predict(larger: RunFolder, *options: str, launcher: tuple[str, ...] = ()) -> Ended:
    words = [*launcher, *FLEET, "predict", str(larger.path), "--members", ",".join(MEMBERS), *options]
    return run(words, larger.path.parent)


def told(ended: Ended) -> dict[str, Any]:
    assert ended.code == 0, ended.output
    found: dict[str, Any] = json.loads(ended.output)
    return {key: value for key, value in found.items() if key != "seconds"}


def written(path: Path) -> dict[str, np.ndarray]:
    with h5py.File(path) as file:
        return {name: file[name][()] for name in file}


def test_any_number_of_ranks_has_the_bits_of_one_process(larger: RunFolder, tmp_path: Path) -> None:
    ways: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
        "alone": ((), ()),
        "three": (("--ranks", "3"), ()),
        "launched": ((), (*MPIEXEC, "-n", "2")),
    }
    found = {}
    for name, (options, launcher) in ways.items():
        file = tmp_path / f"{name}.h5"
        ended = predict(larger, "--data", "many", "--json", "--out", str(file), *options, launcher=launcher)
        found[name] = (told(ended), written(file))
    figures, arrays = found["alone"]
    assert figures["samples"] == 300 and arrays["members"].shape == (3, 300, many.CLASSES)
    for name in ("three", "launched"):
        assert found[name][0] == figures
        assert all(np.array_equal(array, found[name][1][key]) for key, array in arrays.items()), name


def test_soups_and_temperatures_are_those_of_one_process(larger: RunFolder) -> None:
    words = [*FLEET, "predict", str(larger.path), "--members", "fixed,reached", "--data", "many", "--json"]
    words += ["--soup", "greedy", "--temperature"]
    alone, several = (run([*words, *more], larger.path.parent) for more in ((), ("--ranks", "2")))
    assert told(alone) == told(several) and "soup" in told(alone)


def test_what_one_rank_cannot_read_ends_all_with_the_words_of_one_process(larger: RunFolder) -> None:
    alone, several = predict(larger, "--data", "broken"), predict(larger, "--data", "broken", "--ranks", "3")
    assert alone.code == several.code == 2
    assert "picture 70 lies at the bottom of the sea" in alone.output and several.output == alone.output


def test_mistakes_are_told_once(larger: RunFolder) -> None:
    wrong = run([*FLEET, "predict", str(larger.path), "--members", "mpl", "--ranks", "2"], larger.path.parent)
    assert wrong.code == 2 and wrong.output.count("did you mean mlp") == 1 and "Traceback" not in wrong.output
    nowhere = predict(larger, "--device", "nowhere:1", "--ranks", "2")
    assert nowhere.code == 2 and nowhere.output.count("cannot be moved to device nowhere:1") == 1, nowhere.output
    other = predict(larger, "--ranks", "3", launcher=(*MPIEXEC, "-n", "2"))
    assert "the launcher has started 2; leave --ranks out" in other.output and "Traceback" not in other.output


def test_a_rank_that_is_stuck_is_named(larger: RunFolder) -> None:
    program = str(shutil.copy(Path(__file__).with_name("support") / "impatient.py", larger.path.parent))
    words = [*MPIEXEC, "-n", "3", sys.executable, program, str(larger.path), "mlp", "stuck", "3"]
    ended = run(words, larger.path.parent)
    assert ended.code != 0 and "rank 0 waits for rank 1 on" in ended.output, ended.output
