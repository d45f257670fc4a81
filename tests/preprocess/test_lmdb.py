"""The source `lmdb` gives the images and arrays of an LMDB file, and says plainly what is wrong with one."""

from __future__ import annotations

import io
import multiprocessing
import pickle
from collections.abc import Mapping
from pathlib import Path

import lmdb
import numpy as np
import pytest

from preprocess import SourceError, open_source
from preprocess.conversion.convert import convert
from tests.preprocess.support.image_files import encoded, smooth

FILES = [encoded(smooth(i), "jpg") for i in range(12)]


def write(path: Path, values: Mapping[str, bytes], subdir: bool = True) -> str:
    with lmdb.open(str(path), map_size=1 << 24, subdir=subdir) as environment, environment.begin(write=True) as writing:
        for key, value in values.items():
            writing.put(key.encode(), value)
    return str(path)


def npy(array: object) -> bytes:
    file = io.BytesIO()
    np.save(file, np.asarray(array))
    return file.getvalue()


@pytest.mark.parametrize("subdir", [True, False])
def test_images_in_the_order_of_their_numbers(tmp_path: Path, subdir: bool) -> None:
    values = {f"{i}": content for i, content in enumerate(FILES)} | {
        f"{i}-label": str(i % 3).encode() for i in range(12)
    }
    path = write(tmp_path / "a", values | {"num-samples": b"12"}, subdir)
    source = open_source("lmdb", {"path": path})
    assert source.layout.input_shape == (20, 24, 3) and source.layout.target_dtype == "int64" and len(source) == 12
    found = [source.read(i) for i in range(12)]
    assert [bytes(content) for content, _ in found] == FILES and [int(n) for _, n in found] == [
        i % 3 for i in range(12)
    ]
    other = open_source("lmdb", {"path": path}, [0, 3])  # of the same file, in the same process
    assert bytes(other.read(2)[0]) == FILES[2] and bytes(source.read(2)[0]) == FILES[2]
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=lambda: queue.put(bytes(source.read(5)[0])))
    child.start()
    assert queue.get() == FILES[5]
    child.join()
    assert bytes(pickle.loads(pickle.dumps(source)).read(4)[0]) == FILES[4]
    if subdir:
        convert(path, tmp_path / "a.h5", workers=2)
        kept = open_source("hdf5", {"path": str(tmp_path / "a.h5")})
        assert [bytes(kept.read(i)[0]) for i in range(12)] == FILES


def test_arrays_names_and_targets_elsewhere(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    inputs, targets = rng.normal(size=(5, 3, 4)).astype(np.float32), rng.normal(size=(5, 2))
    values = {f"image-{i:09}": npy(inputs[i]) for i in range(5)} | {f"y-{i:09}": npy(targets[i]) for i in range(5)}
    values |= {f"name-{i:09}": ("cat", "dog")[i % 2].encode() for i in range(5)}
    path = write(tmp_path / "a", values)
    np.save(tmp_path / "y.npy", targets)
    np.savez(tmp_path / "same.npz", inputs=inputs, targets=targets)
    same = open_source("numpy", {"path": str(tmp_path / "same.npz")})
    for where in ("y-{}", str(tmp_path / "y.npy")):
        found = open_source("lmdb", {"path": path, "inputs": "image-{}", "targets": where})
        assert found.layout == same.layout
        assert all(np.array_equal(found.read(i)[n], same.read(i)[n]) for i in range(5) for n in (0, 1))
    named = open_source("lmdb", {"path": path, "inputs": "image-{}", "targets": "name-{}", "classes": ["dog", "cat"]})
    assert [int(named.read(i)[1]) for i in range(5)] == [1, 0, 1, 0, 1]


def test_mistakes_are_told(tmp_path: Path) -> None:
    def refused(text: str, path: object = tmp_path / "a", **arguments: object) -> None:
        with pytest.raises(SourceError, match=text) as caught:
            source = open_source("lmdb", {"path": str(path), **arguments})
            assert [source.read(i) for i in range(len(source))]
        assert "\n" not in str(caught.value)

    refused("there is no such file or folder")
    write(tmp_path / "a", {"0": FILES[0], "1": FILES[1], "0-label": b"1"})
    refused("has no key '1-label'; write a target for each sample")
    refused("has no key like 'x{}', {} being digits", inputs="x{}")
    refused("inputs says how keys are called", inputs="x")
    np.save(tmp_path / "z.npy", np.zeros(2))
    refused("numbers its classes; leave out classes", targets=str(tmp_path / "z.npy"), classes=["x"])
    np.save(tmp_path / "y.npy", np.zeros(3))
    refused("has 3 targets, and .* has 2 samples", targets=str(tmp_path / "y.npy"))
    refused("there is no such file", targets="w.npy")
    (tmp_path / "other.mdb").write_bytes(b"no lmdb" * 2000)
    refused("it cannot be read .*; copy it anew", tmp_path / "other.mdb")
    (tmp_path / "empty").mkdir()
    refused("data.mdb': there is no such file", tmp_path / "empty")


def test_a_file_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    values = {f"{i}": bytes(9000) for i in range(40)} | {f"{i}-label": b"1" for i in range(40)}
    file = Path(write(tmp_path / "a", values)) / "data.mdb"
    whole = file.read_bytes()
    for share in (0.1, 0.5):
        file.write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(SourceError, match="ends by SIGBUS over it; convert it anew|cannot be read"):
            open_source("lmdb", {"path": str(tmp_path / "a")})
