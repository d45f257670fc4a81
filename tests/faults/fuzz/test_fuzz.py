"""Whatever is read, nothing but its reader's own errors comes out, in bounded time and memory: a slice of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.faults.fuzz.attempts import Attempts
from tests.faults.fuzz.found import CHANGED, FOUND
from tests.faults.fuzz.targets import all_targets, target_named
from tests.live.support.processes import run

NAMES = [target.name for target in all_targets()]
EXAMPLES = 6  # beside those that are not touched
LIMIT_SECONDS = 550.0  # for half a minute of computing


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_touched_is_taken(name: str, tmp_path: Path) -> None:
    target = target_named(name)
    (tmp_path / "corpus").mkdir()
    attempts = Attempts(target, tmp_path / "attempts")
    for content in target.corpus(tmp_path / "corpus"):
        attempts.one(content)
    assert attempts.tally.examples and not attempts.tally.escapes and not attempts.tally.refused


@pytest.mark.parametrize(("name", "content"), FOUND)
def test_what_once_escaped(name: str, content: bytes, tmp_path: Path) -> None:
    attempts = Attempts(target_named(name), tmp_path)
    attempts.one(content)
    assert not attempts.tally.escapes


@pytest.mark.parametrize(("name", "number", "old", "new"), CHANGED)
def test_what_escaped_once_it_was_changed(name: str, number: int, old: bytes, new: bytes, tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    content = target_named(name).corpus(tmp_path / "corpus")[number]
    assert old in content
    attempts = Attempts(target_named(name), tmp_path / "attempts")
    attempts.one(content.replace(old, new))
    assert not attempts.tally.escapes


@pytest.fixture(scope="module")
def slice_of_all(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What became of the same few examples of each; the long way is `python -m tests.faults.fuzz`."""
    folder = tmp_path_factory.mktemp("fuzz")
    command = [sys.executable, "-m", "tests.faults.fuzz", "--examples", str(EXAMPLES), "--json", "found.json"]
    ended = run([*command, *NAMES], folder, LIMIT_SECONDS)
    assert (folder / "found.json").exists(), ended.output
    return {tally["target"]: tally for tally in json.loads((folder / "found.json").read_text())["targets"]}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NAMES)
def test_a_slice(name: str, slice_of_all: dict[str, dict[str, Any]]) -> None:
    tally = slice_of_all[name]
    assert not tally["escapes"]
    assert tally["examples"] >= EXAMPLES > 0 and tally["refused"] < tally["examples"]
