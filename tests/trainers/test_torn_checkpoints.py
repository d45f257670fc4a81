"""A checkpoint that is torn anywhere is found out, and the one before it is used, with word of what was wrong."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.trainers.support.made_checkpoints import checkpoint
from trainers import file_name, latest_good, write

TIMES = 1000
pytestmark = pytest.mark.slow


@pytest.fixture
def newest(tmp_path: Path) -> Path:
    """Of two checkpoints."""
    for epoch in (1, 2):
        saved = checkpoint(epoch)
        write(tmp_path / file_name(saved), saved)
    return tmp_path / file_name(saved)


def assert_the_one_before_is_used(newest: Path) -> None:
    found, rejected = latest_good(newest.parent)
    assert found is not None and found.epoch == 1
    assert [error.path for error in rejected] == [newest] and rejected[0].wrong


def test_truncated_at_a_thousand_places(newest: Path) -> None:
    content, draw = newest.read_bytes(), random.Random("truncated")
    for length in [0, 1, len(content) - 1, *draw.sample(range(2, len(content) - 1), TIMES - 3)]:
        newest.write_bytes(content[:length])
        assert_the_one_before_is_used(newest)
    newest.write_bytes(content)
    assert latest_good(newest.parent)[0].epoch == 2  # type: ignore[union-attr]


def test_a_thousand_flipped_bits(newest: Path) -> None:
    content, draw = newest.read_bytes(), random.Random("flipped")
    for place in draw.sample(range(8 * len(content)), TIMES):
        torn = bytearray(content)
        torn[place // 8] ^= 1 << place % 8
        newest.write_bytes(torn)
        assert_the_one_before_is_used(newest)
