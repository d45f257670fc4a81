"""The sources `zarr` and `netcdf` give windows of time series, and say plainly what is wrong."""

from __future__ import annotations

import json
import multiprocessing
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr

from preprocess import SourceError, open_source
from preprocess.conversion.convert import convert

STEPS = 20
KINDS = ("zarr 2", "zarr 3", "netcdf", "netcdf in one piece")
PACKED = {"scale_factor": 0.5, "add_offset": 10.0, "_FillValue": -100}


def variables() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    t, u = (rng.normal(size=(STEPS, 4, 5)).astype(np.float32) for _ in range(2))
    packed = rng.integers(-100, 100, (STEPS, 4, 5)).astype(np.int16)
    packed[7, 0, 0] = -100
    return {
        "t": t,
        "u": u,
        "packed": packed,
        "index": np.arange(STEPS, dtype=np.float64),
        "state": np.arange(STEPS) % 3,
    }


def written(form: str, folder: Path, arrays: Mapping[str, np.ndarray] | None = None) -> tuple[str, str]:
    """The source that reads the variables, and its path."""
    arrays = variables() if arrays is None else arrays
    if form.startswith("netcdf"):
        with h5py.File(folder / "a.nc", "w") as file:
            for name, values in arrays.items():
                options = (
                    {}
                    if "piece" in form
                    else {"chunks": (min(6, len(values)), *values.shape[1:]), "compression": "gzip"}
                )
                file.create_dataset(name, data=values, **options)
            if "packed" in file:
                file["packed"].attrs.update({key: np.array([value]) for key, value in PACKED.items()})
        return "netcdf", str(folder / "a.nc")
    version = int(form[-1])
    if zarr.__version__.startswith("2") and version == 3:
        pytest.skip("zarr 2 writes no format 3")
    written_as: dict[str, Any] = {} if zarr.__version__.startswith("2") else {"zarr_format": version}
    group = zarr.open_group(str(folder / "a.zarr"), mode="w", **written_as)
    create = getattr(group, "create_array", None) or group.create_dataset  # of zarr 3, or 2
    for name, values in arrays.items():
        array = create(name, shape=values.shape, chunks=(min(6, len(values)), *values.shape[1:]), dtype=values.dtype)
        array[...] = values
    if "packed" in arrays:
        group["packed"].attrs.update(PACKED)
    return "zarr", str(folder / "a.zarr")


@pytest.mark.parametrize("form", KINDS)
def test_windows_are_those_of_numpy(form: str, tmp_path: Path) -> None:
    kind, path = written(form, tmp_path)
    arrays = variables()
    source = open_source(
        kind, {"path": path, "inputs": ["t", "u"], "targets": "index", "window": 3, "lead": 2, "stride": 2}
    )
    assert source.layout.input_shape == (6, 4, 5) and source.layout.target_shape == () and len(source) == 8
    for i in range(8):
        both = np.stack([arrays["t"], arrays["u"]], 1)[2 * i : 2 * i + 3].reshape(6, 4, 5)
        image, target = source.read(i)
        assert np.array_equal(image, both) and image.dtype == np.float32 and target == 2 * i + 2 + 2
    unpacked = np.where(arrays["packed"] == -100, -1, arrays["packed"] * 0.5 + 10).astype(np.float32)
    given = {"path": path, "inputs": "packed", "targets": ["t", "packed"], "window": 2, "target_window": 2, "fill": -1}
    later = open_source(kind, given)
    assert later.layout.target_shape == (4, 4, 5) and len(later) == STEPS - 3
    for i in range(len(later)):
        image, target = later.read(i)
        assert np.array_equal(image, unpacked[i : i + 2]) and np.array_equal(target[1::2], unpacked[i + 2 : i + 4])
    now = open_source(kind, {"path": path, "inputs": "t", "targets": "state", "lead": 0, "dtype": "float64"})
    assert len(now) == STEPS and now.layout.input_dtype == "float64"
    narrow = open_source(kind, {"path": path, "inputs": "t", "targets": "t", "cache": 0})
    assert all(np.array_equal(narrow.read(i)[1], arrays["t"][i + 1]) for i in (18, 0, 9))


@pytest.mark.parametrize("form", KINDS)
def test_other_processes_read_the_same(form: str, tmp_path: Path) -> None:
    kind, path = written(form, tmp_path)
    wanted = variables()["t"][5:6]
    source = open_source(kind, {"path": path, "inputs": "t", "targets": "index"})
    source.read(17)
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=lambda: queue.put(source.read(5)[0]))
    child.start()
    assert np.array_equal(queue.get(), wanted)
    child.join()
    assert np.array_equal(pickle.loads(pickle.dumps(source)).read(5)[0], wanted)


@pytest.mark.parametrize("form", ["zarr 2", "netcdf"])
def test_mistakes_are_told(form: str, tmp_path: Path) -> None:
    kind, path = written(form, tmp_path)

    def refused(text: str, **arguments: Any) -> None:
        with pytest.raises(SourceError, match=text) as caught:
            source = open_source(kind, {"path": path, "inputs": "t", "targets": "index", **arguments})
            assert [source.read(i) for i in range(len(source))]
        assert "\n" not in str(caught.value)

    refused("holds no such (array|variable); did you mean 'packed'", inputs="pack")
    refused("names a variable, or a list of them", inputs=[])
    refused(r"a step of it is \(\), one of 't' is \(4, 5\); put variables of one grid together", inputs=["t", "index"])
    refused("spans 31 steps, and .* has 20; make window, lead or target_window smaller", window=30)
    refused("lead is a whole number of steps, 0 or more", lead=-1)
    refused("stride is a whole number of steps, 1 or more", stride=0)
    refused("values of 'packed' are missing; say what they become, such as fill: 0", inputs="packed")
    refused("dtype is a number's", dtype="words")
    refused("there is no such f", path=str(tmp_path / "other"))
    short = tmp_path / "short"
    short.mkdir()
    _, path = written(form, short, {"t": np.zeros((4, 2)), "index": np.zeros(3)})
    refused(r"different numbers of steps \(t: 4, index: 3\)")


def test_files_that_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "old.nc").write_bytes(b"CDF\x01" + bytes(100))
    with pytest.raises(SourceError, match="classic format, and only NetCDF-4 is read; convert it: nccopy -k netCDF-4"):
        open_source("netcdf", {"path": str(tmp_path / "old.nc"), "inputs": "t", "targets": "u"})
    (tmp_path / "bad.nc").write_bytes(b"no hdf5" * 99)
    with pytest.raises(SourceError, match="not a readable HDF5 file"):
        open_source("netcdf", {"path": str(tmp_path / "bad.nc"), "inputs": "t", "targets": "u"})
    (tmp_path / "empty.zarr").mkdir()
    with pytest.raises(SourceError, match="cannot be read .*; give the folder of a Zarr group"):
        open_source("zarr", {"path": str(tmp_path / "empty.zarr"), "inputs": "t", "targets": "u"})


def test_zarr_arrays_that_are_damaged_or_run_code(tmp_path: Path) -> None:
    _, path = written("zarr 2", tmp_path)
    given = {"path": path, "inputs": "t", "targets": "index"}
    chunk = Path(path, "t", "0.0.0")
    whole = chunk.read_bytes()
    chunk.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SourceError, match="has [0-9]+ bytes, and should have [0-9]+ bytes; copy it anew"):
        open_source("zarr", given).read(0)
    chunk.write_bytes(whole)
    metadata = Path(path, "t", ".zarray")
    said = json.loads(metadata.read_text())
    metadata.write_text(
        json.dumps(said | {"filters": [{"id": "pickle", "protocol": 5}]}).replace("pickle", "\\u0070ickle")
    )
    with pytest.raises(SourceError, match="codec .pickle., which is none of those that hold numbers"):
        open_source("zarr", given)
    metadata.write_text("{")
    with pytest.raises(SourceError, match="it is not JSON"):
        open_source("zarr", given)


def test_conversion(tmp_path: Path) -> None:
    arrays = variables()
    for form in ("zarr 2", "netcdf"):
        kind, path = written(form, tmp_path)
        arguments = {"images": "t", "labels": "state", "window": 2}
        convert(path, tmp_path / f"{kind}.h5", arguments=arguments, workers=1)
        found = open_source("hdf5", {"path": str(tmp_path / f"{kind}.h5")})
        assert len(found) == STEPS - 2
        assert all(np.array_equal(found.read(i)[0], arrays["t"][i : i + 2]) for i in range(len(found)))
        assert all(found.read(i)[1] == (i + 2) % 3 for i in range(len(found)))
