"""A folder of everything that fleet reads, as it should be: a run, data of each kind, rates, a trace, specs."""

from __future__ import annotations

import gzip
import io
import json
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np

COUNT = 16

SPEC = """name: {name}
data: {{d: {{train: {{source: {source}, arguments: {arguments}}}}}}}
jobs:
  - {{name: a, data: d, model: {{name: "trainers.zoo:MLP", arguments: {{widths: [8]}}}}, loss: cross_entropy,
     optimizer: {{name: SGD, arguments: {{lr: 0.01}}}}, batch_size: 4, stop: {{epochs: 1}}}}
resources: {{trainers: 1, preprocessors: 1, device: cpu}}
"""
RUN = """name: run
data: {d: {train: {source: "preprocess:DrawnDigits", subset: 64},
           held_out: {source: "preprocess:DrawnDigits", arguments: {train: false}, subset: 32}}}
defaults: {data: d, optimizer: {name: SGD, arguments: {lr: 0.05}}, metrics: [accuracy], stop: {epochs: 2}}
jobs:
  - {name: a, model: {name: "trainers.zoo:MLP", arguments: {widths: [8]}}}
  - {name: b, model: {name: "trainers.zoo:MLP", arguments: {widths: [16]}}}
resources: {trainers: 1, preprocessors: 1, device: cpu}
"""
TRACE = "name,arrival,devices,model,batch_size,duration\n" + "".join(f"j{n},{n},1,m,32,100\n" for n in range(5))


def inputs() -> np.ndarray:
    return np.arange(COUNT * 12, dtype=np.uint8).reshape(COUNT, 3, 4)


def targets() -> np.ndarray:
    return np.arange(COUNT) % 2


def picture(kind: str) -> bytes:
    from PIL import Image

    written = io.BytesIO()
    Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(written, kind)
    return written.getvalue()


def hdf5(folder: Path) -> dict[str, Any]:
    with h5py.File(folder / "data.h5", "w") as file:
        file["inputs"], file["targets"] = inputs(), targets()
    return {"path": "data.h5"}


def npz(folder: Path) -> dict[str, Any]:
    np.savez(folder / "data.npz", inputs=inputs(), targets=targets())
    return {"path": "data.npz"}


def npy(folder: Path) -> dict[str, Any]:
    np.save(folder / "inputs.npy", inputs())
    np.save(folder / "targets.npy", targets())
    return {"inputs": "inputs.npy", "targets": "targets.npy"}


def _idx(array: np.ndarray) -> bytes:
    kinds = {"uint8": 8}
    head = struct.pack(">HBB", 0, kinds[array.dtype.name], array.ndim)
    return head + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def idx(folder: Path) -> dict[str, Any]:
    (folder / "images").write_bytes(_idx(inputs()))
    (folder / "labels").write_bytes(_idx(targets().astype(np.uint8)))
    return {"images": "images", "labels": "labels"}


def idx_gz(folder: Path) -> dict[str, Any]:
    (folder / "images.gz").write_bytes(gzip.compress(_idx(inputs())))
    (folder / "labels.gz").write_bytes(gzip.compress(_idx(targets().astype(np.uint8))))
    return {"images": "images.gz", "labels": "labels.gz"}


def image_folder(folder: Path) -> dict[str, Any]:
    for label in "ab":
        (folder / "pictures" / label).mkdir(parents=True)
        for number, kind in ((0, "PNG"), (1, "JPEG"), (3, "PNG")):
            (folder / "pictures" / label / f"{number}.{kind.lower()}").write_bytes(picture(kind))
    return {"path": "pictures"}


def tar(folder: Path) -> dict[str, Any]:
    with tarfile.open(folder / "data.tar", "w") as shard:
        for number in range(COUNT):
            for name, content in ((f"{number}.png", picture("PNG")), (f"{number}.cls", str(number % 2).encode())):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                shard.addfile(member, io.BytesIO(content))
    return {"path": "data.tar"}


def _table() -> Any:
    import pyarrow as pa

    rows = [row.reshape(-1).astype(np.float32) for row in inputs()]
    return pa.table({"x": pa.array(rows, pa.list_(pa.float32(), 12)), "label": targets()})


def parquet(folder: Path) -> dict[str, Any]:
    import pyarrow.parquet as pq

    pq.write_table(_table(), folder / "data.parquet")
    return {"path": "data.parquet", "inputs": "x", "targets": "label"}


def arrow(folder: Path) -> dict[str, Any]:
    import pyarrow as pa

    table = _table()
    with pa.OSFile(str(folder / "data.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    return {"path": "data.arrow", "inputs": "x", "targets": "label"}


def _zarr(folder: Path, kind: Literal[2, 3]) -> dict[str, Any]:
    import zarr

    group = zarr.open_group(str(folder / "data.zarr"), mode="w", zarr_format=kind)
    for name, array in (("inputs", inputs()), ("targets", targets())):
        group.create_array(name, data=array, chunks=(4, *array.shape[1:]))
    return {"path": "data.zarr", "inputs": "inputs", "targets": "targets"}


def zarr2(folder: Path) -> dict[str, Any]:
    return _zarr(folder, 2)


def zarr3(folder: Path) -> dict[str, Any]:
    return _zarr(folder, 3)


def netcdf(folder: Path) -> dict[str, Any]:
    with h5py.File(folder / "data.nc", "w") as file:
        file["inputs"], file["targets"] = inputs().astype("f4"), targets().astype("f4")
        for name, size in (("time", COUNT), ("y", 3), ("x", 4)):
            file[name] = np.arange(size)
            file[name].make_scale(name)
        for place, name in enumerate(("time", "y", "x")):
            file["inputs"].dims[place].attach_scale(file[name])
        file["targets"].dims[0].attach_scale(file["time"])
    return {"path": "data.nc", "inputs": "inputs", "targets": "targets"}


def tokens(folder: Path) -> dict[str, Any]:
    np.save(folder / "tokens.npy", np.arange(400, dtype=np.uint16) % 50)
    return {"path": "tokens.npy", "context": 16}


def lmdb(folder: Path) -> dict[str, Any]:
    import lmdb as library

    environment = library.open(str(folder / "data.lmdb"), map_size=1 << 20)
    with environment, environment.begin(write=True) as transaction:
        for number in range(COUNT):
            transaction.put(str(number).encode(), picture("PNG"))
            transaction.put(f"{number}-label".encode(), str(number % 2).encode())
    return {"path": "data.lmdb"}


SOURCES: dict[str, tuple[str, Callable[[Path], dict[str, Any]]]] = {
    "hdf5": ("hdf5", hdf5),
    "npz": ("numpy", npz),
    "npy": ("numpy", npy),
    "idx": ("idx", idx),
    "idx_gz": ("idx", idx_gz),
    "image_folder": ("image_folder", image_folder),
    "tar": ("tar", tar),
    "parquet": ("parquet", parquet),
    "arrow": ("arrow", arrow),
    "zarr2": ("zarr", zarr2),
    "zarr3": ("zarr", zarr3),
    "tokens": ("tokens", tokens),
    "lmdb": ("lmdb", lmdb),
    "netcdf": ("netcdf", netcdf),
}
"""Name -> the source in a spec, and what writes its files into a folder and gives its arguments."""


def write_source(name: str, folder: Path) -> Path:
    """Write a source's files and a spec that reads them; return the spec."""
    source, write = SOURCES[name]
    spec = folder / "spec.yaml"
    spec.write_text(SPEC.format(name=name, source=source, arguments=json.dumps(write(folder))))
    return spec
