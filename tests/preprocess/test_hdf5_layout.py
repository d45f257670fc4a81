"""The HDF5 layout: any reader of HDF5 can read it, many processes may, and damage does not pass for data."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import h5py
import numpy as np
import pytest

from preprocess import SourceError, open_source
from preprocess.conversion.convert import convert
from preprocess.conversion.hdf5_file import verify
from preprocess.sources.checked_files import DamageError
from preprocess.transforms.decode import decode_picture
from tests.preprocess.support.image_files import make_folder


@dataclass(frozen=True)
class Converted:
    """A converted image folder, and the samples that were in it."""

    path: Path
    train: list[tuple[bytes, int]]
    held_out: list[tuple[bytes, int]]

    def open(self, **arguments: object):  # type: ignore[no-untyped-def]
        return open_source("hdf5", {"path": str(self.path), **arguments})


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Converted:
    folder = tmp_path_factory.mktemp("images")
    train = make_folder(folder / "data" / "train", ["cät", "dog"], 20, ("jpg", "png"), (20, 31))
    held_out = make_folder(folder / "data" / "val", ["dog"], 5)
    convert(folder / "data", folder / "data.h5", workers=1)
    return Converted(folder / "data.h5", train, [(content, 1) for content, _ in held_out])


@pytest.fixture
def copied(images: Converted, tmp_path: Path) -> Converted:
    """A copy that a test may damage."""
    (tmp_path / "copy.h5").write_bytes(images.path.read_bytes())
    return Converted(tmp_path / "copy.h5", images.train, images.held_out)


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray, np.ndarray]:
    folder = tmp_path_factory.mktemp("arrays")
    inputs = np.random.default_rng(0).integers(0, 256, (50, 9, 7), np.uint8)
    targets = np.arange(50) % 10
    np.savez(folder / "a.npz", inputs=inputs, targets=targets)
    convert(folder / "a.npz", folder / "a.h5")
    return folder / "a.h5", inputs, targets


def test_source_gives_what_was_put_in(images: Converted) -> None:
    for split, samples in (("train", images.train), ("held_out", images.held_out)):
        source = images.open(split=split, verify=True)
        assert source.encoded and len(source) == len(samples) and source.classes == ("cät", "dog")
        for index, (content, label) in enumerate(samples):
            found, target = source.read(index)
            assert found.dtype == np.uint8 and bytes(found) == content and target == label
    assert images.open().layout.input_shape == (-1, 24, 3)
    assert images.open(split="held_out").layout.input_shape == (20, 24, 3)
    assert images.open().layout.target_dtype == "int64"


def test_arrays_come_back(arrays: tuple[Path, np.ndarray, np.ndarray]) -> None:
    path, inputs, targets = arrays
    source = open_source("hdf5", {"path": str(path), "verify": True})
    assert not getattr(source, "encoded", False) and source.layout.input_shape == (9, 7, 1)
    found = [source.read(index) for index in range(50)]
    assert np.array_equal(np.stack([image for image, _ in found])[..., 0], inputs)
    assert [int(label) for _, label in found] == targets.tolist()


def test_any_reader_of_hdf5_can_read_it(images: Converted, arrays: tuple[Path, np.ndarray, np.ndarray]) -> None:
    with h5py.File(images.path) as file:
        assert file.attrs["format"] == "preprocess samples" and file.attrs["version"] == 1
        assert file.attrs["source"].endswith("data")
        group = file["train"]
        assert dict(group.attrs) | {"digest": 0, "image_shape": 0} == {
            "samples": 40, "skipped": 0, "encoding": "files", "channels": 3, "digest": 0, "image_shape": 0,
        }  # fmt: skip
        assert group.attrs["image_shape"].tolist() == [-1, 24]
        assert group["classes"].asstr()[()].tolist() == ["cät", "dog"]
        assert group["bytes"].chunks is None and group["offsets"].dtype == np.int64
        assert group["crc32"].dtype == np.uint32
        start, stop = group["offsets"][7:9]
        assert bytes(group["bytes"][start:stop]) == images.train[7][0]
        assert group["labels"][()].tolist() == [label for _, label in images.train]
    with h5py.File(arrays[0]) as file:
        assert np.array_equal(file["train/inputs"][()][..., 0], arrays[1])
        assert np.array_equal(file["train/labels"][()], arrays[2])
    plain = open_source("hdf5", {"path": str(arrays[0]), "split": "train"})
    assert plain.layout.input_shape == (9, 7, 1)


def _sum(path: str, start: int) -> int:
    source = open_source("hdf5", {"path": path})
    return sum(int(source.read(index)[0].astype(np.int64).sum()) for index in range(start, 40, 2))


def test_several_processes_and_threads_read_at_once(images: Converted) -> None:
    expected = sum(sum(content) for content, _ in images.train)
    with get_context("fork").Pool(2) as pool:
        assert sum(pool.starmap(_sum, [(str(images.path), 0), (str(images.path), 1)])) == expected
    source, start = images.open(), threading.Barrier(4)

    def read_all(_: int) -> int:
        start.wait(timeout=30)
        return sum(int(source.read(index)[0].astype(np.int64).sum()) for index in range(40))

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(read_all, range(4))) == [expected] * 4


def test_open_source_leaves_no_file_open(images: Converted) -> None:
    before = len(os.listdir("/proc/self/fd"))
    source = images.open()
    assert len(os.listdir("/proc/self/fd")) == before + 1
    del source
    assert len(os.listdir("/proc/self/fd")) == before


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 0x10
    path.write_bytes(content)


def place_of(path: Path, dataset: str) -> int:
    with h5py.File(path) as file:
        return int(file[dataset].id.get_offset())


def test_flipped_byte_of_a_sample_is_found(copied: Converted) -> None:
    size = len(copied.train[0][0])
    flip(copied.path, place_of(copied.path, "train/bytes") + size + 3)
    damage = verify(copied.path).damage
    assert len(damage) == 1 and "train sample 1: its bytes do not match their checksum" in damage[0]
    trusting, careful = copied.open(), copied.open(verify=True)
    assert bytes(trusting.read(1)[0]) != copied.train[1][0]
    assert bytes(careful.read(0)[0]) == copied.train[0][0]
    with pytest.raises(DamageError, match="train sample 1.*do not match their checksum; convert it anew"):
        careful.read(1)


@pytest.mark.parametrize("dataset", ["offsets", "labels", "crc32"])
def test_flipped_byte_of_the_index_is_found(copied: Converted, dataset: str) -> None:
    flip(copied.path, place_of(copied.path, f"held_out/{dataset}") + 9)
    assert "the index of its split 'held_out' does not match its digest" in verify(copied.path).damage[0]
    with pytest.raises(DamageError, match="does not match its digest"):
        copied.open(split="held_out")
    assert len(copied.open()) == 40


@pytest.mark.parametrize(
    "change",
    [
        lambda file: file["train"].attrs.__setitem__("channels", 1),
        lambda file: file["train/classes"].__setitem__(0, "cow"),
        lambda file: file["train"].__delitem__("labels"),
        lambda file: file["train"].attrs.__delitem__("digest"),
    ],
)
def test_changed_index_is_found(copied: Converted, change: Callable[[h5py.File], None]) -> None:
    with h5py.File(copied.path, "r+") as file:
        change(file)
    assert "split 'train'" in verify(copied.path).damage[0]
    with pytest.raises(DamageError, match="split 'train'"):
        copied.open()


@pytest.mark.parametrize(("drawn", "step"), [(10, 164), pytest.param(100, 7, marks=pytest.mark.slow)])
def test_no_flipped_byte_passes_for_data(copied: Converted, drawn: int, step: int) -> None:
    """Wherever a byte is flipped, the file is refused or found damaged, or gives the right samples."""
    whole = copied.path.read_bytes()
    for place in np.random.default_rng(0).integers(0, len(whole), drawn).tolist() + list(range(0, 2600, step)):
        copied.path.write_bytes(whole)
        flip(copied.path, place)
        try:
            if verify(copied.path).damage:
                continue
            source = copied.open(verify=True)
        except SourceError:
            continue
        assert [(bytes(c), int(n)) for c, n in map(source.read, range(len(source)))] == copied.train, place


def test_file_that_is_cut_short_is_refused(copied: Converted) -> None:
    source = copied.open()
    os.truncate(copied.path, place_of(copied.path, "train/bytes") + 10)
    with pytest.raises(DamageError, match="train sample 0: has|train sample 0.*has 10 of its"):
        source.read(0)
    with pytest.raises(SourceError, match="not a readable HDF5 file"):
        copied.open()


def test_a_converted_file_that_points_to_another_is_refused(copied: Converted, tmp_path: Path) -> None:
    """The labels are those that were written, but in a file of anybody's."""
    with h5py.File(tmp_path / "other.h5", "w") as other, h5py.File(copied.path, "r+") as file:
        file.copy("train/labels", other, "labels")
        del file["train/labels"]
        file["train/labels"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "labels")
    with pytest.raises(SourceError, match="'train/labels' lies in another file, to which it points; a converted file"):
        copied.open()
    with pytest.raises(SourceError, match="'train/labels' lies in another file"):
        verify(copied.path)


def test_mistakes_are_told(copied: Converted, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="has no such split; did you mean 'held_out'"):
        copied.open(split="heldout")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["inputs"], file["targets"] = np.zeros((3, 2)), np.zeros(3)
    assert len(open_source("hdf5", {"path": str(tmp_path / "other.h5")})) == 3
    for arguments, what in (({"split": "held_out"}, "split"), ({"verify": True}, "verify")):
        with pytest.raises(SourceError, match=f"{what} is for converted files, and this is another HDF5 file"):
            open_source("hdf5", {"path": str(tmp_path / "other.h5"), **arguments})
    with pytest.raises(SourceError, match="is not a file that was converted, so it has no checksums"):
        verify(tmp_path / "other.h5")
    with pytest.raises(SourceError, match="there is no such file"):
        verify(tmp_path / "none.h5")
    with h5py.File(copied.path, "r+") as file:
        file.attrs["version"] = 9
    with pytest.raises(SourceError, match="has version 9 of the layout, this program reads 1"):
        copied.open()


def test_decoding_gives_an_image_of_the_layouts_channels(images: Converted) -> None:
    source = images.open(split="held_out")
    assert decode_picture(source.read(0)[0], source.layout.input_shape[2]).shape == source.layout.input_shape
