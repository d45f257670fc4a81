"""Which files a source's `path` stands for."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path

from preprocess.samples.errors import SourceError
from preprocess.sources.arrays import existing


def file_paths(path: str | Sequence[str], endings: Sequence[str], what: str) -> list[str]:
    """Return the files that a path, a pattern, a folder or a list of these stands for; a folder's lie in it or below.

    Args:
        path: the path, pattern, folder or list.
        endings: how the files of a folder end, such as .tar.
        what: what may be given, for errors.

    Raises:
        SourceError: there are none, or one is no regular file.
    """
    found: list[str] = []
    for part in [path] if isinstance(path, (str, Path)) else list(path):
        some = _files(str(part), endings)
        for file in some:
            existing(file)
        if not some:
            rule = f"no file is called so, seen from {Path.cwd()}"
            if os.path.isdir(part):
                rule = f"is a folder without files that end in {endings[0]}"
            raise SourceError(str(part), rule, f"give {what}")
        found += some
    if not found:
        raise SourceError(path, "names no file", f"give {what}")
    return found


def _files(part: str, endings: Sequence[str]) -> list[str]:
    if os.path.isdir(part):
        flat = [file for ending in endings for file in glob.glob(os.path.join(glob.escape(part), f"*{ending}"))]
        deep = [os.path.join(glob.escape(part), "**", f"*{ending}") for ending in endings]
        return sorted(flat or [file for pattern in deep for file in glob.glob(pattern, recursive=True)])
    return [part] if os.path.exists(part) else sorted(file for file in glob.glob(part) if not os.path.isdir(file))
