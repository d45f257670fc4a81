"""Hostile files: forms that any file can be given, and files that claim or name what they should not."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import pickle
import random
import socket
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from tests.trust.support import good

SECRET = "not-for-you"
"""Stands in files that a hostile one leads to; no command may print it."""


@dataclass(frozen=True)
class Case:
    """A hostile file, and what reads it.

    Attributes:
        name: of the test.
        lay: writes it into a folder that holds nothing, or the good files of `base`.
        command: what reads it, in that folder.
        base: "run": a run directory `r`; "": nothing.
        hostile: names of which one has to be told where the command refuses.
        refused: it must be refused; else it may also be read within the bounds.
        cold: a process of its own reads it, in which nothing is imported yet.
    """

    name: str
    lay: Callable[[Path], None]
    command: tuple[str, ...]
    base: str = ""
    hostile: tuple[str, ...] = ()
    refused: bool = False
    cold: bool = False


def pipe(path: Path) -> None:
    os.mkfifo(path)


def linked_pipe(path: Path) -> None:
    os.mkfifo(path.with_name("the-pipe"))
    path.symlink_to("the-pipe")


def a_socket(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)  # as a socket's address may be no longer than 107 bytes
    made = socket.socket(socket.AF_UNIX)
    made.bind(f"/proc/self/fd/{folder}/{path.name}")
    made.close()
    os.close(folder)


def zeros_without_end(path: Path) -> None:
    path.symlink_to("/dev/zero")


def folder(path: Path) -> None:
    path.mkdir()


def link_to_nothing(path: Path) -> None:
    path.symlink_to("nothing-there")


def link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def secret(path: Path) -> None:
    path.with_name("victim.txt").write_text(f"{SECRET}\n")
    path.symlink_to("victim.txt")


def empty(path: Path) -> None:
    path.touch()


def terabyte(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


def noise(path: Path) -> None:
    path.write_bytes(random.Random(path.name).randbytes(5000))


def deep(path: Path) -> None:
    path.write_text('{"a":' + "[" * 100_000)


def long_line(path: Path) -> None:
    path.touch()
    with open(path, "r+b") as file:
        file.truncate(700 << 20)
        file.write(b'{"event":"' + b"x" * 100)


FORMS = (
    pipe, linked_pipe, a_socket, zeros_without_end, folder, link_to_nothing, link_to_itself, secret, empty, terabyte,
    noise, deep, long_line,
)  # fmt: skip


def torn(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def bent(path: Path) -> None:
    content, chosen = bytearray(path.read_bytes()), random.Random(path.name)
    for _ in range(max(1, len(content) // 200) if content else 0):
        content[chosen.randrange(len(content))] = chosen.randrange(256)
    path.write_bytes(content)


def formed_data() -> Iterator[Case]:
    """Every file of every source in every form."""
    for source in good.SOURCES:
        for number, name in enumerate(_FILES[source]):
            for form in (*FORMS, torn, bent):
                yield Case(
                    f"{source}-{number}-{form.__name__}",
                    _formed(_source(source), name, form),
                    ("plan", "spec.yaml"),
                    hostile=(Path(name).name, name.split("/")[0]),
                )


_FILES = {
    "hdf5": ["data.h5"],
    "npz": ["data.npz"],
    "npy": ["inputs.npy", "targets.npy"],
    "idx": ["images", "labels"],
    "idx_gz": ["images.gz", "labels.gz"],
    "image_folder": ["pictures/a/0.png", "pictures/b/1.jpeg", "pictures/a/2.png"],
    "tar": ["data.tar", "data.tar.index"],
    "parquet": ["data.parquet"],
    "arrow": ["data.arrow"],
    "zarr2": ["data.zarr/.zgroup", "data.zarr/.zattrs", "data.zarr/inputs/.zarray", "data.zarr/inputs/0.0.0"],
    "zarr3": ["data.zarr/zarr.json", "data.zarr/inputs/zarr.json", "data.zarr/inputs/c/0/0/0"],
    "tokens": ["tokens.npy"],
    "lmdb": ["data.lmdb/data.mdb"],
    "netcdf": ["data.nc"],
}
_RUN_FILES = (
    "journal.jsonl", "run.json", "spec.json", "profile.json", "metrics.csv", ".lock", "status.snapshot",
    "ensemble.json", "checkpoints/a/epoch-00002-step-000000.h5", "checkpoints/a/epoch-00003-step-000000.h5",
)  # fmt: skip
_RUN_COMMANDS = (
    ("status", "r"), ("report", "r"), ("best", "r"), ("compare", "r", "r"), ("predict", "r"),
    ("simulate", "--run", "r", "--policy", "fifo"), ("export", "r", "a", "out.safetensors"),
)  # fmt: skip


def _text(name: str, text: str) -> Callable[[Path], None]:
    def lay(folder: Path) -> None:
        (folder / name).write_text(text)

    return lay


def _all(*steps: Callable[[Path], object]) -> Callable[[Path], None]:
    def lay(folder: Path) -> None:
        for step in steps:
            step(folder)

    return lay


def _source(name: str) -> Callable[[Path], None]:
    def lay(folder: Path) -> None:
        good.write_source(name, folder)

    return lay


def _formed(write: Callable[[Path], object], name: str, form: Callable[[Path], None]) -> Callable[[Path], None]:
    def lay(folder: Path) -> None:
        write(folder)
        path = folder / name
        if form in (torn, bent):
            if path.is_file():
                form(path)
            return
        if path.exists():
            path.unlink()
        form(path)

    return lay


def formed_runs() -> Iterator[Case]:
    """Every file of a run directory in every form, read by every command that reads runs."""
    for name in _RUN_FILES:
        for form in (*FORMS, torn, bent):
            for command in _RUN_COMMANDS:
                lay = _formed(lambda _: None, f"r/{name}", form)
                told = (Path(name).name, name.split("/")[0], "r")
                yield Case(f"run-{name}-{form.__name__}-{command[0]}".replace("/", "-"), lay, command, "run", told)


def formed_plain() -> Iterator[Case]:
    """Traces, rates, specs, recorded jobs and templates in every form."""
    texts: dict[str, tuple[str, tuple[str, ...]]] = {
        "trace.csv": (good.TRACE, ("simulate", "--trace", "trace.csv", "--cluster", "2x2", "--policy", "fifo")),
        "spec.yaml": (good.RUN, ("plan", "spec.yaml")),
        "job.yaml": ("name: c\n", ("add", "r", "job.yaml")),
        "own.j2": ("#!/bin/sh\n", (*_SUBMIT, "--template", "own.j2")),
        "train.py": ("print(1)\n", ("init", "train.py")),
    }
    for name, (text, command) in texts.items():
        for form in (*FORMS, torn, bent):
            if (name, form) == ("train.py", bent) or form is secret:
                continue  # it is a program, by design; and a person who names a file may read it
            lay = _formed(_all(_text(name, text), _spec), name, form)
            yield Case(f"{name}-{form.__name__}", lay, command, "run" if name == "job.yaml" else "", (name,))


_SUBMIT = ("submit", "run.yaml", "--site", "slurm", "--nodes", "1", "--gpus-per-node", "1", "--dry-run")


def _spec(folder: Path) -> None:
    (folder / "run.yaml").write_text(good.RUN)


def _reads(source: str, **arguments: object) -> Callable[[Path], None]:
    def lay(folder: Path) -> None:
        text = good.SPEC.format(name="claims", source=source, arguments=json.dumps(arguments))
        (folder / "spec.yaml").write_text(text)

    return lay


def claims() -> Iterator[Case]:
    """Data that claim more than they hold, that name other files, or that would run code."""
    for lay, source, arguments, name, refused in _CLAIMS:
        name_of_case = f"claim-{source}-{lay.__name__}"
        yield Case(
            name_of_case,
            _all(lay, _reads(source, **arguments)),
            ("plan", "spec.yaml"),
            hostile=(name,),
            refused=refused,
        )


def unallocated(folder: Path) -> None:
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("inputs", (400_000_000, 4), "u1", chunks=(1 << 16, 4))
        file.create_dataset("targets", (400_000_000,), "f8", chunks=(1 << 16,))


def unallocated_inputs(folder: Path) -> None:
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("inputs", (2, 2_000_000_000), "u1", chunks=(1, 1 << 16))
        file["targets"] = np.arange(2)


def huge_chunk(folder: Path) -> None:
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("inputs", (10, 1_600_000_000), "u1", chunks=(1, 1_599_000_000), compression="gzip")
        file["targets"] = np.arange(10)


def packed_targets(folder: Path) -> None:
    with h5py.File(folder / "x.h5", "w") as file:
        file["inputs"] = np.zeros((1, 1), "u1")
        targets = file.create_dataset(
            "targets", (150_000_000,), "f8", chunks=(10_000_000,), compression="gzip", compression_opts=1
        )
        for start in range(0, 150_000_000, 50_000_000):
            targets[start : start + 50_000_000] = 0.0


def external(folder: Path) -> None:
    (folder / "victim.txt").write_text(SECRET * 20)
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("inputs", (16, 4), "u1", external=[("victim.txt", 0, 64)])
        file["targets"] = np.arange(16) % 2


def external_pipe(folder: Path) -> None:
    external(folder)
    (folder / "victim.txt").unlink()
    os.mkfifo(folder / "victim.txt")


def linked_elsewhere(folder: Path) -> None:
    os.mkfifo(folder / "other.h5")
    with h5py.File(folder / "x.h5", "w") as file:
        file["inputs"] = h5py.ExternalLink("other.h5", "/inputs")
        file["targets"] = np.arange(16) % 2


def virtual(folder: Path) -> None:
    os.mkfifo(folder / "other.h5")
    layout = h5py.VirtualLayout((16, 4), "u1")
    layout[:] = h5py.VirtualSource("other.h5", "inputs", (16, 4))
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_virtual_dataset("inputs", layout)
        file["targets"] = np.arange(16) % 2


def zeros_npz(folder: Path) -> None:
    with zipfile.ZipFile(folder / "x.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, shape in (("inputs", (25_000_000, 64)), ("targets", (25_000_000,))):
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
                left = int(np.prod(shape))
                while left:
                    left -= file.write(bytes(min(left, 1 << 24)))


def pickled_npz(folder: Path) -> None:
    np.savez(folder / "x.npz", inputs=np.array([Ran(folder)] * 4, object), targets=np.arange(4))


def pickled_npy(folder: Path) -> None:
    np.save(folder / "inputs.npy", np.array([Ran(folder)] * 4, object))
    np.save(folder / "targets.npy", np.arange(4))


def claiming_npy(folder: Path) -> None:
    with open(folder / "inputs.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (1 << 36, 4)})
    np.save(folder / "targets.npy", np.arange(4))


def _idx_head(*shape: int) -> bytes:
    return struct.pack(">HBB", 0, 8, len(shape)) + struct.pack(f">{len(shape)}I", *shape)


def zeros_idx_gz(folder: Path) -> None:
    with gzip.open(folder / "images.gz", "wb", 1) as file:
        file.write(_idx_head(100_000_000, 4, 4))
        for _ in range(100):
            file.write(bytes(16_000_000))
    (folder / "labels.gz").write_bytes(gzip.compress(_idx_head(100_000_000)))


def claiming_idx(folder: Path) -> None:
    (folder / "images").write_bytes(_idx_head(4_000_000_000, 1000, 1000))
    (folder / "labels").write_bytes(_idx_head(4_000_000_000))


def _tar_head(name: str, size: int, kind: bytes, real: int | None = None) -> bytes:
    head = bytearray(512)
    head[: len(name)] = name.encode()
    head[100:108], head[108:124] = b"0000644\0", b"0000000\0" * 2
    head[124:136], head[136:148], head[156:157], head[257:265] = (
        b"%011o\0" % size,
        b"0" * 11 + b"\0",
        kind,
        b"ustar  \0",
    )
    if real is not None:
        head[386:398], head[398:410], head[483:495] = b"0" * 11 + b"\0", b"%011o\0" % 1, b"%011o\0" % real
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head)


def sparse_tar(folder: Path) -> None:
    data = good.picture("PNG")
    content = _tar_head("a.png", len(data), b"0") + data + bytes(-len(data) % 512)
    content += _tar_head("a.cls", 1, b"S", 1_500_000_000) + b"1" + bytes(511)
    (folder / "x.tar").write_bytes(content + bytes(1024))


def sparse_pax_tar(folder: Path) -> None:
    with tarfile.open(folder / "x.tar", "w", format=tarfile.PAX_FORMAT) as shard:
        for name, content in (("a.png", good.picture("PNG")), ("a.cls", b"1\n0\n1\n" + bytes(506))):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            if name == "a.cls":
                member.pax_headers = {
                    "GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "1500000000",
                    "GNU.sparse.name": "a.cls",
                }  # fmt: skip
            shard.addfile(member, io.BytesIO(content))


def kept_index_that_claims(folder: Path) -> None:
    good.tar(folder)
    zeros_npz(folder)
    (folder / "x.npz").rename(folder / "data.tar.index")


def kept_index_elsewhere(folder: Path) -> None:
    good.tar(folder)
    (folder / "victim.txt").write_text(SECRET)
    (folder / "data.tar.index").symlink_to("victim.txt")


def _png(width: int, height: int) -> bytes:
    def part(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    packer = zlib.compressobj(9)
    row = bytes(1 + width * 3)
    packed = b"".join(packer.compress(row) for _ in range(min(height, 30))) + packer.flush()
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + part(b"IDAT", packed) + part(b"IEND", b"")


def huge_picture(folder: Path) -> None:
    good.image_folder(folder)
    (folder / "pictures" / "a" / "0.png").write_bytes(_png(60_000, 60_000))


def huge_jpeg(folder: Path) -> None:
    good.image_folder(folder)
    content = bytearray(good.picture("JPEG"))
    at = content.index(b"\xff\xc0")
    content[at + 5 : at + 9] = struct.pack(">HH", 65_000, 65_000)
    for path in (folder / "pictures").glob("*/1.jpeg"):
        path.write_bytes(content)


class Ran:
    """Writes the file RAN where it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "RAN")

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (self.path, "a")


_META2 = {
    "zarr_format": 2,
    "shape": [20],
    "chunks": [10],
    "dtype": "<i4",
    "compressor": None,
    "fill_value": 0,
    "order": "C",
}


def _group2(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".zgroup").write_text('{"zarr_format": 2}')


def zarr_pickles(folder: Path) -> None:
    _group2(folder / "x.zarr")
    chunk = pickle.dumps([Ran(folder), *[0] * 9, "|O", (10,)], protocol=5)
    for name in ("inputs", "targets"):
        (folder / "x.zarr" / name).mkdir()
        meta = {**_META2, "filters": [{"id": "pickle", "protocol": 5}]}
        (folder / "x.zarr" / name / ".zarray").write_text(json.dumps(meta))
        for part in "01":
            (folder / "x.zarr" / name / part).write_bytes(chunk)


def zarr_fill(folder: Path) -> None:
    _group2(folder / "x.zarr")
    for name in ("inputs", "targets"):
        (folder / "x.zarr" / name).mkdir()
        meta = {**_META2, "shape": [2_000_000_000], "chunks": [2_000_000_000], "dtype": "<f8", "filters": None}
        (folder / "x.zarr" / name / ".zarray").write_text(json.dumps(meta))


def _much_of_zlib() -> bytes:
    packer = zlib.compressobj(1)
    return b"".join(packer.compress(bytes(1 << 24)) for _ in range(90)) + packer.flush()


def zarr_that_unpacks(folder: Path) -> None:
    _group2(folder / "x.zarr")
    content = _much_of_zlib()
    for name in ("inputs", "targets"):
        (folder / "x.zarr" / name).mkdir()
        meta = {**_META2, "compressor": {"id": "zlib", "level": 1}, "filters": None}
        (folder / "x.zarr" / name / ".zarray").write_text(json.dumps(meta))
        for part in "01":
            (folder / "x.zarr" / name / part).write_bytes(content)


def chunks_that_unpack(folder: Path) -> None:
    content = _much_of_zlib()
    with h5py.File(folder / "x.h5", "w") as file:
        inputs = file.create_dataset("inputs", (20, 4), "i4", chunks=(10, 4), compression="gzip")
        for start in (0, 10):
            inputs.id.write_direct_chunk((start, 0), content)
        file["targets"] = np.arange(20) % 2


def zarr_above(folder: Path) -> None:
    _group2(folder / "x.zarr")
    zarr_pickles(folder / "other")
    _group2(folder / "other" / "x.zarr")


def lists_of_lists(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = pa.ListArray.from_arrays(np.arange(41, dtype="i4") * 1_000_000, np.zeros(40_000_000, "f4"))
    table = pa.table({"x": rows, "label": [0] * 40})
    for _ in range(2):
        table = pa.concat_tables([table, table])
    pq.write_table(table, folder / "x.parquet", compression="zstd", row_group_size=1000)


def no_lmdb(folder: Path) -> None:
    (folder / "x.lmdb").mkdir()
    (folder / "x.lmdb" / "data.mdb").write_bytes(random.Random(1).randbytes(40_960))


_ABOVE: dict[str, object] = {"inputs": "../other/x.zarr/inputs", "targets": "../other/x.zarr/targets"}
_H5: dict[str, object] = {"path": "x.h5"}
_ZARR: dict[str, object] = {"inputs": "inputs", "targets": "targets"}
_CLAIMS: tuple[tuple[Callable[[Path], None], str, dict[str, object], str, bool], ...] = (
    (unallocated, "hdf5", _H5, "x.h5", True),
    (unallocated_inputs, "hdf5", _H5, "x.h5", True),
    (huge_chunk, "hdf5", _H5, "x.h5", True),
    (packed_targets, "hdf5", _H5, "x.h5", True),
    (external, "hdf5", _H5, "x.h5", True),
    (external_pipe, "hdf5", _H5, "x.h5", True),
    (linked_elsewhere, "hdf5", _H5, "x.h5", True),
    (virtual, "hdf5", _H5, "x.h5", True),
    (unallocated, "netcdf", {"path": "x.h5", **_ZARR}, "x.h5", False),
    (zeros_npz, "numpy", {"path": "x.npz"}, "x.npz", False),
    (pickled_npz, "numpy", {"path": "x.npz"}, "x.npz", True),
    (pickled_npy, "numpy", {"inputs": "inputs.npy", "targets": "targets.npy"}, "inputs.npy", True),
    (claiming_npy, "numpy", {"inputs": "inputs.npy", "targets": "targets.npy"}, "inputs.npy", True),
    (zeros_idx_gz, "idx", {"images": "images.gz", "labels": "labels.gz"}, ".gz", True),
    (claiming_idx, "idx", {"images": "images", "labels": "labels"}, "images", True),
    (sparse_tar, "tar", {"path": "x.tar"}, "x.tar", True),
    (sparse_pax_tar, "tar", {"path": "x.tar"}, "x.tar", True),
    (kept_index_that_claims, "tar", {"path": "data.tar"}, "data.tar", False),
    (kept_index_elsewhere, "tar", {"path": "data.tar"}, "data.tar", False),
    (huge_picture, "image_folder", {"path": "pictures"}, "0.png", False),
    (huge_jpeg, "image_folder", {"path": "pictures"}, "1.jpeg", False),
    (zarr_pickles, "zarr", {"path": "x.zarr", **_ZARR}, "x.zarr", True),
    (zarr_that_unpacks, "zarr", {"path": "x.zarr", **_ZARR}, "x.zarr", False),
    (chunks_that_unpack, "hdf5", _H5, "x.h5", True),
    (zarr_fill, "zarr", {"path": "x.zarr", **_ZARR}, "x.zarr", True),
    (zarr_above, "zarr", {"path": "x.zarr", **_ABOVE}, "x.zarr", True),
    (lists_of_lists, "parquet", {"path": "x.parquet", "inputs": "x", "targets": "label"}, "x.parquet", False),
    (no_lmdb, "lmdb", {"path": "x.lmdb"}, "x.lmdb", True),
)  # fmt: skip


def specs() -> Iterator[Case]:
    """Specs that ask for what no machine has, or that grow when they are read."""
    odd = {
        "devices": good.RUN + "rehearse: {cluster: [300000000]}\n",
        "per-node": good.RUN.replace("device: cpu", "devices_per_node: [300000000], device: cpu"),
        "trainers": good.RUN.replace("trainers: 1", "trainers: 1000000000"),
        "preprocessors": good.RUN.replace("preprocessors: 1", "preprocessors: 1000000000"),
        "workers": good.RUN.replace("defaults: {", "defaults: {virtual_workers: 1000000000, "),
        "epochs": good.RUN.replace("{epochs: 2}", "{epochs: 1000000000000}"),
        "batch": good.RUN.replace("defaults: {", "defaults: {batch_size: 100000000000, "),
        "widths": good.RUN.replace("[8]", "[1000000000, 1000000000]"),
        "subset": good.RUN.replace("subset: 64", "subset: 100000000000000"),
        "bomb": "a: &a [x,x,x,x,x,x,x,x,x]\n"
        + "".join(f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(9)),
        "deep": "[" * 50_000,
        "many": "a:\n" + "- a\n" * 3_000_000,
        "many-maps": "a: [" + "{}," * 4_000_000 + "]\n",
        "python": "!!python/object/apply:os.system ['touch RAN']\n",
    }
    for name, text in odd.items():
        yield Case(f"spec-{name}", _text("spec.yaml", text), ("plan", "spec.yaml"), hostile=("",))
    for name, shape in (("wide", "999999999x8"), ("deep", "2x999999999"), ("long", "2x2," * 100_000 + "2x2")):
        command = ("simulate", "--trace", "trace.csv", "--cluster", shape, "--policy", "fifo")
        yield Case(f"cluster-{name}", _text("trace.csv", good.TRACE), command, hostile=("",))
    rows = {
        "devices": "a,0,1000000000,m,32,100\n",
        "duration": "a,0,1,m,32,1e308\n",
        "arrival": "a,1e300,1,m,32,100\nb,0,1,m,32,5\n",
        "batch": "a,0,1,m,1e30,100\n",
        "name": f"{'a' * 10_000_000},0,1,m,32,100\n",
    }
    for name, row in rows.items():
        text = good.TRACE.splitlines()[0] + "\n" + row
        command = ("simulate", "--trace", "trace.csv", "--cluster", "2x2", "--policy", "fifo")
        yield Case(f"trace-{name}", _text("trace.csv", text), command, hostile=("",))


def code_beside() -> Iterator[Case]:
    """Modules beside a spec that only names what is built in."""
    names = ("sympy", "PIL", "cv2", "pyarrow", "psutil", "rich", "h5py", "yaml", "torch", "numpy", "scipy", "plotly")

    def lay(folder: Path) -> None:
        good.write_source("hdf5", folder)
        _spec(folder)
        (folder / "trace.csv").write_text(good.TRACE)
        for name in names:
            (folder / f"{name}.py").write_text("open('RAN', 'a').write(__name__)\nraise ImportError(__name__)\n")

    commands: dict[str, tuple[str, ...]] = {
        "plan": ("plan", "spec.yaml"),
        "plan-run": ("plan", "run.yaml"),
        "convert": ("convert", "data.h5", "out.h5"),
        "submit": _SUBMIT,
        "simulate": ("simulate", "--trace", "trace.csv", "--cluster", "2x2", "--policy", "fifo"),
        "status": ("status", "r"),
        "report": ("report", "r"),
        "predict": ("predict", "r"),
        "export": ("export", "r", "a", "out.safetensors"),
    }
    for name, command in commands.items():
        yield Case(f"beside-{name}", lay, command, "run", ("",), cold=True)


def template(folder: Path) -> None:
    _spec(folder)
    (folder / "own.j2").write_text(
        "#!/bin/sh\n{{ cycler.__init__.__globals__.os.popen('touch RAN').read() }}\n"
        "{{ ''.__class__.__mro__[1].__subclasses__() }}\n"
    )


def sealed_elsewhere(folder: Path, target: str = "victim.txt") -> None:
    """A checkpoint one of whose arrays is stored in another file, with a right seal: anybody can compute one."""
    path, body_bytes, told = _unsealed(folder)
    name = next(name for name in told["arrays"] if "parameters" in name)
    body = folder / "body.h5"
    body.write_bytes(body_bytes)
    with h5py.File(body, "r+") as file:
        del file["state"][name.lstrip("/")]
        file["state"].create_dataset(name.lstrip("/"), (64,), "u1", external=[(target, 0, 64)])
    data = body.read_bytes() + b"V"
    body.unlink()
    arrays = {**told["arrays"], name: ["|V1", [1], len(data) - 1, _digest(b"V")]}
    others, at = hashlib.blake2b(digest_size=32), 0
    for kind, shape, offset, _ in sorted(arrays.values(), key=lambda each: each[2]):
        size = int(np.prod(shape)) * np.dtype(kind).itemsize
        if size:
            others.update(data[at:offset])
            at = offset + size
    others.update(data[at:])
    _seal(path, data, {**told, "others": others.hexdigest(), "arrays": arrays})


def sealed_over_a_secret(folder: Path) -> None:
    (folder / "victim.txt").write_text(SECRET * 20)
    sealed_elsewhere(folder)


def sealed_over_a_pipe(folder: Path) -> None:
    os.mkfifo(folder / "victim.txt")
    sealed_elsewhere(folder)


def sealed_claim(folder: Path) -> None:
    """A checkpoint whose index claims an array of two terabytes."""
    path, body, told = _unsealed(folder)
    name = next(iter(told["arrays"]))
    told["arrays"][name][1] = [1 << 38]
    _seal(path, body, told)


SEAL = b"\nfleet index blake2b "


def _unsealed(folder: Path) -> tuple[Path, bytes, dict[str, Any]]:
    """A checkpoint's path, its bytes before the index, and the index."""
    path = folder / "r/checkpoints/a/epoch-00002-step-000000.h5"
    raw = path.read_bytes()
    end = raw.rfind(SEAL)
    length = int(raw[end + len(SEAL) :][:16], 16)
    return path, raw[: end - length], json.loads(raw[end - length : end])


def _seal(path: Path, body: bytes, told: Mapping[str, Any]) -> None:
    text = json.dumps(told).encode()
    path.write_bytes(body + text + SEAL + f"{len(text):016x} {_digest(text)}".encode())


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=32).hexdigest()


def checkpoints() -> Iterator[Case]:
    """Checkpoints whose seal is right and whose content is not."""
    name = "epoch-00002-step-000000.h5"
    for lay in (sealed_over_a_secret, sealed_over_a_pipe, sealed_claim):
        for command in (("compare", f"r/checkpoints/a/{name}", f"r/checkpoints/b/{name}"), ("predict", "r")):
            yield Case(f"{lay.__name__}-{command[0]}", lay, command, "run", (name,), command[0] == "compare")


def laid_links() -> Iterator[Case]:
    """Links where a command will write."""
    for name, command in (
        ("r/report.html", ("report", "r")),
        ("out.h5", ("convert", "data.npz", "out.h5")),
        ("out.h5.partial", ("convert", "data.npz", "out.h5")),
        ("out.h5.partial.progress", ("convert", "data.npz", "out.h5")),
        ("out.safetensors", ("export", "r", "a", "out.safetensors")),
        ("train.yaml", ("init", "train.py")),
        ("data.tar.index", ("plan", "tar.yaml")),
    ):

        def lay(folder: Path, name: str = name) -> None:
            (folder / "victim.txt").write_text(SECRET)
            good.npz(folder)
            good.tar(folder)
            (folder / "train.py").write_text("print(1)\n")
            text = good.SPEC.format(name="tar", source="tar", arguments='{"path": "data.tar"}')
            (folder / "tar.yaml").write_text(text)
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(folder / "victim.txt")

        yield Case(f"laid-{name}".replace("/", "-"), lay, command, "run", ("",))


def cases() -> list[Case]:
    """All of them."""
    own = (_SUBMIT[0], "run.yaml", *_SUBMIT[2:], "--template", "own.j2")
    groups = (formed_data, formed_runs, formed_plain, claims, specs, code_beside, checkpoints, laid_links)
    return [*(case for group in groups for case in group()), Case("template", template, own, "", ("own.j2",), True)]
