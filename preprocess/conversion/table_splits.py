"""The splits of data that come as tables: Parquet files, Arrow files, and folders of Hugging Face's `datasets`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from preprocess.conversion.errors import ConversionError
from preprocess.conversion.split import Split
from preprocess.samples.order import HELD_OUT, TRAIN
from preprocess.sources.arrow import ARROW_ENDINGS, saved_folder, saved_splits
from preprocess.sources.file_paths import file_paths
from preprocess.sources.parquet import PARQUET_ENDINGS, PARTS, parts_of


def table_kind(name: str) -> str | None:
    """Return the source that reads a file, or files of a pattern, by the ending of its name; None if no table's."""
    for kind, endings in (("parquet", PARQUET_ENDINGS), ("arrow", ARROW_ENDINGS)):
        if name.lower().endswith(endings):
            return kind
    return None


def table_split(path: str, kind: str, arguments: dict[str, Any], name: str = TRAIN) -> Split:
    """Return the split that one file, or those of a pattern, make.

    Raises:
        ConversionError: its columns are not named.
    """
    given = {{"images": "inputs", "labels": "targets"}.get(key, key): value for key, value in arguments.items()}
    if not {"inputs", "targets"} <= given.keys():
        rule = "is a table, and which of its columns are the input and the target is not said"
        raise ConversionError(path, rule, "name them: --images COLUMN --labels COLUMN")
    return Split(name, kind, {"path": path, **given})


def table_folder(path: Path, arguments: dict[str, Any]) -> list[Split]:
    """Return the splits of a folder of tables; none if it is no such folder."""
    saved = saved_splits(str(path))
    if saved is not None:
        parts = {name: _role(name) for name in saved}
        found = {name: {**arguments, "split": name} for name, role in parts.items() if role is not None}
        _check_train(path, [parts[name] for name in found])
        ordered = sorted(found, key=lambda name: parts[name] != TRAIN)
        return [table_split(str(path), "arrow", found[name], parts[name] or TRAIN) for name in ordered]
    if "split" in arguments or saved_folder(str(path), None) is not None:
        return [table_split(str(path), "arrow", arguments)]
    for kind, endings in (("parquet", PARQUET_ENDINGS), ("arrow", ARROW_ENDINGS)):
        if any(entry.name.endswith(endings) for entry in os.scandir(path)):
            return _files(path, kind, endings, arguments)
    return []


def _files(path: Path, kind: str, endings: tuple[str, ...], arguments: dict[str, Any]) -> list[Split]:
    """One split, or those whose names the files begin with: train-00000-of-00002.parquet."""
    parts = parts_of(file_paths(str(path), endings, "files"))
    roles = {name: _role(name) for name in parts}
    if not all(roles.values()) or TRAIN not in roles.values():
        return [table_split(str(path), kind, arguments)]
    ordered = sorted(parts, key=lambda name: roles[name] != TRAIN)
    return [
        table_split(os.path.join(path, f"{name}*{endings[0]}"), kind, arguments, roles[name] or "") for name in ordered
    ]


def _role(part: str) -> str | None:
    return TRAIN if part == "train" else HELD_OUT if part in PARTS else None


def _check_train(path: Path, roles: list[str | None]) -> None:
    if TRAIN not in roles:
        rule = "has no part that is called train"
        raise ConversionError(str(path), rule, "say which part to convert: --argument split=NAME")
