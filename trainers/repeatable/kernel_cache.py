"""Where MIOpen, which has the kernels of AMD's GPUs, keeps what it compiles and what it finds out about them.

By itself it keeps that in the user's home, which all nodes share: they wait for each other's locks there, or fail.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path

import torch

_PLACES = ("MIOPEN_USER_DB_PATH", "MIOPEN_CUSTOM_CACHE_DIR")


def keep_kernels_on_the_node(
    environment: MutableMapping[str, str] = os.environ, rocm: str | None = torch.version.hip
) -> None:
    """Let MIOpen use a folder in the node's own temporary one, unless variables name another; nothing without ROCm.

    Call it before the first work on a GPU: MIOpen reads the variables then.
    """
    unset = [name for name in _PLACES if not environment.get(name)]
    if rocm is not None and unset:
        folder = str(_own_folder())
        environment.update(dict.fromkeys(unset, folder))


def _own_folder() -> Path:
    """One for all of the user's processes on this node; a new one where somebody else has taken its name."""
    folder = Path(tempfile.gettempdir()) / f"miopen-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid():
        return folder
    return Path(tempfile.mkdtemp(prefix="miopen-"))
