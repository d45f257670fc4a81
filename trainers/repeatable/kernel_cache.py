"""Where kernels that are compiled are kept: in a folder of the user's own, in the node's temporary one.

By itself MIOpen, which has the kernels of AMD's GPUs, keeps what it compiles and what it finds out about them in the
user's home, which all nodes share: they wait for each other's locks there, or fail. torch.compile keeps its own at a
name that anybody on the node may have taken, and reads back whatever lies there.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path

import torch

_MIOPEN = ("MIOPEN_USER_DB_PATH", "MIOPEN_CUSTOM_CACHE_DIR")
_COMPILER = ("TORCHINDUCTOR_CACHE_DIR",)


def keep_kernels_on_the_node(
    environment: MutableMapping[str, str] = os.environ, rocm: str | None = torch.version.hip
) -> None:
    """Let MIOpen (with ROCm) and torch.compile use folders in the node's temporary one, unless variables name others.

    Call it before the first work on a GPU, and before the first step of an optimizer: they read the variables then.
    """
    for name, variables in [("inductor", _COMPILER)] + [("miopen", _MIOPEN)] * (rocm is not None):
        unset = [variable for variable in variables if not environment.get(variable)]
        if unset:
            environment.update(dict.fromkeys(unset, str(_own_folder(name))))


def _own_folder(name: str) -> Path:
    """One for all of the user's processes on this node; a new one where somebody else has taken its name."""
    folder = Path(tempfile.gettempdir()) / f"{name}-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022:
        return folder
    return Path(tempfile.mkdtemp(prefix=f"{name}-"))
