"""Fuzzed readers of files of other formats: Parquet, Arrow, and the folders that Hugging Face's `datasets` saves."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from preprocess import open_source
from tests.faults.fuzz.binary_targets import REFUSED
from tests.faults.fuzz.targets import Target
from tests.preprocess.support.tables import images, numbers, save_to_disk, write_file, write_parquet, write_stream


def read(kind: str, path: Path, inputs: Any, targets: str) -> Any:
    """The layout, and all samples that can be made, of a source."""
    source = open_source(kind, {"path": str(path), "inputs": inputs, "targets": targets})
    return source.layout, [source.read(index) for index in range(min(len(source), 12))]


def _parquets(folder: Path) -> Sequence[bytes]:
    write_parquet(folder / "a.parquet", numbers(), compression="none", use_dictionary=False)
    write_parquet(folder / "b.parquet", numbers())
    return [(folder / name).read_bytes() for name in ("a.parquet", "b.parquet")]


def _arrows(folder: Path) -> Sequence[bytes]:
    write_file(folder / "a.arrow", numbers().drop_columns(["kind"]))
    write_stream(folder / "b.arrow", numbers().drop_columns(["kind"]))
    write_file(folder / "c.arrow", numbers(), compression="lz4")
    return [(folder / name).read_bytes() for name in ("a.arrow", "b.arrow", "c.arrow")]


def _table(content: bytes, folder: Path, kind: str) -> Any:
    path = folder / f"a.{kind}"
    path.write_bytes(content)
    return [
        read(kind, path, inputs, targets) for inputs, targets in (("list", "name"), ("grid", "label"), (["a"], "b"))
    ]


def _image_files(folder: Path, kind: str) -> Sequence[bytes]:
    write = write_parquet if kind == "parquet" else write_file
    return [Path(write(folder / "a", images()[0])).read_bytes()]


def _images(content: bytes, folder: Path, kind: str) -> Any:
    path = folder / f"a.{kind}"
    path.write_bytes(content)
    return read(kind, path, "image", "label")


def _states(folder: Path) -> Sequence[bytes]:
    return [(Path(save_to_disk(folder / "x", images()[0])) / "state.json").read_bytes()]


def _state(content: bytes, folder: Path) -> Any:
    """A saved folder whose state.json says what the text says."""
    path = Path(save_to_disk(folder / "x", images()[0]))
    (path / "state.json").write_bytes(content)
    return read("arrow", path, "image", "label")


TARGETS = (
    *(
        Target(kind, corpus, functools.partial(_table, kind=kind), REFUSED)
        for kind, corpus in (("parquet", _parquets), ("arrow", _arrows))
    ),
    *(
        Target(
            f"{kind} of images",
            functools.partial(_image_files, kind=kind),
            functools.partial(_images, kind=kind),
            REFUSED,
        )
        for kind in ("parquet", "arrow")
    ),
    Target("saved folder", _states, _state, REFUSED),
)
