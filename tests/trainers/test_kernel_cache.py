"""Where MIOpen keeps its kernels."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from trainers.repeatable.kernel_cache import keep_kernels_on_the_node


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The node's temporary folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_kernels_stay_on_the_node(temporary: Path) -> None:
    variables: dict[str, str] = {}
    keep_kernels_on_the_node(variables, rocm="6.4")
    (folder,) = set(variables.values())
    assert list(variables) == ["MIOPEN_USER_DB_PATH", "MIOPEN_CUSTOM_CACHE_DIR"]
    assert Path(folder).parent == temporary and Path(folder).stat().st_mode & 0o777 == 0o700
    others: dict[str, str] = {}
    keep_kernels_on_the_node(others, rocm="6.4")
    assert others == variables


def test_what_the_user_says_stays(temporary: Path) -> None:
    variables = {"MIOPEN_USER_DB_PATH": "/mine"}
    keep_kernels_on_the_node(variables, rocm="6.4")
    assert variables["MIOPEN_USER_DB_PATH"] == "/mine" and len(variables) == 2


def test_without_rocm_nothing_is_set(temporary: Path) -> None:
    variables: dict[str, str] = {}
    keep_kernels_on_the_node(variables, rocm=None)
    assert variables == {} and not list(temporary.iterdir())


def test_a_link_that_somebody_laid_at_its_name_is_not_followed(temporary: Path) -> None:
    keep_kernels_on_the_node({}, rocm="6.4")
    (made,) = temporary.iterdir()
    made.rmdir()
    made.symlink_to(temporary / "elsewhere")
    variables: dict[str, str] = {}
    keep_kernels_on_the_node(variables, rocm="6.4")
    folder = Path(variables["MIOPEN_USER_DB_PATH"])
    assert folder != made and folder.parent == temporary and folder.is_dir()
