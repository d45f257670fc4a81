"""Where compiled kernels are kept."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from trainers.repeatable.determinism import keep_kernels_on_the_node


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The node's temporary folder."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_kernels_stay_on_the_node(temporary: Path) -> None:
    variables: dict[str, str] = {}
    keep_kernels_on_the_node(variables, rocm="6.4")
    compiler = variables["TORCHINDUCTOR_CACHE_DIR"]
    (folder,) = {variables[name] for name in ("MIOPEN_USER_DB_PATH", "MIOPEN_CUSTOM_CACHE_DIR")}
    assert len(variables) == 3 and folder != compiler
    for each in (Path(folder), Path(compiler)):
        assert each.parent == temporary and each.stat().st_mode & 0o777 == 0o700
    others: dict[str, str] = {}
    keep_kernels_on_the_node(others, rocm="6.4")
    assert others == variables


def test_what_the_user_says_stays(temporary: Path) -> None:
    variables = {"MIOPEN_USER_DB_PATH": "/mine", "TORCHINDUCTOR_CACHE_DIR": "/ours"}
    keep_kernels_on_the_node(variables, rocm="6.4")
    assert variables.pop("MIOPEN_USER_DB_PATH") == "/mine" and variables.pop("TORCHINDUCTOR_CACHE_DIR") == "/ours"
    assert list(variables) == ["MIOPEN_CUSTOM_CACHE_DIR"]


def test_without_rocm_miopen_gets_no_folder(temporary: Path) -> None:
    variables: dict[str, str] = {}
    keep_kernels_on_the_node(variables, rocm=None)
    assert list(variables) == ["TORCHINDUCTOR_CACHE_DIR"] and len(list(temporary.iterdir())) == 1


def test_a_link_that_somebody_laid_at_its_name_is_not_followed(temporary: Path) -> None:
    keep_kernels_on_the_node({}, rocm=None)
    (made,) = temporary.iterdir()
    made.rmdir()
    made.symlink_to(temporary / "elsewhere")
    assert _folder() != made and _folder().parent == temporary and _folder().is_dir()


def test_a_folder_that_others_may_write_to_is_not_used(temporary: Path) -> None:
    keep_kernels_on_the_node({}, rocm=None)
    (made,) = temporary.iterdir()
    made.chmod(0o777)
    assert _folder() != made


def _folder() -> Path:
    variables: dict[str, str] = {}
    keep_kernels_on_the_node(variables, rocm=None)
    return Path(variables["TORCHINDUCTOR_CACHE_DIR"])
