"""Scripts in a folder of their own, and `fleet init` called there."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fleet.spec import EnsembleSpec, load
from tests.warm.starting import nursery  # noqa: F401

SCRIPTS = Path(__file__).with_name("scripts")


@dataclass(frozen=True)
class Begun:
    """What `fleet init` left.

    Attributes:
        code, output, errors: how it ended, and what it said.
        file: the spec's file.
    """

    code: int
    output: str
    errors: str
    file: Path

    @property
    def spec(self) -> EnsembleSpec:
        assert self.code == 0, self.output + self.errors
        return load(self.file)

    @property
    def job(self) -> Any:
        (job,) = self.spec.jobs
        return job

    @property
    def parts(self) -> str:
        return self.file.with_name(f"{self.file.stem}_parts.py").read_text()


def begin(folder: Path, target: str, *words: str, text: str | None = None) -> Begun:
    """Call `fleet init` in a folder, of a script with this text if there is one."""
    if text is not None:
        (folder / target).write_text(text)
    command = [sys.executable, "-m", "fleet", "init", target, *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240)
    return Begun(
        done.returncode, done.stdout, done.stderr, folder / f"{target.removesuffix('.py').rpartition('.')[2]}.yaml"
    )


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., Begun]:
    """Calls `fleet init` of a script with a text."""
    return lambda text, *words: begin(tmp_path, "train.py", *words, text=text)


@pytest.fixture(scope="session")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with scripts in the manner of those that people publish."""
    folder = tmp_path_factory.mktemp("scripts")
    shutil.copytree(SCRIPTS, folder, dirs_exist_ok=True)
    return folder
