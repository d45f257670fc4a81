"""Zarr stores on disk: windows of the arrays of a group."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from preprocess.samples.errors import SourceError, spelling_advice
from preprocess.sources.damage import DamageError, damage_named
from preprocess.sources.optional_package import needed
from preprocess.sources.windows import MEND, WindowArguments, WindowSource
from preprocess.sources.zarr_chunks import CheckedArray

_METADATA = ("zarr.json", ".zarray", ".zgroup", ".zmetadata")


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
    import zarr

    _refuse_pickles(path, "")
    with damage_named(path, "it", mend="give the folder of a Zarr group"):
        group = zarr.open_group(path, mode="r")
    found = {}
    for name in names:
        _refuse_pickles(path, name)
        with damage_named(path, f"its array {name!r}", mend=MEND):
            if name not in group or not hasattr(group[name], "chunks"):
                raise SourceError(name, f"{path} holds no such array", spelling_advice(name, _arrays(group)))
            found[name] = CheckedArray(group[name], Path(path, name))
    return found


def _arrays(group: Any) -> list[str]:
    return [name for name, _ in group.arrays()]


def _refuse_pickles(path: str, name: str) -> None:
    """Refuse arrays whose values are pickled: to read such a value runs what somebody wrote into it."""
    for kind in _METADATA:
        file = Path(path, name, kind)
        if not file.is_file():
            continue
        try:
            noted = json.loads(file.read_bytes())
            pickled = _has_pickles(noted)
        except (OSError, ValueError, RecursionError) as cause:
            raise DamageError(str(file), f"it is not JSON ({' '.join(str(cause).split())})", MEND) from cause
        if pickled:
            raise SourceError(str(file), "has values that are pickled, which run code when read", "write it as numbers")


def _has_pickles(noted: Any) -> bool:
    if isinstance(noted, list):
        return any(map(_has_pickles, noted))
    if not isinstance(noted, dict):
        return False
    if any("pickle" in str(noted.get(key, "")).lower() for key in ("id", "name")):
        return True
    return any(_has_pickles(value) for key, value in noted.items() if key not in ("attributes", ".zattrs"))
