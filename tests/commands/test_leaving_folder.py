"""A task whose module leaves the current folder when it is imported, as scripts do to find their data."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.live.support.processes import FLEET, run

MODULE = """
import os
from tests.commands.support.small_tasks import Small
os.chdir("/")
"""


@pytest.mark.parametrize("more", [("--trainers", "1"), ("--trainers", "2"), ("--ddp",)], ids=["one", "two", "ddp"])
def test_its_checkpoint_is_where_the_command_says(tmp_path: Path, more: tuple[str, ...]) -> None:
    (tmp_path / "leaving.py").write_text(MODULE)
    words = ["train", "leaving:Small", "--virtual-workers", "2", "--steps", "3", "--checkpoint", "x.h5", *more]
    ended = run([*FLEET, *words], tmp_path)
    assert ended.code == 0 and (tmp_path / "x.h5").is_file(), ended.output
