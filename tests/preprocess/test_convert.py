"""A converted file holds what was put in, and is the same file however it came about."""

from __future__ import annotations

import gzip
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from preprocess import Source, SourceError, open_source
from preprocess.conversion.convert import ConversionProgress, convert
from preprocess.conversion.hdf5_file import verify
from preprocess.conversion.packing import ConversionError, ConversionFailure
from preprocess.transforms.decode import decode_picture
from tests.preprocess.support.image_files import encoded, make_folder, make_shard, smooth

ROOT = Path(__file__).resolve().parents[2]


def opened(path: Path, split: str = "train") -> Source:
    return open_source("hdf5", {"path": str(path), "split": split, "verify": True})


def contents(source: Source) -> tuple[list[bytes], list[int]]:
    pairs = [source.read(index) for index in range(len(source))]
    return [bytes(content) for content, _ in pairs], [int(label) for _, label in pairs]


def images_of(source: Source) -> np.ndarray:
    return np.stack([source.read(index)[0] for index in range(len(source))])


def idx_bytes(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "own_samples.py").write_text(
        """
import numpy as np
from PIL import Image

class Squares:
    def __init__(self, train=True, count=7, side=6, channels=3):
        self.count, self.shape = (count if train else 3), (side, side, channels)
    def __len__(self):
        return self.count
    def __getitem__(self, index):
        if index >= self.count:
            raise IndexError(index)
        rng = np.random.default_rng(index)
        return rng.integers(0, 256, self.shape, np.uint8), index % 2

class Vectors(Squares):
    def __getitem__(self, index):
        return np.arange(4, dtype=np.float32) + index, np.array([index, 0.5], np.float32)

class Photographs(Squares):
    def __getitem__(self, index):
        return Image.fromarray(np.full((80 + index, 90, 3), index, np.uint8)), index

class Uneven(Squares):
    def __getitem__(self, index):
        return np.zeros((4 + index, 4), np.uint8), 0

class Failing(Squares):
    def __getitem__(self, index):
        if index in (2, 5):
            raise RuntimeError(f"no sample {index} today")
        return super().__getitem__(index)

class Endless(Squares):
    def __len__(self):
        return 10**13
"""
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "own_samples"
    sys.modules.pop("own_samples", None)


def test_image_folder_without_parts_is_for_training(tmp_path: Path) -> None:
    samples = make_folder(tmp_path / "data", ["b", "a"], 5, ("jpg", "png"), (20, 22))
    made = convert(tmp_path / "data", tmp_path / "x.h5", workers=1)
    assert contents(opened(tmp_path / "x.h5")) == ([c for c, _ in samples], [n for _, n in samples])
    (split,) = made.splits
    assert (split.name, split.samples, split.encoding, split.classes) == ("train", 10, "files", ("a", "b"))
    assert split.bytes == sum(len(content) for content, _ in samples) and made.skipped == ()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "x.h5"]


@pytest.mark.parametrize("name", ["held_out", "val", "validation", "test"])
def test_held_out_folder_takes_the_classes_of_the_training_images(tmp_path: Path, name: str) -> None:
    make_folder(tmp_path / "data" / "train", ["a", "b", "c"], 1)
    held_out = make_folder(tmp_path / "data" / name, ["b", "c"], 2)
    convert(tmp_path / "data", tmp_path / "x.h5", workers=1)
    assert contents(opened(tmp_path / "x.h5", "held_out")) == ([c for c, _ in held_out], [1, 1, 2, 2])


def test_held_out_samples_may_lie_elsewhere(tmp_path: Path) -> None:
    make_folder(tmp_path / "one", ["a", "b"], 2)
    other = make_folder(tmp_path / "two", ["a", "b"], 3)
    made = convert(tmp_path / "one", tmp_path / "x.h5", held_out=tmp_path / "two", workers=1)
    assert [split.samples for split in made.splits] == [4, 6]
    assert contents(opened(tmp_path / "x.h5", "held_out"))[0] == [c for c, _ in other]


@pytest.mark.parametrize("packed", [False, True])
def test_idx_folder(tmp_path: Path, packed: bool) -> None:
    rng = np.random.default_rng(0)
    ending, pack = (".gz", gzip.compress) if packed else ("", bytes)
    parts = {}
    (tmp_path / "idx").mkdir()
    for name, count in (("train", 200), ("t10k", 30)):
        images = rng.integers(0, 256, (count, 7, 5), np.uint8)
        labels = rng.integers(0, 10, count).astype(np.uint8)
        (tmp_path / "idx" / f"{name}-images-idx3-ubyte{ending}").write_bytes(pack(idx_bytes(images)))
        (tmp_path / "idx" / f"{name}-labels-idx1-ubyte{ending}").write_bytes(pack(idx_bytes(labels)))
        parts[name] = images, labels
    convert(tmp_path / "idx", tmp_path / "x.h5")
    for name, split in (("train", "train"), ("t10k", "held_out")):
        source = opened(tmp_path / "x.h5", split)
        assert source.layout.input_shape == (7, 5, 1) and source.layout.target_dtype == "int64"
        assert np.array_equal(images_of(source)[..., 0], parts[name][0])
        assert contents(source)[1] == parts[name][1].tolist()
    names = {"images": f"t10k-images-idx3-ubyte{ending}", "labels": f"t10k-labels-idx1-ubyte{ending}"}
    made = convert(tmp_path / "idx", tmp_path / "y.h5", arguments=names)
    assert [(split.name, split.samples) for split in made.splits] == [("train", 30)]


def test_npz_archive(tmp_path: Path) -> None:
    inputs, targets = np.random.default_rng(0).random((9, 4)), np.arange(9.0)
    np.savez(tmp_path / "a.npz", inputs=inputs, targets=targets, extra=targets)
    convert(tmp_path / "a.npz", tmp_path / "a.h5")
    source = opened(tmp_path / "a.h5")
    assert (source.layout.input_dtype, source.layout.target_dtype) == ("float64", "float64")
    assert np.array_equal(images_of(source), inputs) and source.read(3)[1] == 3.0
    np.savez(tmp_path / "k.npz", x_train=inputs, y_train=targets, x_test=inputs[:2], y_test=targets[:2])
    assert [s.samples for s in convert(tmp_path / "k.npz", tmp_path / "k.h5").splits] == [9, 2]
    named = convert(tmp_path / "k.npz", tmp_path / "n.h5", arguments={"images": "x_test", "labels": "y_test"})
    assert [s.samples for s in named.splits] == [2]


def test_tar_shards(tmp_path: Path) -> None:
    samples = [(f"k{i:03}", encoded(smooth(i, 20 + i % 2), "jpg"), "ab"[i % 2]) for i in range(12)]
    make_shard(tmp_path / "train-0.tar", samples[:5])
    make_shard(tmp_path / "train-1.tar", samples[5:9])
    make_shard(tmp_path / "val-0.tar", [s for s in samples[9:] if s[2] == "b"])
    made = convert(tmp_path / "train-*.tar", tmp_path / "x.h5", held_out=tmp_path / "val-*.tar", workers=2)
    assert contents(opened(tmp_path / "x.h5")) == ([c for _, c, _ in samples[:9]], [i % 2 for i in range(9)])
    assert contents(opened(tmp_path / "x.h5", "held_out"))[1] == [1] * made.splits[1].samples
    for kind in (tmp_path / "train-0.tar", tmp_path):
        assert convert(kind, tmp_path / "y.h5", workers=1, force=True).splits[0].encoding == "files"


def test_map_style_data_set_with_a_parameter_train(tmp_path: Path, module: str) -> None:
    made = convert(f"{module}:Squares", tmp_path / "x.h5", arguments={"count": 5}, workers=2)
    assert [(s.name, s.samples, s.encoding) for s in made.splits] == [
        ("train", 5, "decoded"),
        ("held_out", 3, "decoded"),
    ]
    for split, given in (("train", {"count": 5}), ("held_out", {"train": False})):
        own = open_source(f"{module}:Squares", given)
        assert np.array_equal(images_of(opened(tmp_path / "x.h5", split)), images_of(own))
        assert contents(opened(tmp_path / "x.h5", split))[1] == contents(own)[1]


def test_arrays_that_are_no_images(tmp_path: Path, module: str) -> None:
    convert(f"{module}:Vectors", tmp_path / "x.h5", arguments={"train": True}, workers=1)
    source = opened(tmp_path / "x.h5")
    assert source.layout.input_shape == (4,) and source.layout.target_shape == (2,)
    assert source.layout.target_dtype == "float32"
    assert np.array_equal(source.read(2)[0], np.arange(4, dtype=np.float32) + 2)
    assert np.array_equal(source.read(2)[1], np.array([2, 0.5], np.float32))


@pytest.mark.parametrize("channels", [1, 3])
def test_larger_images_are_stored_as_png_without_loss(tmp_path: Path, module: str, channels: int) -> None:
    made = convert(f"{module}:Squares", tmp_path / "x.h5", arguments={"side": 65, "channels": channels}, workers=1)
    assert made.splits[0].encoding == "png"
    own = open_source(f"{module}:Squares", {"side": 65, "channels": channels})
    source = opened(tmp_path / "x.h5")
    assert source.layout == own.layout
    for index in range(len(own)):
        assert np.array_equal(decode_picture(source.read(index)[0], channels), own.read(index)[0])


def test_photographs_of_any_size_from_a_data_set(tmp_path: Path, module: str) -> None:
    convert(f"{module}:Photographs", tmp_path / "x.h5", workers=1)
    source = opened(tmp_path / "x.h5")
    assert source.layout.input_shape == (-1, 90, 3)
    assert (decode_picture(source.read(4)[0]) == 4).all() and decode_picture(source.read(4)[0]).shape == (84, 90, 3)


def test_encoding_may_be_chosen(tmp_path: Path, module: str) -> None:
    convert(f"{module}:Squares", tmp_path / "jpeg.h5", encoding="jpeg", quality=100, arguments={"side": 32}, workers=1)
    source = opened(tmp_path / "jpeg.h5")
    image = open_source(f"{module}:Squares", {"side": 32}).read(0)[0]
    assert bytes(source.read(0)[0][:3]) == b"\xff\xd8\xff"
    assert np.abs(decode_picture(source.read(0)[0]).astype(int) - image).mean() < 3
    samples = make_folder(tmp_path / "data", ["a"], 4, ("jpg", "png"))
    convert(tmp_path / "data", tmp_path / "png.h5", encoding="png", workers=1)
    for index, (content, _) in enumerate(samples):
        found = bytes(opened(tmp_path / "png.h5").read(index)[0])
        assert found.startswith(b"\x89PNG") and np.array_equal(decode_picture(found), decode_picture(content))
    assert bytes(opened(tmp_path / "png.h5").read(1)[0]) == samples[1][0]
    convert(tmp_path / "data", tmp_path / "decoded.h5", encoding="decoded", channels=1, workers=1)
    grey = opened(tmp_path / "decoded.h5")
    assert grey.layout.input_shape == (20, 24, 1) and not getattr(grey, "encoded", False)
    assert np.array_equal(grey.read(2)[0], decode_picture(samples[2][0], 1))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """An image folder of several blocks, and the file that comes of it without a break."""
    folder = tmp_path_factory.mktemp("large")
    make_folder(folder / "data" / "train", ["a", "b"], 150, sizes=(20, 21))
    make_folder(folder / "data" / "val", ["a", "b"], 70)
    convert(folder / "data", folder / "x.h5", workers=1)
    return folder / "data", (folder / "x.h5").read_bytes()


@pytest.mark.parametrize("workers", [2, 3])
def test_file_does_not_depend_on_the_workers(tmp_path: Path, large: tuple[Path, bytes], workers: int) -> None:
    convert(large[0], tmp_path / "x.h5", workers=workers)
    assert (tmp_path / "x.h5").read_bytes() == large[1]


class Stop(Exception):
    """Raised by a test to stop a conversion."""


class StopAfter:
    """Stops a conversion after so many blocks, and keeps what was told."""

    def __init__(self, blocks: int) -> None:
        self.told: list[ConversionProgress] = []
        self._blocks = blocks

    def __call__(self, progress: ConversionProgress) -> None:
        self.told.append(progress)
        if len(self.told) > self._blocks:
            raise Stop


def test_goes_on_where_it_was_stopped(tmp_path: Path, large: tuple[Path, bytes]) -> None:
    path, starts = tmp_path / "x.h5", []
    while not path.exists():
        watch = StopAfter(1)
        try:
            convert(large[0], path, workers=1, progress=watch)
        except Stop:
            assert not path.exists() and (tmp_path / "x.h5.partial").exists()
        starts.append(watch.told[0].done)
    assert starts == [0, 64, 128, 192, 256, 300, 364, 428, 440]
    assert path.read_bytes() == large[1] and os.listdir(tmp_path) == ["x.h5"]


def test_goes_on_after_the_machine_died_in_the_middle_of_a_write(tmp_path: Path, large: tuple[Path, bytes]) -> None:
    """Rows that are cut off or full of zeros, and samples behind those that are noted, are forgotten."""
    rng = np.random.default_rng(0)
    for blocks, torn in ((1, 1), (3, 7), (5, 50), (6, 1000)):
        path = tmp_path / f"{blocks}.h5"
        with pytest.raises(Stop):
            convert(large[0], path, workers=1, progress=StopAfter(blocks))
        record, data = tmp_path / f"{blocks}.h5.partial.progress", tmp_path / f"{blocks}.h5.partial"
        whole = record.read_bytes()
        record.write_bytes(whole[: len(whole) - torn] + bytes(torn if blocks % 2 else 0))
        with open(data, "ab") as file:
            file.write(rng.bytes(5000))
        watch = StopAfter(1000)
        convert(large[0], path, workers=1, progress=watch)
        assert 0 < watch.told[0].done < 64 * blocks
        assert path.read_bytes() == large[1]


@pytest.mark.parametrize("limit", [0.4, 1.0])
def test_full_disk_is_told_and_the_conversion_goes_on(tmp_path: Path, large: tuple[Path, bytes], limit: float) -> None:
    """The limit on the size of files stands for a disk; 1.0: HDF5's own part is what does not fit."""
    path = tmp_path / "x.h5"
    size = int(limit * len(large[1])) - (100 if limit == 1.0 else 0)
    program = (
        "import resource, sys\n"
        "from preprocess.conversion.convert import convert\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))\n"
        "convert(sys.argv[1], sys.argv[2], workers=1)\n"
    )
    command = [sys.executable, "-c", program, str(large[0]), str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert "ConversionFailure: " in done.stderr and "File too large" in done.stderr
    assert "what was done is kept: mend that, and give the same command again" in done.stderr
    assert not path.exists()
    watch = StopAfter(1000)
    convert(large[0], path, workers=1, progress=watch)
    assert watch.told[0].done > 0 and path.read_bytes() == large[1]


def test_two_conversions_into_one_file_do_not_meet(tmp_path: Path, large: tuple[Path, bytes]) -> None:
    refused: list[ConversionError] = []

    def start_another(progress: ConversionProgress) -> None:
        if not refused:
            with pytest.raises(ConversionError, match="another process is converting into it") as caught:
                convert(large[0], tmp_path / "x.h5", workers=1)
            refused.append(caught.value)

    convert(large[0], tmp_path / "x.h5", workers=1, progress=start_another)
    assert refused and (tmp_path / "x.h5").read_bytes() == large[1]


def test_another_conversion_is_not_gone_on_with(tmp_path: Path, large: tuple[Path, bytes]) -> None:
    with pytest.raises(Stop):
        convert(large[0], tmp_path / "x.h5", workers=1, progress=StopAfter(2))
    with pytest.raises(ConversionError, match="is of another conversion.*or --force to begin anew"):
        convert(large[0], tmp_path / "x.h5", workers=1, channels=1)
    other = make_folder(tmp_path / "other", ["a"], 2)
    with pytest.raises(ConversionError, match="is of another conversion"):
        convert(tmp_path / "other", tmp_path / "x.h5", workers=1)
    convert(tmp_path / "other", tmp_path / "x.h5", workers=1, force=True)
    assert contents(opened(tmp_path / "x.h5"))[0] == [content for content, _ in other]
    convert(large[0], tmp_path / "x.h5", workers=1, force=True)
    assert (tmp_path / "x.h5").read_bytes() == large[1]


def test_file_that_is_no_partial_one_is_left_alone(tmp_path: Path) -> None:
    make_folder(tmp_path / "data", ["a"], 1)
    (tmp_path / "x.h5.partial").write_text("precious")
    with pytest.raises(ConversionError, match="is of another conversion"):
        convert(tmp_path / "data", tmp_path / "x.h5")
    assert (tmp_path / "x.h5.partial").read_text() == "precious"


@pytest.fixture
def broken(tmp_path: Path) -> tuple[Path, list[tuple[bytes, int]]]:
    """An image folder with a truncated JPEG, an empty one and one that is text; and its good samples."""
    samples = make_folder(tmp_path / "data", ["a", "b"], 40)
    damaged = {"a/003.jpg": samples[3][0][:-200], "a/020.jpg": b"", "b/039.jpg": b"not an image"}
    for name, content in damaged.items():
        (tmp_path / "data" / name).write_bytes(content)
    return tmp_path / "data", [sample for i, sample in enumerate(samples) if i not in (3, 20, 79)]


@pytest.mark.parametrize("workers", [1, 2])
def test_broken_image_ends_the_conversion_and_is_named(
    tmp_path: Path, broken: tuple[Path, list[tuple[bytes, int]]], workers: int
) -> None:
    with pytest.raises(ConversionError, match="a/003.jpg': cannot be read .*mend or remove it.*--skip-corrupt"):
        convert(broken[0], tmp_path / "x.h5", workers=workers)
    assert not (tmp_path / "x.h5").exists()


def test_broken_images_are_left_out_and_listed(tmp_path: Path, broken: tuple[Path, list[tuple[bytes, int]]]) -> None:
    folder, good = broken
    with pytest.raises(Stop):
        convert(folder, tmp_path / "x.h5", workers=1, skip_corrupt=True, progress=StopAfter(1))
    with pytest.raises(ConversionError, match="a/003.jpg"):
        convert(folder, tmp_path / "x.h5", workers=1)
    watch = StopAfter(1000)
    made = convert(folder, tmp_path / "x.h5", workers=1, skip_corrupt=True, progress=watch)
    assert (watch.told[0].done, watch.told[0].skipped, watch.told[-1].skipped) == (64, 2, 3)
    assert [(f.split, f.sample, os.path.relpath(f.name, folder)) for f in made.skipped] == [
        ("train", 3, "a/003.jpg"),
        ("train", 20, "a/020.jpg"),
        ("train", 79, "b/039.jpg"),
    ]
    assert all("DecodeError: " in failure.reason for failure in made.skipped)
    assert contents(opened(tmp_path / "x.h5")) == ([c for c, _ in good], [n for _, n in good])
    assert verify(tmp_path / "x.h5").damage == () and verify(tmp_path / "x.h5").samples == 77


def test_samples_that_a_data_set_refuses(tmp_path: Path, module: str) -> None:
    with pytest.raises(
        ConversionError, match="own_samples:Failing, train sample 2': cannot be read .*no sample 2 today"
    ):
        convert(f"{module}:Failing", tmp_path / "x.h5", workers=1)
    made = convert(f"{module}:Failing", tmp_path / "x.h5", workers=1, skip_corrupt=True)
    assert [(f.split, f.sample) for f in made.skipped] == [("train", 2), ("train", 5), ("held_out", 2)]
    assert [split.samples for split in made.splits] == [5, 2]


def test_folder_of_broken_images_alone_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data" / "a").mkdir(parents=True)
    (tmp_path / "data" / "a" / "1.jpg").write_bytes(b"text")
    with pytest.raises(ConversionError, match="none of the 1 samples of train can be read"):
        convert(tmp_path / "data", tmp_path / "x.h5", workers=1, skip_corrupt=True)


def test_disk_that_is_too_small_is_told_before_anything_is_made(tmp_path: Path, module: str) -> None:
    with pytest.raises(ConversionError, match=r"needs about \d+\.\d\d GiB more, and .* GiB free; make room"):
        convert(f"{module}:Endless", tmp_path / "x.h5", workers=1)
    assert not list(tmp_path.glob("x.h5*"))


def test_mistakes_are_told(tmp_path: Path, module: str) -> None:
    def refused(text: str, source: object, destination: Path = tmp_path / "x.h5", **options: object) -> None:
        with pytest.raises((ConversionError, SourceError), match=text) as caught:
            convert(str(source), destination, **options)  # type: ignore[arg-type]
        assert "\n" not in str(caught.value) and not (tmp_path / "x.h5").exists()

    data = tmp_path / "data"
    refused("there is no such file or folder; paths are relative to", data)
    refused("no file is called so", tmp_path / "*.tar")
    data.mkdir()
    refused("holds no folders of images; arrange it as CLASS/IMAGE.jpg", data)
    (data / "a").mkdir()
    refused("the folder of class 'a' holds no image", data)
    (data / "a" / "1.jpg").write_bytes(encoded(smooth(0), "jpg"))
    refused("is a folder; name a file, such as", data, data)
    refused("there is no folder .*none; make it first", data, tmp_path / "none" / "x.h5")
    (tmp_path / "there.h5").write_text("")
    refused("exists already; give another name, or --force", data, tmp_path / "there.h5")
    refused("at least one worker is needed", data, workers=0)
    refused("3 channels or to 1", data, channels=2)
    refused("quality of JPEG goes from 1 to 100", data, quality=0)
    refused("Squares has no such argument; did you mean 'side'", f"{module}:Squares", arguments={"sides": 3})
    refused("has no 'Circles'", f"{module}:Circles")
    refused("its samples are .* of float32; images are .*leave out --encoded", f"{module}:Vectors", encoding="png")
    refused(
        "train sample 1': cannot be read .*it is \\(5, 4, 1\\) of uint8, the first is \\(4, 4, 1\\)", f"{module}:Uneven"
    )
    (tmp_path / "text.txt").write_text("text")
    refused("is no kind of data that is known; give an image folder", tmp_path / "text.txt")
    (tmp_path / "a.npz").write_text("text")
    refused("is not an .npz archive", tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", x=np.zeros(3))
    refused("holds neither inputs and targets nor x_train and y_train, but x; name the two arrays", tmp_path / "a.npz")
    shutil.make_archive(str(tmp_path / "b"), "gztar", data)
    refused("is a compressed tar file.*unpack it", tmp_path / "b.tar.gz")
    (tmp_path / "broken.tar").write_bytes(b"x" * 3000)
    refused("is not a whole, uncompressed tar file", tmp_path / "broken.tar")


def test_parts_that_do_not_go_together_are_told(tmp_path: Path) -> None:
    make_folder(tmp_path / "data" / "train", ["a"], 2, sizes=(20, 21))
    for name in ("val", "test"):
        make_folder(tmp_path / "data" / name, ["b"], 1)
    with pytest.raises(ConversionError, match="val and .*test may each be the held-out part; say which: --held-out"):
        convert(tmp_path / "data", tmp_path / "x.h5")
    with pytest.raises(SourceError, match="'b': .* has this class, and classes has not: a"):
        convert(tmp_path / "data", tmp_path / "x.h5", held_out=tmp_path / "data" / "val")
    np.savez(tmp_path / "a.npz", inputs=np.zeros((2, 3)), targets=np.zeros(2))
    with pytest.raises(ConversionError, match="those to train on files images.*; give splits that are alike"):
        convert(tmp_path / "data" / "train", tmp_path / "x.h5", held_out=tmp_path / "a.npz")
    with pytest.raises(ConversionError, match="its images differ in size.*leave out --decoded"):
        convert(tmp_path / "data" / "train", tmp_path / "x.h5", encoding="decoded")
    (tmp_path / "idx").mkdir()
    (tmp_path / "idx" / "train-images-idx3-ubyte").write_bytes(idx_bytes(np.zeros((1, 2, 2), np.uint8)))
    with pytest.raises(ConversionError, match="has no labels beside it; add train-labels-idx1-ubyte.gz"):
        convert(tmp_path / "idx", tmp_path / "x.h5")
    with pytest.raises(ConversionError, match="named by images and labels, both"):
        convert(tmp_path / "idx", tmp_path / "x.h5", arguments={"images": "train-images-idx3-ubyte"})


def test_worker_that_is_killed_is_told(tmp_path: Path, module: str) -> None:
    (tmp_path / "own_samples.py").write_text(
        "import os, signal\nfrom multiprocessing import parent_process\nimport numpy as np\n"
        "class Squares:\n"
        "    def __len__(self):\n        return 200\n"
        "    def __getitem__(self, index):\n"
        "        if index == 150 and parent_process() is not None:\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "        return np.zeros((2, 2), np.uint8), 0\n"
    )
    with pytest.raises(ConversionFailure, match="a worker was ended by signal 9 at the samples 128 to 191; if memory"):
        convert(f"{module}:Squares", tmp_path / "x.h5", workers=2)
