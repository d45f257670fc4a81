"""The kind of data that a path or a name stands for, and its splits."""

from __future__ import annotations

import glob
import inspect
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from preprocess.conversion.packing import ConversionError, Split
from preprocess.samples.errors import SourceError, load_object, spelling_advice
from preprocess.samples.order import HELD_OUT, TRAIN
from preprocess.sources.arrays import Archive, open_array
from preprocess.sources.checked_files import file_paths
from preprocess.sources.encoded_images import SPLIT_FOLDERS
from preprocess.sources.formats.tables import (
    ARROW_ENDINGS,
    PARQUET_ENDINGS,
    PARTS,
    parts_of,
    saved_folder,
    saved_splits,
)


def _table_kind(name: str) -> str | None:
    """Return the source that reads a file, or files of a pattern, by the ending of its name; None if no table's."""
    for kind, endings in (("parquet", PARQUET_ENDINGS), ("arrow", ARROW_ENDINGS)):
        if name.lower().endswith(endings):
            return kind
    return None


def _table_split(path: str, kind: str, arguments: dict[str, Any], name: str = TRAIN) -> Split:
    """Return the split that one file, or those of a pattern, make.

    Raises:
        ConversionError: its columns are not named.
    """
    given = {{"images": "inputs", "labels": "targets"}.get(key, key): value for key, value in arguments.items()}
    if not {"inputs", "targets"} <= given.keys():
        rule = "is a table, and which of its columns are the input and the target is not said"
        raise ConversionError(path, rule, "name them: --images COLUMN --labels COLUMN")
    return Split(name, kind, {"path": path, **given})


def _table_folder(path: Path, arguments: dict[str, Any]) -> list[Split]:
    """Return the splits of a folder of tables; none if it is no such folder."""
    saved = saved_splits(str(path))
    if saved is not None:
        parts = {name: _role(name) for name in saved}
        found = {name: {**arguments, "split": name} for name, role in parts.items() if role is not None}
        _check_train(path, [parts[name] for name in found])
        ordered = sorted(found, key=lambda name: parts[name] != TRAIN)
        return [_table_split(str(path), "arrow", found[name], parts[name] or TRAIN) for name in ordered]
    if "split" in arguments or saved_folder(str(path), None) is not None:
        return [_table_split(str(path), "arrow", arguments)]
    for kind, endings in (("parquet", PARQUET_ENDINGS), ("arrow", ARROW_ENDINGS)):
        if any(entry.name.endswith(endings) for entry in os.scandir(path)):
            return _files(path, kind, endings, arguments)
    return []


def _files(path: Path, kind: str, endings: tuple[str, ...], arguments: dict[str, Any]) -> list[Split]:
    """One split, or those whose names the files begin with: train-00000-of-00002.parquet."""
    parts = parts_of(file_paths(str(path), endings, "files"))
    roles = {name: _role(name) for name in parts}
    if not all(roles.values()) or TRAIN not in roles.values():
        return [_table_split(str(path), kind, arguments)]
    ordered = sorted(parts, key=lambda name: roles[name] != TRAIN)
    return [
        _table_split(os.path.join(path, f"{name}*{endings[0]}"), kind, arguments, roles[name] or "") for name in ordered
    ]


def _role(part: str) -> str | None:
    return TRAIN if part == "train" else HELD_OUT if part in PARTS else None


def _check_train(path: Path, roles: list[str | None]) -> None:
    if TRAIN not in roles:
        rule = "has no part that is called train"
        raise ConversionError(str(path), rule, "say which part to convert: --argument split=NAME")


_KINDS = (
    "an image folder, a folder of IDX files, an .npz file, tar shards, Parquet, Arrow, NetCDF-4 or LMDB files, "
    "a Zarr store, or module:Name of a map-style data set"
)


def find_splits(source: str, held_out: str | None, arguments: Mapping[str, Any], channels: int) -> list[Split]:
    """Return the splits of the data that `source` stands for: train, and held_out if there is one.

    Args:
        source: a path, a pattern of paths, or module:Name.
        held_out: the same for the held-out samples; if None, they are looked for in `source`.
        arguments: further arguments of the source.
        channels: channels of images that are decoded, 1 or 3.

    Raises:
        ConversionError: it stands for nothing that can be converted.
    """
    splits = _recognise(source, dict(arguments), channels)
    if held_out is not None:
        return [splits[0], replace(_recognise(held_out, dict(arguments), channels)[0], name=HELD_OUT)]
    if len(splits) > 2:
        folders = [str(split.arguments["path"]) for split in splits[1:]]
        rule = f"{' and '.join(folders)} may each be the held-out part"
        raise ConversionError(source, rule, f"say which: --held-out {folders[0]}")
    return splits


def _recognise(source: str, arguments: dict[str, Any], channels: int) -> list[Split]:
    path = Path(source)
    if path.is_dir():
        return _folder(path, arguments, channels)
    if path.is_file():
        return _file(path, arguments, channels)
    if ":" in source:
        return _map_style(source, arguments)
    if glob.has_magic(source):
        if (kind := _table_kind(source)) is not None:
            return [_table_split(source, kind, {"channels": channels, **arguments})]
        return [Split(TRAIN, "tar", {"path": source, "channels": channels, **arguments})]
    rule = "there is no such file or folder"
    raise ConversionError(source, rule, f"paths are relative to {Path.cwd()}; give {_KINDS}")


def _folder(path: Path, arguments: dict[str, Any], channels: int) -> list[Split]:
    if (path / "data.mdb").is_file():
        return [Split(TRAIN, "lmdb", {"path": str(path), "channels": channels, **_inputs_and_targets(arguments)})]
    if any((path / name).is_file() for name in ("zarr.json", ".zgroup", ".zmetadata")):
        return [_windows(path, "zarr", arguments)]
    if tables := _table_folder(path, {"channels": channels, **arguments}):
        return tables
    parts = [name for name in SPLIT_FOLDERS if (path / name).is_dir()]
    if TRAIN in parts:
        names = {part: TRAIN if part == TRAIN else HELD_OUT for part in parts}
        return [_images_or_shards(path / part, name, arguments, channels) for part, name in names.items()]
    if {"images", "labels"} & arguments.keys():
        return [_idx_pair(path, arguments)]
    return _idx_files(path) or [_images_or_shards(path, TRAIN, arguments, channels)]


def _images_or_shards(path: Path, name: str, arguments: dict[str, Any], channels: int) -> Split:
    kind = "tar" if any(path.glob("*.tar")) else "image_folder"
    return Split(name, kind, {"path": str(path), "channels": channels, **arguments})


def _idx_files(path: Path) -> list[Split]:
    """The splits of a folder that has IDX files with the names of MNIST's."""
    splits: list[Split] = []
    for name, stem in ((TRAIN, "train"), (HELD_OUT, "t10k"), (HELD_OUT, "test")):
        images, labels = (
            sorted(path.glob(f"{stem}-{what}[-.]idx{dimensions}-ubyte*"))
            for what, dimensions in (("images", 3), ("labels", 1))
        )
        if images and not labels:
            rule = f"{images[0].name} has no labels beside it"
            raise ConversionError(str(path), rule, f"add {stem}-labels-idx1-ubyte.gz, or name both files")
        if images and name not in [split.name for split in splits]:
            splits.append(Split(name, "idx", {"images": str(images[0]), "labels": str(labels[0])}))
    if splits and splits[0].name != TRAIN:
        raise ConversionError(str(path), "has held-out IDX files and none to train on", "add train-images-idx3-ubyte")
    return splits


def _idx_pair(path: Path, arguments: dict[str, Any]) -> Split:
    if arguments.keys() != {"images", "labels"}:
        rule = "IDX files are named by images and labels, both"
        raise ConversionError(arguments, rule, "give the two files' names")
    return Split(TRAIN, "idx", {name: str(path / file) for name, file in arguments.items()})


def _file(path: Path, arguments: dict[str, Any], channels: int) -> list[Split]:
    name = path.name.lower()
    if name.endswith(".npz"):
        return _archive(path, arguments)
    if (kind := _table_kind(name)) is not None:
        return [_table_split(str(path), kind, {"channels": channels, **arguments})]
    if name.endswith((".mdb", ".lmdb")):
        return [Split(TRAIN, "lmdb", {"path": str(path), "channels": channels, **_inputs_and_targets(arguments)})]
    if name.endswith((".nc", ".nc4", ".cdf")):
        return [_windows(path, "netcdf", arguments)]
    if name.endswith(".tar"):
        return [Split(TRAIN, "tar", {"path": str(path), "channels": channels, **arguments})]
    if ".tar." in name or name.endswith(".tgz"):
        rule = "is a compressed tar file, in which no sample can be found without reading all before it"
        raise ConversionError(str(path), rule, "unpack it (gunzip, unxz) and give the .tar")
    mend = f"give {_KINDS}"
    raise ConversionError(str(path), "is no kind of data that is known", mend)


def _windows(path: Path, kind: str, arguments: dict[str, Any]) -> Split:
    given = _inputs_and_targets(arguments)
    if not {"inputs", "targets"} <= given.keys():
        rule = "holds variables, and which of them are the input and the target is not said"
        raise ConversionError(str(path), rule, "name them: --images VARIABLE --labels VARIABLE")
    return Split(TRAIN, kind, {"path": str(path), **given})


def _inputs_and_targets(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {{"images": "inputs", "labels": "targets"}.get(key, key): value for key, value in arguments.items()}


def _archive(path: Path, arguments: dict[str, Any]) -> list[Split]:
    """The splits of an .npz: inputs and targets, or x_train, y_train, x_test, y_test as Keras has them."""
    given = _inputs_and_targets(arguments)
    try:
        archive = open_array(str(path))
    except SourceError as cause:
        rule = f"is not an .npz archive ({cause.rule})"
        raise ConversionError(str(path), rule, "write it anew with numpy.savez") from cause
    if not isinstance(archive, Archive):
        raise ConversionError(str(path), "is not an .npz archive", "write it anew with numpy.savez")
    names = set(archive.files)
    if given or {"inputs", "targets"} <= names:
        return [Split(TRAIN, "numpy", {"path": str(path), **given})]
    splits = [
        Split(name, "numpy", {"path": str(path), "inputs": f"x_{part}", "targets": f"y_{part}"})
        for name, part in ((TRAIN, "train"), (HELD_OUT, "test"))
        if {f"x_{part}", f"y_{part}"} <= names
    ]
    if not splits or splits[0].name != TRAIN:
        rule = f"holds neither inputs and targets nor x_train and y_train, but {', '.join(sorted(names)) or 'nothing'}"
        raise ConversionError(str(path), rule, "name the two arrays: --images NAME --labels NAME")
    return splits


def _map_style(name: str, arguments: dict[str, Any]) -> list[Split]:
    """One split, or two if the class or function has a parameter `train`, as torchvision's data sets have."""
    maker = load_object(name, SourceError)
    try:
        known = inspect.signature(maker).parameters if callable(maker) else {}
    except (TypeError, ValueError):  # some that are written in C tell none
        known = {}
    for key in arguments:
        if known and key not in known and not any(p.kind is p.VAR_KEYWORD for p in known.values()):
            raise ConversionError(key, f"{name} has no such argument", spelling_advice(key, known))
    if "train" not in known or "train" in arguments:
        return [Split(TRAIN, name, arguments)]
    return [Split(TRAIN, name, {**arguments, "train": True}), Split(HELD_OUT, name, {**arguments, "train": False})]
