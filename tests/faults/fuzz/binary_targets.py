"""Fuzzed readers of binary files: HDF5 data, checkpoints as they are and sealed anew, tar shards and their indexes."""

from __future__ import annotations

import functools
import io
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from torch import nn

import trainers
from preprocess import SourceError, open_source
from preprocess.conversion.convert import convert
from preprocess.samples.errors import DecodeError
from preprocess.sources.hdf5 import index_digest
from preprocess.sources.tar_shards import TarFields, shard_index
from tests.faults.fuzz.targets import Target
from tests.preprocess.support.image_files import encoded, make_shard, smooth
from tests.trainers.support.seals import apart, sealed, sealed_without_index
from trainers import Checkpoint, CheckpointError, Group, Trainer
from trainers.repeatable.determinism import PinsDiffer
from trainers.state.tree import flatten


class Small:
    """A task with a buffer, moments, dropout and a schedule."""

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout(0.5))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), 0.1)

    def scheduler(self, optimizer: torch.optim.Optimizer) -> Any:
        return torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 3])

    def dataset(self, train: bool) -> Any:
        return None


def _batches() -> list[Any]:
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(4, 2, generator=generator), torch.tensor([0, 1, 0, 1])) for _ in range(2)]


@functools.cache
def _trained() -> Trainer:
    trainer = Trainer(Small(), 2, Group.alone())
    trainer.step(_batches())
    return trainer


@functools.cache
def _saved() -> Checkpoint:
    saved = _trained().snapshot()
    assert saved is not None
    return saved


def _checkpoint_files(folder: Path) -> Sequence[bytes]:
    return [trainers.write(folder / "epoch-00000-step-000001.h5", _saved()).path.read_bytes()]


def _contents(folder: Path) -> Sequence[bytes]:
    return [apart(content)[0] for content in _checkpoint_files(folder)]


def _checkpoint_indexes(folder: Path) -> Sequence[bytes]:
    return [apart(content)[1] for content in _checkpoint_files(folder)]


def _fields(folder: Path) -> Sequence[bytes]:
    """A checkpoint as text: what is said of its tree, and the types and shapes of its arrays."""
    structure, arrays = flatten(_saved().as_tree())
    kinds = {path: [array.dtype.str, list(array.shape)] for path, array in arrays.items()}
    return [json.dumps({"tree": json.loads(structure), "arrays": kinds, "format": 2}).encode()]


def _restored(path: Path) -> Any:
    """Read a checkpoint and take it over, as a job does; an optimizer's step may then fail, and that job with it."""
    saved = trainers.read(path)
    trainer = Trainer(Small(), 2, Group.alone())
    trainer.restore(saved)
    return trainer.epoch, trainer.steps


def _checkpoint(content: bytes, folder: Path) -> Any:
    path = folder / "epoch-00000-step-000001.h5"
    path.write_bytes(content)
    assert trainers.latest_good(folder)[1] or trainers.latest_good(folder)[0]
    return _restored(path)


def _checkpoint_with_index(index: bytes, folder: Path) -> Any:
    (content,) = _contents(folder)
    return _checkpoint(sealed(content, index), folder)


def _checkpoint_of_fields(content: bytes, folder: Path) -> Any:
    """A checkpoint that holds what the text says, as if it had been written so."""
    path, (_, arrays) = folder / "epoch-00000-step-000001.h5", flatten(_saved().as_tree())
    try:
        said = json.loads(content)
        with h5py.File(path, "w") as file:
            file.attrs["format"] = said["format"]
            file.create_dataset("structure", data=np.frombuffer(json.dumps(said["tree"]).encode(), np.uint8))
            for name, (dtype, shape) in said["arrays"].items():
                array = arrays.get(name)
                same = array is not None and [array.dtype.str, list(array.shape)] == [dtype, shape]
                # h5py's own guess of chunks computes for long where a shape is odd, and no reader guesses.
                kept = {"data": array} if same else {"shape": tuple(shape), "dtype": dtype, "chunks": _chunks(shape)}
                file.create_dataset(f"state/{name.lstrip('/')}", **kept)
    except Exception as error:  # no such file can be written
        raise CheckpointError(path, f"not made: {error!r}", "") from error
    path.write_bytes(sealed_without_index(path.read_bytes()))
    return _restored(path)


def _chunks(shape: Sequence[int]) -> tuple[int, ...] | None:
    return tuple(max(1, min(length, 16)) for length in shape) or None


def _hdf5_files(folder: Path) -> Sequence[bytes]:
    inputs = np.arange(4 * 6, dtype=np.uint8).reshape(4, 3, 2)
    np.savez(folder / "a.npz", inputs=inputs, targets=np.arange(4))
    convert(folder / "a.npz", folder / "a.h5")
    with h5py.File(folder / "b.h5", "w") as file:
        file["inputs"], file["targets"] = inputs, np.arange(4)
    return [(folder / name).read_bytes() for name in ("a.h5", "b.h5")]


def _hdf5(content: bytes, folder: Path) -> Any:
    path = folder / "data.h5"
    path.write_bytes(content)
    return _samples("hdf5", path)


def _hdf5_index(content: bytes, folder: Path) -> Any:
    """A converted file whose index says what the text says, with the right digest."""
    path = folder / "data.h5"
    try:
        _write_index(path, json.loads(content))
    except Exception as error:  # no such file can be written
        raise SourceError("x", f"not made: {error!r}", "") from error
    return _samples("hdf5", path)


def _write_index(path: Path, said: dict[str, Any]) -> None:
    with h5py.File(path, "w") as file:
        file.attrs["format"], file.attrs["version"] = "preprocess samples", 1
        split = file.create_group("train")
        index = {name: np.array(said[name]) for name in ("offsets", "labels", "crc32") if name in said}
        samples = {name: np.array(said[name], np.uint8) for name in ("bytes", "inputs") if name in said}
        for name, value in (*index.items(), *samples.items()):
            split[name] = value
        split.attrs.update(said["attributes"])
        attributes: dict[str, Any] = {name: plain(value) for name, value in split.attrs.items()}
        split.attrs["digest"] = index_digest("train", {name: split[name][()] for name in index}, None, attributes)


def plain(value: Any) -> Any:
    """As JSON has it."""
    return value.tolist() if hasattr(value, "tolist") else value


def _samples(kind: str, path: Path, **arguments: Any) -> Any:
    """The first samples of a source, as the preprocessor reads them."""
    source = open_source(kind, {"path": str(path), **arguments})
    layout = source.layout
    return layout, [source.read(index) for index in range(min(len(source), 3))]


def _tars(folder: Path) -> Sequence[bytes]:
    samples = [(f"s{i}", encoded(smooth(i), "jpg"), {"label": "cat"} if i else {"label": "dog"}) for i in range(2)]
    numbered = [(f"s{i}", encoded(smooth(i), "jpg"), i) for i in range(2)]
    for name, content in (("a.tar", samples), ("b.tar", numbered)):
        make_shard(folder / name, content)
    return [(folder / name).read_bytes() for name in ("a.tar", "b.tar")]


def _tar(content: bytes, folder: Path) -> Any:
    path = folder / "a.tar"
    path.write_bytes(content)
    found = _samples("tar", path)
    assert repr(_samples("tar", path)) == repr(found), "the kept index says the same"
    return found


@functools.cache
def _shard() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return _tars(Path(folder))[1]


def _indexes(folder: Path) -> Sequence[bytes]:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "a.tar"
        path.write_bytes(_shard())
        index = shard_index(str(path), TarFields())
    arrays = {"offsets": index.offsets, "sizes": index.sizes, "labels": index.labels}
    return [json.dumps({"dtype": "<i8", **{name: array.tolist() for name, array in arrays.items()}}).encode()]


def _tar_index(content: bytes, folder: Path) -> Any:
    """A kept index that belongs to the shard, and says what the text says."""
    path = folder / "a.tar"
    path.write_bytes(_shard())
    status = os.stat(path)
    try:
        said = json.loads(content)
        arrays = {name: np.array(said[name]) for name in ("offsets", "sizes", "labels") if name in said}
        arrays = {name: array.astype(said["dtype"]) if name != "labels" else array for name, array in arrays.items()}
        stamp = json.dumps([said.get("version", 2), status.st_size, status.st_mtime_ns, "label", None, None])
        buffer = io.BytesIO()
        np.savez(buffer, stamp=np.array(stamp), allow_pickle=False, **arrays)
    except Exception as error:
        raise SourceError("x", f"not made: {error!r}", "") from error
    Path(f"{path}.index").write_bytes(buffer.getvalue())
    return _samples("tar", path)


def _index_files(folder: Path) -> Sequence[bytes]:
    (folder / "a.tar").write_bytes(_shard())
    open_source("tar", {"path": str(folder / "a.tar")})
    return [(folder / "a.tar.index").read_bytes()]


def _tar_index_file(content: bytes, folder: Path) -> Any:
    path = folder / "a.tar"
    path.write_bytes(_shard())
    Path(f"{path}.index").write_bytes(content)
    return _samples("tar", path)


INDEX = '{"labels": [0, 1], "crc32": [1, 2], "bytes": [1, 2, 3, 4], "offsets": [0, 1, 4], '
INDEX += '"attributes": {"image_shape": [2, 3], "channels": 3}}'
REFUSED = (SourceError, DecodeError)

TARGETS = (
    Target("checkpoint", _checkpoint_files, _checkpoint, (CheckpointError, PinsDiffer)),
    Target(
        "checkpoint sealed anew",
        _contents,
        lambda content, folder: _checkpoint(sealed_without_index(content), folder),
        (CheckpointError, PinsDiffer),
    ),
    Target("checkpoint index", _checkpoint_indexes, _checkpoint_with_index, (CheckpointError, PinsDiffer)),
    Target("checkpoint fields", _fields, _checkpoint_of_fields, (CheckpointError, PinsDiffer)),
    Target("hdf5", _hdf5_files, _hdf5, REFUSED),
    Target("hdf5 index", lambda folder: [INDEX.encode()], _hdf5_index, REFUSED),
    Target("tar", _tars, _tar, REFUSED),
    Target("tar index", _indexes, _tar_index, REFUSED),
    Target("tar index file", _index_files, _tar_index_file, REFUSED),
)
