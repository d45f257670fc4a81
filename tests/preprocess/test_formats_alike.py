"""The same samples in every format come out of the preprocessor's data set alike, in the same order, epoch by epoch."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import h5py
import lmdb
import numpy as np
import pyarrow as pa
import pytest
import zarr

from preprocess import Dataset, DatasetSpec, SourceSpec
from preprocess.samples.stream import LaneSchedule
from tests.preprocess.support.tables import save_to_disk, write_file, write_parquet
from tests.preprocess.test_tar_shards import write as write_shard

SAMPLES = 23
RNG = np.random.default_rng(0)
INPUTS, TARGETS = RNG.normal(size=(SAMPLES, 3, 4)).astype(np.float32), RNG.integers(0, 5, SAMPLES)


def npy(array: object) -> bytes:
    file = io.BytesIO()
    np.save(file, np.asarray(array))
    return file.getvalue()


def table() -> pa.Table:
    return pa.table({"x": pa.array(INPUTS.tolist(), pa.list_(pa.list_(pa.float32()))), "y": TARGETS})


def written(kind: str, folder: Path) -> dict[str, Any]:
    """The arguments of the source that reads the samples."""
    columns = {"inputs": "x", "targets": "y"}
    if kind == "numpy":
        np.savez(folder / "a.npz", x=INPUTS, y=TARGETS)
        return {"path": str(folder / "a.npz"), **columns}
    if kind == "parquet":
        return {"path": write_parquet(folder / "a.parquet", table(), 5), "cache": 0, **columns}
    if kind == "arrow":
        return {"path": write_file(folder / "a.arrow", table()), **columns}
    if kind == "arrow folder":
        return {"path": save_to_disk(folder / "saved", table()), **columns}
    if kind == "tar":
        members = {f"{i:03}.npy": npy(INPUTS[i]) for i in range(SAMPLES)}
        members |= {f"{i:03}.cls": str(TARGETS[i]).encode() for i in range(SAMPLES)}
        return {"path": write_shard(folder / "a.tar", members), "inputs": "npy"}
    if kind == "lmdb":
        with lmdb.open(str(folder / "a"), map_size=1 << 24) as environment, environment.begin(write=True) as writing:
            for i in range(SAMPLES):
                writing.put(f"{i}".encode(), npy(INPUTS[i]))
                writing.put(f"{i}-label".encode(), str(TARGETS[i]).encode())
        return {"path": str(folder / "a")}
    # A variable's steps 3 i, 3 i + 1, 3 i + 2 are the rows of sample i.
    series: dict[str, np.ndarray] = {"x": INPUTS.reshape(-1, 4), "y": np.repeat(TARGETS, 3)}
    if kind == "netcdf":
        with h5py.File(folder / "a.nc", "w") as file:
            for name, values in series.items():
                file.create_dataset(name, data=values, chunks=(7, *values.shape[1:]))
    else:
        group = zarr.open_group(str(folder / "a.zarr"), mode="w")
        for name, values in series.items():
            group[name] = values
    return {
        "path": str(folder / ("a.nc" if kind == "netcdf" else "a.zarr")),
        "window": 3,
        "stride": 3,
        "lead": 0,
        **columns,
    }


def prepared(kind: str, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Two epochs and a half, as a preprocessor makes them."""
    dataset = Dataset(DatasetSpec("data", SourceSpec(kind.partition(" ")[0], written(kind, folder))))
    inputs, targets = dataset.layout.empty(2 * SAMPLES + 11)
    schedule = LaneSchedule(SAMPLES, last_epoch=5)
    assert [*dataset.fill(schedule, 3, 0, inputs, targets)][-1] == len(inputs)
    return inputs, targets


@pytest.mark.parametrize("kind", ["parquet", "arrow", "arrow folder", "tar", "zarr", "netcdf", "lmdb"])
def test_samples_are_prepared_alike(kind: str, tmp_path: Path) -> None:
    (tmp_path / "same").mkdir()
    wanted = prepared("numpy", tmp_path / "same")
    for mine, theirs in zip(prepared(kind, tmp_path), wanted):
        assert mine.dtype == theirs.dtype and mine.tobytes() == theirs.tobytes()
