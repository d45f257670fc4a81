"""Fuzzed readers of Zarr stores, NetCDF-4 and LMDB files: of their metadata, and of what lies in them."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import lmdb
import numpy as np
import zarr

from preprocess import open_source
from tests.faults.fuzz.binary_targets import REFUSED
from tests.faults.fuzz.targets import Target
from tests.preprocess.support.image_files import encoded, smooth

SERIES: dict[str, np.ndarray] = {"t": np.arange(8 * 6, dtype=np.float32).reshape(8, 2, 3), "label": np.arange(8)}


def _ends(kind: str, **arguments: Any) -> Any:
    """The layout, and the first and the last sample, of a source."""
    source = open_source(kind, arguments)
    return source.layout, [source.read(index) for index in (0, len(source) - 1)]


def _store(path: Path) -> None:
    options: dict[str, Any] = {} if zarr.__version__.startswith("2") else {"zarr_format": 2}
    group = zarr.open_group(str(path), mode="w", **options)
    create = getattr(group, "create_array", None) or group.create_dataset  # of zarr 3, or 2
    for name, values in SERIES.items():
        array = create(name, shape=values.shape, chunks=(4, *values.shape[1:]), dtype=values.dtype)
        array[...] = values


@functools.cache
def _made(name: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        _store(Path(folder, "a.zarr"))
        return Path(folder, "a.zarr", name).read_bytes()


def _zarr(content: bytes, folder: Path, name: str) -> Any:
    """A store in which one file says something else."""
    path = folder / "a.zarr"
    _store(path)
    (path / name).write_bytes(content)
    return _ends("zarr", path=str(path), inputs="t", targets="label", window=2)


def _netcdfs(folder: Path) -> Sequence[bytes]:
    with h5py.File(folder / "a.nc", "w") as file:
        for name, values in SERIES.items():
            file.create_dataset(name, data=values, chunks=(4, *values.shape[1:]), compression="gzip")
        file["t"].attrs.update(scale_factor=np.array([2.0]), _FillValue=np.array([-1.0]))
    return [(folder / "a.nc").read_bytes()]


def _netcdf(content: bytes, folder: Path) -> Any:
    (folder / "a.nc").write_bytes(content)
    return _ends("netcdf", path=str(folder / "a.nc"), inputs="t", targets="label", window=2)


def _lmdbs(folder: Path) -> Sequence[bytes]:
    path = str(folder / "a.mdb")
    with lmdb.open(path, map_size=1 << 20, subdir=False) as environment, environment.begin(write=True) as writing:
        for number in range(6):
            writing.put(b"%d" % number, encoded(smooth(number), "jpg"))
            writing.put(b"%d-label" % number, b"cat" if number % 2 else b"dog")
    return [Path(path).read_bytes()]


def _lmdb(content: bytes, folder: Path) -> Any:
    (folder / "a.mdb").write_bytes(content)
    return _ends("lmdb", path=str(folder / "a.mdb"))


TARGETS = (
    *(
        Target(
            f"zarr {what}",
            lambda folder, name=name: [_made(name)],  # type: ignore[misc]
            functools.partial(_zarr, name=name),
            REFUSED,
        )
        for what, name in (
            ("array", "t/.zarray"),
            ("group", ".zgroup"),
            ("chunk", "t/0.0.0"),
            ("attributes", "t/.zattrs"),
        )
    ),
    Target("netcdf", _netcdfs, _netcdf, REFUSED),
    Target("lmdb", _lmdbs, _lmdb, REFUSED),
)
