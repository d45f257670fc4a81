"""The packages that benchmarks measure fleet against: in environments of their own, which use this one's torch.

python -m benchmarks.peer_packages
    makes the environment of `benchmarks.peers`, in ~/.cache/fleet-benchmarks, or anew; takes some seconds, and nothing
    of this one changes.
python -m benchmarks.peer_packages search
    the same for those of `benchmarks search --parts peers`, whose packages take a minute.
"""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
from pathlib import Path

__all__ = ["ADVICE", "SEARCH_ADVICE", "peers_python", "searchers_python"]

ADVICE = "not installed: python -m benchmarks.peer_packages"
SEARCH_ADVICE = f"{ADVICE} search"

#: Without what they ask for beside: for the clouds' storage, or an older numpy than the one here, which does as well.
PEERS = ("tensorsocket==0.0.5", "mosaicml-streaming==0.13.0", "webdataset==1.0.2")
NEEDED = (
    "pyzmq>=25",
    "tornado>=6",
    "braceexpand",
    "Brotli",
    "python-snappy",
    "cramjam",
    "xxhash",
    "zstd",
    "catalogue",
    "filelock",
)
SEARCHERS = ("ray[tune]==2.60.0", "syne-tune==0.16.0", "optuna==5.0.0")
BESIDE = "_beside.pth"
"""Names the folders of the packages that the environment shares; where they are gone, it is of no use."""


def peers_python() -> Path | None:
    """Return the Python of the environment of `benchmarks.peers`; None if there is none."""
    return _python("peers")


def searchers_python() -> Path | None:
    """Return the Python of the environment that has other libraries for searches; None if there is none."""
    return _python("searchers")


def install() -> None:
    """Make that of `peers`. subprocess.CalledProcessError: pip could not install something, and has said why."""
    _make("peers", "--no-deps", *PEERS, *NEEDED)


def install_searchers() -> None:
    """Make that of `searchers`; errors as of `install`."""
    _make("searchers", *SEARCHERS)


def _make(name: str, *words: str) -> None:
    """Make an environment anew, which finds this one's packages, and install what pip is told there."""
    folder = _folder(name)
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (folder / "lib" / version / "site-packages" / BESIDE).write_text("\n".join(_packages_here()) + "\n")
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *words], check=True, cwd=folder)
    (folder / "ready").touch()


def _python(name: str) -> Path | None:
    folder = _folder(name)
    if not (folder / "ready").exists():
        return None
    beside = next(folder.glob(f"lib/*/site-packages/{BESIDE}")).read_text().splitlines()
    return folder / "bin" / "python" if all(map(os.path.isdir, beside)) else None


def _folder(name: str) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "fleet-benchmarks" / f"{name}-{sys.version_info.major}.{sys.version_info.minor}"


def _packages_here() -> list[str]:
    """Where this environment's packages lie, torch's among them."""
    import torch

    return list(dict.fromkeys([*site.getsitepackages(), str(Path(torch.__file__).parents[1])]))


if __name__ == "__main__":
    if sys.argv[1:] == ["search"]:
        install_searchers()
    else:
        install()
    print("the peers are installed")
