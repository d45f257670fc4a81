"""Sources give the samples that their files hold, and say plainly what is wrong with what they were given."""

from __future__ import annotations

import gzip
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preprocess import Dataset, DatasetSpec, Source, SourceError, SourceSpec, open_source
from preprocess.samples.stream import LaneSchedule
from preprocess.sources.arrays import read_idx


def idx_bytes(array: np.ndarray) -> bytes:
    codes = {"u1": 8, "i1": 9, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}
    head = bytes([0, 0, codes[array.dtype.str[1:]], array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.astype(array.dtype.newbyteorder(">")).tobytes()


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "ending_data.py").write_text("import sys; sys.exit(2)")
    (tmp_path / "leaving_data.py").write_text("import os; os.chdir('/')\nfrom own_data import Digits")
    (tmp_path / "own_data.py").write_text(
        """
import numpy as np

class Digits:
    def __init__(self, count=4, shape=(3, 2)):
        self.count, self.shape = count, shape
    def __len__(self):
        return self.count
    def __getitem__(self, index):
        return np.full(self.shape, index, np.uint8), index % 3

class Tensors(Digits):
    def __getitem__(self, index):
        import torch
        return torch.full((1, 3, 2), float(index)), torch.tensor([index, 0.5])

class Strings(Digits):
    def __getitem__(self, index):
        return "text", 0

class Broken(Digits):
    def __getitem__(self, index):
        raise RuntimeError("no such disk")

def streamed(with_length=False):
    import torch
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            yield from zip(range(4), range(4))
    class Sized(Stream):
        def __len__(self):
            return 4
    return Sized() if with_length else Stream()

def generated():
    return ((number, number) for number in range(4))

ready = Digits(5)
number = 7

def empty():
    return Digits(0)
"""
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "own_data"
    sys.modules.pop("own_data", None)


def contents(source: Source) -> tuple[np.ndarray, np.ndarray]:
    pairs = [source.read(index) for index in range(len(source))]
    return np.stack([image for image, _ in pairs]), np.stack([np.asarray(target) for _, target in pairs])


@pytest.mark.parametrize("packed", [False, True])
def test_idx(tmp_path: Path, packed: bool) -> None:
    images = np.random.default_rng(0).integers(0, 256, (6, 5, 4), np.uint8)
    labels = np.arange(6, dtype=np.uint8)
    for name, array in (("images", images), ("labels", labels)):
        (tmp_path / name).write_bytes(gzip.compress(idx_bytes(array)) if packed else idx_bytes(array))
    source = open_source("idx", {"images": str(tmp_path / "images"), "labels": str(tmp_path / "labels")})
    assert isinstance(source, Source)
    assert source.layout.input_shape == (5, 4, 1) and source.layout.input_dtype == "uint8"
    assert source.layout.target_shape == () and source.layout.target_dtype == "int64"
    inputs, targets = contents(source)
    assert np.array_equal(inputs[..., 0], images) and np.array_equal(targets, labels)


@given(st.sampled_from(["u1", "i1", "i2", "i4", "f4", "f8"]), st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_idx_of_any_type(tmp_path_factory: pytest.TempPathFactory, dtype: str, shape: list[int]) -> None:
    array = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    path = tmp_path_factory.mktemp("idx") / "file"
    path.write_bytes(idx_bytes(array))
    found = read_idx(str(path))
    assert np.array_equal(found, array) and found.dtype == array.dtype


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "starts with the bytes none"),
        (b"PNG\0rest", "starts with the bytes 50 4e 47 00"),
        (idx_bytes(np.zeros((2, 3), np.uint8))[:-1], r"claims the shape \(2, 3\), but holds 5 bytes"),
        (b"\0\0\x08\x00", "claims 0 dimensions"),
        (b"\0\0\x08\x03\0\0", "claims 3 dimensions in 6 bytes"),
        (gzip.compress(b"\0\0\x08\x01\0\0\0\x01A", mtime=0)[:-4], "gzip file that does not unpack"),
    ],
)
def test_what_is_not_idx(tmp_path: Path, content: bytes, text: str) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(SourceError, match=text):
        read_idx(str(tmp_path / "file"))


def test_numpy(tmp_path: Path) -> None:
    inputs, targets = np.random.default_rng(0).random((4, 7)).astype(np.float32), np.arange(4.0)
    np.save(tmp_path / "x.npy", inputs)
    np.save(tmp_path / "y.npy", targets)
    np.savez(tmp_path / "both.npz", x=inputs, y=targets)
    two = open_source("numpy", {"inputs": str(tmp_path / "x.npy"), "targets": str(tmp_path / "y.npy")})
    one = open_source("numpy", {"path": str(tmp_path / "both.npz"), "inputs": "x", "targets": "y"})
    for source in (two, one):
        assert source.layout.input_shape == (7,) and source.layout.target_dtype == "float64"
        found = contents(source)
        assert np.array_equal(found[0], inputs) and np.array_equal(found[1], targets)
    with pytest.raises(SourceError, match="no such array.*known: x, y"):
        open_source("numpy", {"path": str(tmp_path / "both.npz")})
    np.save(tmp_path / "short.npy", targets[:3])
    with pytest.raises(SourceError, match="4 inputs and 3 targets"):
        open_source("numpy", {"inputs": str(tmp_path / "x.npy"), "targets": str(tmp_path / "short.npy")})


def test_numpy_never_unpickles(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(SourceError, match="NumPy cannot read it"):
        open_source("numpy", {"inputs": str(tmp_path / "x.npy"), "targets": str(tmp_path / "x.npy")})


def test_hdf5(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (6, 5, 4, 3), np.uint8)
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["inputs"], file["targets"], file["labels"] = images, np.arange(6, dtype=np.int32), np.arange(6) + 1
    source = open_source("hdf5", {"path": str(tmp_path / "data.h5")})
    assert source.layout.input_shape == (5, 4, 3) and source.layout.target_dtype == "int64"
    inputs, targets = contents(source)
    assert np.array_equal(inputs, images) and np.array_equal(targets, np.arange(6))
    other = open_source("hdf5", {"path": str(tmp_path / "data.h5"), "targets": "labels"})
    assert other.read(2)[1] == 3
    with pytest.raises(SourceError, match="no such data set; did you mean 'labels'"):
        open_source("hdf5", {"path": str(tmp_path / "data.h5"), "targets": "label"})
    (tmp_path / "text.h5").write_text("text")
    with pytest.raises(SourceError, match="not a readable HDF5 file"):
        open_source("hdf5", {"path": str(tmp_path / "text.h5")})


def external_link(file: h5py.File, other: Path) -> None:
    file["targets"] = h5py.ExternalLink(str(other), "targets")


def soft_link_to_an_external_one(file: h5py.File, other: Path) -> None:
    file["far"] = h5py.ExternalLink(str(other), "/")
    file["targets"] = h5py.SoftLink("/far/targets")


def external_storage(file: h5py.File, other: Path) -> None:
    file.create_dataset("targets", (3,), "u1", external=[(str(other), 0, 3)])


def virtual(file: h5py.File, other: Path) -> None:
    layout = h5py.VirtualLayout((3,), "i8")
    layout[:] = h5py.VirtualSource(str(other), "targets", (3,))
    file.create_virtual_dataset("targets", layout)


@pytest.mark.parametrize("point", [external_link, soft_link_to_an_external_one, external_storage, virtual])
def test_hdf5_that_points_to_another_file_asks_first(tmp_path: Path, point: Callable[[h5py.File, Path], None]) -> None:
    path, other = tmp_path / "data.h5", tmp_path / "other.h5"
    with h5py.File(other, "w") as file:
        file["targets"] = np.arange(3)
    with h5py.File(path, "w") as file:
        file["inputs"] = np.zeros((3, 2))
        point(file, other)
    with pytest.raises(SourceError, match="lies in another file, to which it points; set other_files: true if you"):
        open_source("hdf5", {"path": str(path)})
    assert len(open_source("hdf5", {"path": str(path), "other_files": True})) == 3


def test_map_style(module: str) -> None:
    source = open_source(f"{module}:Digits", {"count": 6})
    assert len(source) == 6 and source.layout.input_shape == (3, 2, 1) and source.layout.target_dtype == "int64"
    assert np.array_equal(source.read(4)[0], np.full((3, 2, 1), 4)) and source.read(4)[1] == 1
    assert len(open_source(f"{module}:ready")) == 5
    tensors = open_source(f"{module}:Tensors")
    assert tensors.layout.input_shape == (1, 3, 2) and tensors.layout.input_dtype == "float32"
    assert tensors.layout.target_shape == (2,) and np.array_equal(tensors.read(2)[1], np.array([2, 0.5], np.float32))


@pytest.mark.parametrize(
    ("subset", "kept"), [(2, [0, 1]), ([3, 5], [3, 4]), ((1, 6, 2), [1, 3, 5]), ([6, 0, -3], [5, 2])]
)
def test_subset(module: str, subset: object, kept: list[int]) -> None:
    source = open_source(f"{module}:Digits", {"count": 6}, subset)  # type: ignore[arg-type]
    assert [int(source.read(index)[0][0, 0, 0]) for index in range(len(source))] == kept


def test_a_module_that_leaves_the_folder_leaves_others_there(module: str) -> None:
    here = Path.cwd()
    assert len(open_source("leaving_data:Digits", {})) == 4 and Path.cwd() == here


@pytest.mark.parametrize(
    ("name", "arguments", "subset", "text"),
    [
        ("ixd", {}, None, "did you mean 'idx'.*known: arrow, hdf5, idx, .*; or module:Name"),
        ("idx", {"image": "x"}, None, "no such argument; did you mean 'images'"),
        ("idx", {"images": "x"}, None, "needs the argument 'labels'"),
        ("idx", {"images": "missing", "labels": "missing"}, None, "'missing': there is no such file; .*mend the path"),
        ("no_such_module:Digits", {}, None, "importing 'no_such_module' raised ModuleNotFoundError.*PYTHONPATH"),
        ("ending_data:Digits", {}, None, "importing 'ending_data' raised SystemExit.*end no process"),
        ("own_data:", {}, None, "module:Name"),
        ("own_data:Digit", {}, None, "has no 'Digit'; did you mean 'Digits'"),
        ("own_data:Digits", {"size": 3}, None, "raised TypeError"),
        ("own_data:Broken", {}, None, "raised RuntimeError: no such disk"),
        ("own_data:Strings", {}, None, "the input of its sample 0 is a str; give numbers"),
        ("own_data:number", {}, None, "not callable"),
        ("own_data:empty", {}, None, "at least one sample"),
        ("own_data:streamed", {}, None, "a Stream, an iterable-style data set.*without streaming=True.*to files once"),
        ("own_data:streamed", {"with_length": True}, None, "a Sized, an iterable-style data set"),
        ("own_data:generated", {}, None, "a generator, an iterable-style data set"),
        ("own_data:Digits", {}, [0, 0], "selects none of the source's 4 samples"),
        ("own_data:Digits", {}, [0, 1, 0], "a subset is"),
        ("own_data:Digits", {}, "half", "a subset is"),
    ],
)
def test_mistakes(module: str, name: str, arguments: dict[str, object], subset: object, text: str) -> None:
    with pytest.raises(SourceError, match=text) as caught:
        open_source(name, arguments, subset)  # type: ignore[arg-type]
    assert caught.value.value is not None and caught.value.rule and caught.value.mend


OWN_SOURCES = """
import numpy as np
from preprocess import SampleLayout

class Waves:
    def __init__(self, count=5):
        self.count, self.layout = count, SampleLayout((3,), "float32")
    def __len__(self):
        return self.count
    def read(self, index):
        return np.full(3, index, np.float32), index % 2

class WithoutLayout:
    def __len__(self):
        return 3
    def read(self, index):
        return np.zeros(3), 0

class WithoutAnything:
    def read(self, index):
        return np.zeros(3), 0

class WrongLayout(Waves):
    layout = (3,)
    def __init__(self):
        self.count = 3
"""


@pytest.fixture
def own_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_sources.py").write_text(OWN_SOURCES)
    monkeypatch.syspath_prepend(tmp_path)
    return "own_sources"


def test_source_of_ones_own_is_taken_as_it_is(own_sources: str) -> None:
    source = open_source(f"{own_sources}:Waves", {"count": 7}, subset=[2, 6, 2])
    assert isinstance(source, Source) and len(source) == 2
    image, target = source.read(1)
    assert image.tolist() == [4, 4, 4] and target == 0
    dataset = Dataset(DatasetSpec("waves", SourceSpec(f"{own_sources}:Waves")))
    inputs, targets = dataset.layout.empty(5)
    assert list(dataset.fill(LaneSchedule(5), 0, 0, inputs, targets))[-1] == 5
    assert sorted(inputs[:, 0].tolist()) == [0, 1, 2, 3, 4] and (targets == inputs[:, 0] % 2).all()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("WithoutLayout", "gave a WithoutLayout, which has read() and lacks layout"),
        ("WithoutAnything", "lacks layout and __len__"),
        ("WrongLayout", "the layout of its WrongLayout is a tuple, and no preprocess.SampleLayout"),
    ],
)
def test_source_of_ones_own_that_lacks_something_is_refused(own_sources: str, name: str, told: str) -> None:
    with pytest.raises(SourceError) as refusal:
        open_source(f"{own_sources}:{name}")
    assert told in str(refusal.value) and "preprocess.Source" in refusal.value.mend
