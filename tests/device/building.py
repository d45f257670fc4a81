"""Compiles the rig, once for each state of its sources and each torch: the result stays in the user's cache."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.utils import cpp_extension

HERE = Path(__file__).parent
PACKAGE = "torch_rig"
METADATA = "Metadata-Version: 2.1\nName: torch-rig\nVersion: 1\n"
ENTRY_POINTS = f"[torch.backends]\nrig = {PACKAGE}:autoload\n"
BUILD_SECONDS = 900


class NoCompiler(RuntimeError):
    """The rig cannot be compiled here; the text says why."""


def built() -> Path:
    """Return the folder with the compiled package, for PYTHONPATH. NoCompiler."""
    folder = _cache() / f"rig-{_state()}"
    if not (folder / PACKAGE).exists():
        with _alone(folder.with_suffix(".lock")):
            if not (folder / PACKAGE).exists():
                _build(folder)
    return folder


def _cache() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    try:
        (base / "fleet-tests").mkdir(parents=True, exist_ok=True)
        if os.access(base / "fleet-tests", os.W_OK):
            return base / "fleet-tests"
    except OSError:
        pass
    folder = Path(tempfile.gettempdir()) / f"fleet-tests-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    return folder


def _state() -> str:
    """A digest of all that the result depends on."""
    digest = hashlib.sha256(f"{torch.__version__} {sys.version} {_command(Path(), Path())}".encode())
    for path in [*_sources(), *sorted((HERE / "package").glob("*.py"))]:
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _sources() -> list[Path]:
    return sorted((HERE / "source").iterdir())


def _command(source: Path, result: Path) -> list[str]:
    includes = [f"-I{path}" for path in (HERE / "source", *cpp_extension.include_paths(), _python_headers())]
    libraries = [f"-L{path}" for path in cpp_extension.library_paths()]
    return [
        cpp_extension.get_cxx_compiler(), "-std=c++20", "-O1", "-g0", "-w", "-fPIC", "-shared",
        "-DTORCH_EXTENSION_NAME=_C", *includes, str(source), *libraries,
        "-lc10", "-ltorch", "-ltorch_cpu", "-ltorch_python", "-o", str(result),
    ]  # fmt: skip


def _python_headers() -> str:
    import sysconfig

    return sysconfig.get_paths()["include"]


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """While no other process compiles."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(folder: Path) -> None:
    """Compile all sources as one, which takes a third of the time that they take one by one."""
    compiler = cpp_extension.get_cxx_compiler()
    if shutil.which(compiler) is None or not _knows_cpp20(compiler):
        raise NoCompiler(f"the device rig needs a compiler for C++20, and {compiler} is none or is not here")
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="building-") as name:
        package = Path(name) / "made" / PACKAGE
        shutil.copytree(HERE / "package", package, ignore=shutil.ignore_patterns("__pycache__", "*.pyi"))
        whole = Path(name) / "rig.cpp"
        whole.write_text("".join(f'#include "{path.name}"\n' for path in _sources() if path.suffix == ".cpp"))
        command = _command(whole, package / "_C.so")
        ended = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS)
        if ended.returncode:
            raise RuntimeError("the device rig does not compile:\n" + ended.stderr[-6000:])
        known = package.parent / "torch_rig-1.dist-info"
        known.mkdir()
        (known / "METADATA").write_text(METADATA)
        (known / "entry_points.txt").write_text(ENTRY_POINTS)
        shutil.rmtree(folder, ignore_errors=True)
        package.parent.rename(folder)


def _knows_cpp20(compiler: str) -> bool:
    command = [compiler, "-std=c++20", "-fsyntax-only", "-x", "c++", "-"]
    return subprocess.run(command, input=b"#include <span>\n", capture_output=True, timeout=60).returncode == 0


if __name__ == "__main__":
    print(built())
