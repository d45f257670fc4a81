"""Zarr stores on disk: windows of the arrays of a group."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from preprocess.samples.errors import SourceError, spelling_advice
from preprocess.sources.checked_files import damage_named, needed
from preprocess.sources.windows import MEND, WindowArguments, WindowSource
from preprocess.sources.zarr_chunks import CheckedArray
from preprocess.sources.zarr_files import NAMES, check_opened, opened_group


def open_zarr(
    path: str,
    inputs: str | Sequence[str],
    targets: str | Sequence[str],
    window: int = 1,
    lead: int = 1,
    target_window: int = 1,
    stride: int = 1,
    dtype: str | None = None,
    fill: float | None = None,
    cache: float = 512,
) -> WindowSource:
    """Open a Zarr store, of format 2 or 3.

    Args:
        path: its folder, which holds a group.
        inputs, targets, window, lead, target_window, stride, dtype, fill, cache: see `WindowArguments`.

    Raises:
        SourceError: zarr is not installed, there is no such store, or the arguments do not fit it.
    """
    needed("zarr", "zarr", "zarr", "Zarr stores")
    if not os.path.isdir(path):
        rule = "is a file, not the folder of a store" if os.path.exists(path) else "there is no such folder"
        raise SourceError(
            str(path), rule, f"paths are relative to {Path.cwd()}; unpack or copy a store onto a disk first"
        )
    arguments = WindowArguments(inputs, targets, window, lead, target_window, stride, dtype, fill, cache)
    return WindowSource(str(path), _variables, arguments)


def _variables(path: str, names: Sequence[str]) -> Mapping[str, Any]:
    with damage_named(path, "it", mend="give the folder of a Zarr group"):
        group = opened_group(path)
    found = {}
    for name in names:
        _check_name(name, path)
        with damage_named(path, f"its array {name!r}", mend=MEND):
            if name not in group or not hasattr(array := group[name], "chunks"):
                raise SourceError(name, f"{path} holds no such array", spelling_advice(name, _arrays(path)))
            check_opened(array, path, name)
            found[name] = CheckedArray(array, path)
    return found


def _check_name(name: str, path: str) -> None:
    """Refuse a name that would be looked for anywhere but below the store."""
    parts = name.split("/")
    if "\\" in name or any(part in ("", ".", "..") for part in parts):
        mend = "name an array by its groups and its own name, such as group/array"
        raise SourceError(name, f"{path} has no array of such a name: it leads out of the store", mend)


def _arrays(path: str) -> list[str]:
    """The names of what lies in a store."""
    return [entry.name for entry in os.scandir(path) if any(Path(entry, kind).is_file() for kind in NAMES)]
