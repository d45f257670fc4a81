"""The files that a path, a pattern, a folder or a list of these stands for."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path

from preprocess.samples.errors import SourceError


def named_files(path: str | Sequence[str], ending: str, examples: str) -> list[str]:
    """Return the files' paths, a pattern's and a folder's in sorted order.

    Args:
        path: a file, a pattern such as train-*.tar, a folder, or a list of these.
        ending: of the files of a folder that count, such as .tar.
        examples: what an error advises to give.

    Raises:
        SourceError: there are none.
    """
    found: list[str] = []
    for part in [path] if isinstance(path, (str, Path)) else list(path):
        text = os.path.join(part, f"*{ending}") if os.path.isdir(part) else str(part)
        some = [text] if os.path.isfile(text) else sorted(glob.glob(text))
        if not some:
            raise SourceError(str(part), f"no file is called so, seen from {Path.cwd()}", f"give {examples}")
        found += some
    if not found:
        raise SourceError(path, "names no file", f"give {examples}")
    return found
