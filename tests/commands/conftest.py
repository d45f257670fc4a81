"""Commands are called in this process, as the `fleet` command calls them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fleet.commands.cli import app
from tests.warm.starting import nursery, started_cold

__all__ = ["nursery", "started_cold"]

KEPT = Path(__file__).parents[1] / "live" / "old_runs" / "first"


@pytest.fixture
def call() -> Callable[..., Result]:
    """Calls `fleet` with these words."""
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run directory that stands still, beside its spec, in the folder where commands are called now."""
    shutil.copytree(KEPT, tmp_path / "kept")
    monkeypatch.chdir(tmp_path / "kept")
    monkeypatch.syspath_prepend(str(tmp_path / "kept"))
    return Path("stopped")
