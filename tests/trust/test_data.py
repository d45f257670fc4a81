"""Data that claim more than they have: to open them takes a bounded part of the memory."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numcodecs
import numpy as np
import pyarrow as pa
import pytest
import zarr
from PIL import Image
from pyarrow import feather
from pyarrow import parquet as pq

from preprocess import SourceError, open_source
from preprocess.files.memory import READ_MEMORY
from preprocess.sources import checked_files as trial
from preprocess.sources.formats import zarr_store as zarr_chunks

MOST_MEGABYTES = 600  # of a process that opens one source, and its trial; torch is not there

Given = tuple[str, dict[str, Any]]


@pytest.fixture(autouse=True)
def bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(READ_MEMORY, raising=False)


def unallocated_hdf5(folder: Path) -> Given:
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset("inputs", (300_000_000, 4), "u1", chunks=(1 << 16, 4))
        file.create_dataset("targets", (300_000_000,), "f8", chunks=(1 << 16,))
    return "hdf5", {"path": str(folder / "a.h5")}


def hdf5_of_one_chunk(folder: Path) -> Given:
    with h5py.File(folder / "a.h5", "w") as file:
        file.create_dataset("inputs", (10, 1_500_000_000), "u1", chunks=(1, 1_499_999_000), compression="gzip")
        file["targets"] = np.arange(10)
    return "hdf5", {"path": str(folder / "a.h5")}


def hdf5_of_zeros(folder: Path) -> Given:
    """Zeros that are there, packed, as targets."""
    with h5py.File(folder / "a.h5", "w") as file:
        file["inputs"] = np.zeros((4, 2))
        targets = file.create_dataset("targets", (4, 100_000_000), "f8", chunks=(1, 10_000_000), compression="gzip")
        targets[0] = 0
    return "hdf5", {"path": str(folder / "a.h5")}


def netcdf_of_one_chunk(folder: Path) -> Given:
    with h5py.File(folder / "a.nc", "w") as file:
        file.create_dataset("t", (10, 400_000_000), "f8", chunks=(10, 40_000_000))
    return "netcdf", {"path": str(folder / "a.nc"), "inputs": "t", "targets": "t"}


def converted_with_long_names(folder: Path) -> Given:
    """A converted file whose index claims more than it has."""
    with h5py.File(folder / "a.h5", "w") as file:
        file.attrs["format"], file.attrs["version"] = "preprocess samples", 1
        group = file.create_group("train")
        for name in ("labels", "crc32"):
            group.create_dataset(name, (400_000_000,), "i8", chunks=(1 << 16,))
        group["inputs"] = np.zeros((4, 2))
        group.attrs["digest"] = ""
    return "hdf5", {"path": str(folder / "a.h5")}


def npz_of_zeros(folder: Path) -> Given:
    with zipfile.ZipFile(folder / "a.npz", "w", zipfile.ZIP_DEFLATED) as packed:
        for name, shape in (("inputs", (9_000_000, 64)), ("targets", (9_000_000,))):
            with packed.open(f"{name}.npy", "w", force_zip64=True) as file:
                header = {"descr": "|u1", "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(file, header)  # type: ignore[arg-type]
                for _ in range(shape[0] // 1_000_000):
                    file.write(bytes(int(np.prod(shape)) // 9))
    return "numpy", {"path": str(folder / "a.npz")}


def npz_that_claims(folder: Path) -> Given:
    with zipfile.ZipFile(folder / "a.npz", "w") as packed:
        for name in ("inputs", "targets"):
            content = io.BytesIO()
            header = {"descr": "<f8", "fortran_order": False, "shape": (1 << 40,)}
            np.lib.format.write_array_header_1_0(content, header)  # type: ignore[arg-type]
            packed.writestr(f"{name}.npy", content.getvalue())
    return "numpy", {"path": str(folder / "a.npz")}


def npy_that_claims(folder: Path) -> Given:
    with open(folder / "a.npy", "wb") as file:
        header = {"descr": "<f8", "fortran_order": False, "shape": (1 << 40, 4)}
        np.lib.format.write_array_header_1_0(file, header)  # type: ignore[arg-type]
    return "numpy", {"inputs": str(folder / "a.npy"), "targets": str(folder / "a.npy")}


def idx_of_zeros(folder: Path) -> Given:
    with gzip.open(folder / "a.gz", "wb") as file:
        file.write(b"\0\0\x08\x03" + np.array([1_000_000, 20, 50], ">u4").tobytes())
        for _ in range(100):
            file.write(bytes(10_000_000))
    return "idx", {"images": str(folder / "a.gz"), "labels": str(folder / "a.gz")}


def sparse_member(folder: Path, form: str = "gnu") -> Given:
    """A shard whose class is a member in pieces, of 1.2 GB."""
    picture = io.BytesIO()
    Image.new("RGB", (8, 8)).save(picture, "JPEG")
    with tarfile.open(folder / "a.tar", "w", format=tarfile.PAX_FORMAT) as shard:
        image = tarfile.TarInfo("a.jpg")
        image.size = len(picture.getvalue())
        shard.addfile(image, io.BytesIO(picture.getvalue()))
        label = tarfile.TarInfo("a.cls")
        label.size = 1
        if form == "pax":
            label.pax_headers = {"GNU.sparse.size": "1200000000", "GNU.sparse.map": "0,1", "GNU.sparse.name": "a.cls"}
        shard.addfile(label, io.BytesIO(b"1"))
    if form == "gnu":
        content = bytearray((folder / "a.tar").read_bytes())
        place = content.index(b"a.cls\0")
        header = content[place : place + 512]
        header[156:157], header[257:265] = b"S", b"ustar  \0"
        header[386:410], header[483:495] = b"%011o\0%011o\0" % (0, 1), b"%011o\0" % 1_200_000_000
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
        content[place : place + 512] = header
        (folder / "a.tar").write_bytes(content)
    return "tar", {"path": str(folder / "a.tar")}


def sparse_member_of_pax(folder: Path) -> Given:
    return sparse_member(folder, "pax")


def shard_with_a_long_header(folder: Path, kind: bytes = tarfile.XHDTYPE) -> Given:
    """A header of names that claims 8 GB, in a file with holes."""
    member = tarfile.TarInfo("x")
    member.type, member.size = kind, (1 << 33) - 1
    (folder / "a.tar").write_bytes(member.tobuf(tarfile.GNU_FORMAT))
    os.truncate(folder / "a.tar", 1 << 34)
    return "tar", {"path": str(folder / "a.tar")}


def shard_of_nested_names(folder: Path) -> Given:
    """Each header says that the next one has a longer name."""
    member = tarfile.TarInfo("x")
    member.type, member.size = tarfile.GNUTYPE_LONGNAME, 1
    (folder / "a.tar").write_bytes((member.tobuf(tarfile.GNU_FORMAT) + b"x" + bytes(511)) * 5000 + bytes(1024))
    return "tar", {"path": str(folder / "a.tar")}


def empty_zarr(folder: Path, **metadata: Any) -> None:
    """A store whose array `t` has no chunk."""
    is_old = zarr.__version__.startswith("2.")
    format_2: dict[str, Any] = {} if is_old else {"zarr_format": 2}
    group = zarr.open_group(str(folder), mode="w", **format_2)
    (group.create_dataset if is_old else group.create_array)("t", **metadata)


def zarr_of_one_chunk(folder: Path) -> Given:
    empty_zarr(folder / "a.zarr", shape=(4, 1_000_000_000), chunks=(4, 1_000_000_000), dtype="f8")
    return "zarr", {"path": str(folder / "a.zarr"), "inputs": "t", "targets": "t"}


def zarr_of_no_chunks(folder: Path) -> Given:
    """A step is small chunks that are not there."""
    empty_zarr(folder / "a.zarr", shape=(4, 200_000, 1000), chunks=(1, 20_000, 1000), dtype="f8")
    return "zarr", {"path": str(folder / "a.zarr"), "inputs": "t", "targets": "t"}


def zarr_of_endless_time(folder: Path) -> Given:
    empty_zarr(folder / "a.zarr", shape=(1 << 50,), chunks=(1,), dtype="f8")
    return "zarr", {"path": str(folder / "a.zarr"), "inputs": "t", "targets": "t"}


def parquet_of_one_long_text(folder: Path) -> Given:
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(30_000, "i4")), pa.array(["y" * 1_000_000]))
    pq.write_table(pa.table({"x": np.zeros(30_000), "y": texts}), folder / "a.parquet", write_statistics=False)
    return "parquet", {"path": str(folder / "a.parquet"), "inputs": "x", "targets": "y"}


def parquet_of_zeros(folder: Path) -> Given:
    table = pa.table({"x": np.zeros(60_000_000), "y": np.zeros(60_000_000, "i1")})
    pq.write_table(table, folder / "a.parquet", row_group_size=60_000_000)
    return "parquet", {"path": str(folder / "a.parquet"), "inputs": "x", "targets": "y"}


def arrow_of_one_long_text(folder: Path) -> Given:
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(30_000, "i4")), pa.array(["y" * 1_000_000]))
    feather.write_feather(pa.table({"x": np.zeros(30_000), "y": texts}), str(folder / "a.feather"))
    return "arrow", {"path": str(folder / "a.feather"), "inputs": "x", "targets": "y"}


def arrow_of_zeros(folder: Path) -> Given:
    table = pa.table({"x": np.zeros(130_000_000), "y": np.zeros(130_000_000, "i1")})
    feather.write_feather(table, str(folder / "a.feather"), compression="zstd", chunksize=130_000_000)
    return "arrow", {"path": str(folder / "a.feather"), "inputs": "x", "targets": "y"}


LARGE: list[Callable[[Path], Given]] = [
    unallocated_hdf5,
    hdf5_of_one_chunk,
    hdf5_of_zeros,
    netcdf_of_one_chunk,
    converted_with_long_names,
    npz_of_zeros,
    npz_that_claims,
    npy_that_claims,
    idx_of_zeros,
    sparse_member,
    sparse_member_of_pax,
    shard_with_a_long_header,
    shard_of_nested_names,
    zarr_of_one_chunk,
    zarr_of_no_chunks,
    zarr_of_endless_time,
    parquet_of_one_long_text,
    parquet_of_zeros,
    arrow_of_one_long_text,
    arrow_of_zeros,
]
_READ = """
import json, re, resource, sys
from preprocess import SourceError, open_source
name, arguments = json.loads(sys.argv[1])
try:
    source = open_source(name, arguments)
    for index in {0, len(source) - 1}:
        source.read(index)
    said = ""
except SourceError as error:
    said = str(error)
own = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]  # getrusage tells what this process was, too
most = max(int(own), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
print(json.dumps([said, most / 1000]))
"""


@pytest.mark.parametrize("make", LARGE, ids=[make.__name__ for make in LARGE])
def test_what_claims_more_than_it_has_is_refused_before_it_takes_memory(
    tmp_path: Path, make: Callable[[Path], Given]
) -> None:
    given = make(tmp_path)
    command = [sys.executable, "-c", _READ, json.dumps(given)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert ended.returncode == 0, ended.stderr
    said, megabytes = json.loads(ended.stdout)
    assert str(tmp_path) in said and "\n" not in said, said
    assert megabytes < MOST_MEGABYTES


def test_memory_may_be_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is refused names what to set, and is read then; what is smaller than anything refused always is."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["inputs"] = np.zeros((4, 2))
        file.create_dataset("targets", (4, 9_000_000), "f8", chunks=(1, 1_000_000))
    with pytest.raises(SourceError, match=f"takes 275 MB of memory and has 0 bytes.*set {READ_MEMORY}=275M$"):
        open_source("hdf5", {"path": str(tmp_path / "a.h5")})
    monkeypatch.setenv(READ_MEMORY, "275M")
    assert len(open_source("hdf5", {"path": str(tmp_path / "a.h5")})) == 4


def test_a_trial_ends_where_the_library_takes_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("inputs", data=np.zeros((1, 25_000_000)), chunks=(1, 25_000_000), compression="gzip")
        file["targets"] = np.arange(1)
    assert len(open_source("hdf5", {"path": str(tmp_path / "a.h5")})) == 1
    monkeypatch.setattr(trial, "most_memory", lambda: 100 << 20)
    with pytest.raises(SourceError, match=rf"the HDF5 library takes more than 100 MB of memory.*{READ_MEMORY}=1G"):
        open_source("hdf5", {"path": str(tmp_path / "a.h5")})


@pytest.mark.parametrize("codec", ["Blosc", "Zstd", "LZ4", "Zlib", "GZip", "BZ2", "LZMA"])
def test_a_chunk_that_unpacks_to_more_than_its_array_has_is_refused(
    tmp_path: Path, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zarr_chunks, "SMALL_BYTES", 1000)  # so that a small one counts
    pack = getattr(numcodecs, codec)()
    group = zarr.open_group(str(tmp_path / "a.zarr"), mode="w", zarr_format=2)
    for name in ("inputs", "targets"):
        group.create_array(name, data=np.arange(20, dtype="<i4"), chunks=(10,), compressor=pack)
    told = {"path": str(tmp_path / "a.zarr"), "inputs": "inputs", "targets": "targets"}
    assert open_source("zarr", told).read(0)[0] == 0
    for name in ("inputs", "targets"):
        (tmp_path / "a.zarr" / name / "0").write_bytes(pack.encode(bytes(1_000_000)))
    with pytest.raises((SourceError, ValueError), match="unpacks to .*, and its array has 40 in a file"):
        open_source("zarr", told).read(0)
