"""A job that trains further than it is wanted to can go back."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainers import CheckpointError
from trainers.state.kept_checkpoints import drop_rollback, keep_rollback, roll_back


def saved(folder: Path, *places: tuple[int, int]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for epoch, step in places:
        (folder / f"epoch-{epoch:05}-step-{step:06}.h5").write_text(f"{epoch} {step}")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_it_goes_back_past_checkpoints_that_pushed_its_own_out(tmp_path: Path) -> None:
    saved(tmp_path, (2, 0), (3, 0))
    keep_rollback(tmp_path, 3)
    saved(tmp_path, (4, 0), (5, 7))
    for epoch in (2, 3):
        (tmp_path / f"epoch-0000{epoch}-step-000000.h5").unlink()
    for _ in range(2):  # a session may end halfway
        roll_back(tmp_path, 3)
        assert names(tmp_path) == ["epoch-00003-step-000000.h5"]
        assert (tmp_path / "epoch-00003-step-000000.h5").read_text() == "3 0"


def test_the_way_is_kept_until_it_is_dropped(tmp_path: Path) -> None:
    saved(tmp_path, (1, 0), (3, 0))
    keep_rollback(tmp_path, 1)
    keep_rollback(tmp_path, 3)
    drop_rollback(tmp_path, 1)
    assert names(tmp_path / "settled") == ["epoch-00003-step-000000.h5"]
    drop_rollback(tmp_path, 3)
    assert not (tmp_path / "settled").exists()


def test_nothing_is_removed_where_there_is_no_way(tmp_path: Path) -> None:
    saved(tmp_path, (4, 0))
    with pytest.raises(CheckpointError, match="gone back to"):
        roll_back(tmp_path, 3)
    assert names(tmp_path) == ["epoch-00004-step-000000.h5"]
