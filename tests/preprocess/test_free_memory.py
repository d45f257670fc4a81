"""What control groups of either version leave of a node's memory."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from preprocess.files.memory import GroupMemory, free_memory, group_memories

STAT = {"2": "anon 5\ninactive_file 100\n", "1": "inactive_file 7\ntotal_inactive_file 100\n"}


def written(folder: Path, version: str, limit: str, used: str) -> tuple[Path, Path]:
    """A control group of this process below another that has no limit."""
    groups, own = folder / "groups", folder / "own"
    inner = (groups if version == "2" else groups / "memory") / "job" / "step"
    inner.mkdir(parents=True)
    names = ("memory.max", "memory.current") if version == "2" else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    for name, value in zip((*names, "memory.stat"), (limit, used, STAT[version])):
        (inner / name).write_text(value)
    (inner.parent / names[0]).write_text("max")
    own.write_text("0::/job/step\n" if version == "2" else "3:cpu,memory:/job/step\n")
    return groups, own


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_group_leaves_its_limit_less_what_is_used_and_cannot_be_dropped(tmp_path: Path, version: str) -> None:
    groups, own = written(tmp_path, version, "5000\n", "1100\n")
    assert list(group_memories(groups, own)) == [GroupMemory(5000, 1000)]
    assert free_memory(groups, own) == 4000


def test_a_group_that_is_over_its_limit_leaves_nothing(tmp_path: Path) -> None:
    assert free_memory(*written(tmp_path, "2", "500", "1100")) == 0


def test_without_limits_the_node_s_own_memory_counts(tmp_path: Path) -> None:
    groups, own = written(tmp_path, "2", "max", "1100")
    assert list(group_memories(groups, own)) == []
    assert 0 < free_memory(groups, own) <= psutil.virtual_memory().total
