"""Files that others handed over run nothing, let nothing be written elsewhere, and take a bounded part of the machine.

Each is read by the real command, in a fork of a process that has imported it: so its memory can be measured.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trust.support import good
from tests.trust.support.forks import Forks, forks
from tests.trust.support.hostile import SECRET, Case, cases

MEGABYTES, SECONDS = 1000, 20  # that a command may take at once, and compute
SHARE = 24  # of the drawn cases, one in so many is tried by quick tests
DRAWN = (
    "run-",
    *(f"{source}-" for source in good.SOURCES),
    "trace.csv-",
    "spec.yaml-",
    "job.yaml-",
    "own.j2-",
    "train.py-",
)


def _parameters() -> Iterator[object]:
    for case in cases():
        drawn = case.name.startswith(DRAWN)
        slow = drawn and zlib.crc32(case.name.encode()) % SHARE != 0
        yield pytest.param(case, id=case.name, marks=[pytest.mark.slow] if slow else [])


@pytest.fixture(scope="module")
def server() -> Iterator[Forks]:
    with forks() as started:
        yield started


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    (folder / "run.yaml").write_text(good.RUN)
    command = [sys.executable, "-m", "fleet", "run", "run.yaml", "--out", "r"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "r"


@pytest.mark.parametrize("case", list(_parameters()))
def test_is_read_within_bounds_or_refused_by_name(case: Case, server: Forks, run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    if case.base == "run":
        shutil.copytree(run, folder / "r", symlinks=True)
    case.lay(folder)
    outside = _contents(folder)
    ended = server.fleet(case.command, folder, case.cold)
    assert ended.code is not None, f"hangs, or takes more than {Forks.LIMIT:g} s: {ended.said}"
    assert "Traceback" not in ended.said, ended.said
    assert ended.code in (0, 1, 2), f"{ended.code}: {ended.said}"
    assert ended.megabytes <= MEGABYTES, f"{ended.megabytes} MB: {ended.said}"
    assert ended.seconds <= SECONDS, f"{ended.seconds:.1f} s: {ended.said}"
    assert SECRET not in ended.said
    assert not (folder / "RAN").exists(), "code ran"
    assert {name: content for name, content in _contents(folder).items() if name in outside} == outside
    if case.refused:
        assert ended.code == 2, ended.said
    if ended.code == 2:
        assert any(name in ended.said for name in case.hostile), ended.said
        assert ended.said.strip()


def _contents(folder: Path) -> dict[str, bytes]:
    """What a command may not change: files that links may lead to."""
    names = ("victim.txt", "nothing-there", "the-pipe")
    found = [path for path in folder.rglob("*") if path.name in names and path.is_file() and not path.is_symlink()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


@pytest.mark.parametrize("source", good.SOURCES)
def test_good_files_are_read(source: str, server: Forks, tmp_path: Path) -> None:
    """Else all would be refused."""
    good.write_source(source, tmp_path)
    ended = server.fleet(("plan", "spec.yaml"), tmp_path)
    assert ended.code == 0, ended.said


def test_there_are_many() -> None:
    assert len(cases()) >= 120 and len({case.name for case in cases()}) == len(cases())
