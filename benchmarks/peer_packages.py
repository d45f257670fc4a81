"""The packages that `benchmarks.peers` measures: in an environment of their own, which uses this one's torch.

python -m benchmarks.peer_packages
    makes the environment, in ~/.cache/fleet-benchmarks, or anew; takes some seconds, and nothing of this one changes.
"""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
from pathlib import Path

__all__ = ["ADVICE", "peers_python"]

ADVICE = "not installed: python -m benchmarks.peer_packages"

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


def peers_python() -> Path | None:
    """Return the Python of that environment; None if there is none."""
    python = _folder() / "bin" / "python"
    return python if (_folder() / "ready").exists() else None


def install() -> None:
    """Make the environment. subprocess.CalledProcessError: pip could not install something, and has said why."""
    folder = _folder()
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (folder / "lib" / version / "site-packages" / "_beside.pth").write_text("\n".join(_packages_here()) + "\n")
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, *PEERS, *NEEDED], check=True)
    (folder / "ready").touch()


def _folder() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "fleet-benchmarks" / f"peers-{sys.version_info.major}.{sys.version_info.minor}"


def _packages_here() -> list[str]:
    """Where this environment's packages lie, torch's among them."""
    import torch

    return list(dict.fromkeys([*site.getsitepackages(), str(Path(torch.__file__).parents[1])]))


if __name__ == "__main__":
    install()
    print(f"the peers are installed: {_folder()}")
