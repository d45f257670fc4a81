"""The source `image_folder` gives the files that lie in a folder, and says plainly what is wrong with one."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

from preprocess import Dataset, DatasetSpec, Source, SourceError, SourceSpec, open_source
from preprocess.samples.errors import SampleError
from preprocess.samples.order import TRAIN
from preprocess.transforms.decode import decode_picture
from tests.preprocess.support.image_files import encoded, make_folder, smooth


def test_gives_the_bytes_of_each_file_and_the_number_of_its_class(tmp_path: Path) -> None:
    samples = make_folder(tmp_path, ["dog", "cat", "Eel"], 6, ("jpg", "png", "bmp", "webp", "tif"))
    source = open_source("image_folder", {"path": str(tmp_path)})
    assert isinstance(source, Source) and getattr(source, "encoded", False)
    assert source.classes == ("Eel", "cat", "dog") and len(source) == 18  # type: ignore[attr-defined]
    for index, (content, label) in enumerate(samples):
        found, target = source.read(index)
        assert found.dtype == np.uint8 and found.ndim == 1
        assert bytes(found) == content and target == label


def test_decoded_samples_are_the_images_that_were_put_in(tmp_path: Path) -> None:
    images = [smooth(seed, 10 + seed, 12) for seed in range(4)]
    (tmp_path / "one").mkdir()
    for number, image in enumerate(images):
        (tmp_path / "one" / f"{number}.png").write_bytes(encoded(image, "png"))
    source = open_source("image_folder", {"path": str(tmp_path)})
    assert source.layout.input_shape == (-1, 12, 3)
    for index, image in enumerate(images):
        assert np.array_equal(decode_picture(source.read(index)[0], 3), image)


@pytest.mark.parametrize(("sizes", "height"), [((20,), 20), ((20, 20, 20, 20, 20, 21), -1)])
def test_layout_tells_sizes_that_differ(tmp_path: Path, sizes: tuple[int, ...], height: int) -> None:
    make_folder(tmp_path, ["a"], 6, sizes=sizes)
    for channels in (3, 1):
        source = open_source("image_folder", {"path": str(tmp_path), "channels": channels})
        assert source.layout.input_shape == (height, 24, channels) and source.layout.input_dtype == "uint8"
        assert source.layout.target_shape == () and source.layout.target_dtype == "int64"


def test_broken_image_does_not_hide_the_layout_of_the_others(tmp_path: Path) -> None:
    make_folder(tmp_path, ["a"], 3)
    (tmp_path / "a" / "000.jpg").write_bytes(b"no image")
    assert open_source("image_folder", {"path": str(tmp_path)}).layout.input_shape == (20, 24, 3)


def test_finds_images_at_any_depth_and_leaves_other_files_alone(tmp_path: Path) -> None:
    make_folder(tmp_path, ["a", "b"], 1)
    (tmp_path / "a" / "deep" / "er").mkdir(parents=True)
    for name in ("deep/er/Z.JPEG", "deep/x.jpg", "notes.txt", ".hidden.jpg", "jpg"):
        (tmp_path / "a" / name).write_bytes(name.encode())
    (tmp_path / "README.jpg").write_bytes(b"beside the classes")
    (tmp_path / ".cache").mkdir()
    source = open_source("image_folder", {"path": str(tmp_path)})
    names = [os.path.relpath(str(source.describe(index)), tmp_path) for index in range(len(source))]  # type: ignore[attr-defined]
    assert names == ["a/000.jpg", "a/deep/er/Z.JPEG", "a/deep/x.jpg", "b/000.jpg"]
    assert [int(source.read(index)[1]) for index in range(len(source))] == [0, 0, 0, 1]


def test_classes_and_extensions_may_be_given(tmp_path: Path) -> None:
    make_folder(tmp_path, ["b", "c"], 2, ("jpg", "png"))
    source = open_source("image_folder", {"path": str(tmp_path), "classes": ["a", "b", "c"], "extensions": [".PNG"]})
    assert [int(source.read(index)[1]) for index in range(len(source))] == [1, 2]
    assert source.classes == ("a", "b", "c")  # type: ignore[attr-defined]


def test_subset_of_an_encoded_source_is_encoded(tmp_path: Path) -> None:
    samples = make_folder(tmp_path, ["a"], 5)
    source = open_source("image_folder", {"path": str(tmp_path)}, [1, 5, 2])
    assert getattr(source, "encoded", False)
    assert [bytes(source.read(index)[0]) for index in range(2)] == [samples[1][0], samples[3][0]]


def test_mistakes_are_told(tmp_path: Path) -> None:
    def refused(text: str, path: Path = tmp_path / "data", **arguments: object) -> None:
        with pytest.raises(SourceError, match=text) as caught:
            open_source("image_folder", {"path": str(path), **arguments})
        assert "\n" not in str(caught.value)

    refused("there is no such folder; paths are relative to")
    (tmp_path / "file").write_text("text")
    refused("is a file, not a folder", tmp_path / "file")
    (tmp_path / "data").mkdir()
    refused("holds no folders of images; arrange it as CLASS/IMAGE.jpg")
    (tmp_path / "data" / "x.png").write_bytes(b"")
    refused("holds images, but no folder for each class; arrange it")
    (tmp_path / "data" / "empty").mkdir()
    refused("the folder of class 'empty' holds no image .*; remove it or fill it")
    (tmp_path / "data" / "empty" / "x.jpg").write_bytes(b"")
    refused("images are decoded to 3 channels or to 1", channels=4)
    refused("extensions are a list of file endings", extensions=[3])
    refused("has this class, and classes has not: full", classes=["full"])
    with pytest.raises(SourceError, match="none of its images can be read"):
        _ = open_source("image_folder", {"path": str(tmp_path / "data")}).layout
    make_folder(tmp_path / "parts" / "train", ["a"], 1)
    make_folder(tmp_path / "parts" / "val", ["a"], 1)
    refused("are parts of the data, not classes; give one of them", tmp_path / "parts")


@pytest.mark.parametrize("subset", [None, [1, 5]])
def test_a_picture_that_cannot_be_decoded_is_told_by_its_file(tmp_path: Path, subset: list[int] | None) -> None:
    make_folder(tmp_path / "pictures", ["cat", "dog"], 3)
    torn = sorted(path for path in (tmp_path / "pictures").rglob("*.*"))[2]
    torn.write_bytes(b"no picture")
    source = SourceSpec("image_folder", {"path": str(tmp_path / "pictures")}, subset)
    crop = {"random_resized_crop": {"size": 8}}
    dataset = Dataset(DatasetSpec("pictures", source, transforms=[crop]))
    inputs, targets = dataset.layout.empty(1)
    sample = 2 if subset is None else 1
    with pytest.raises(SampleError, match=f"DecodeError: {re.escape(str(torn))}: cannot decode the picture of 10 byte"):
        dataset.make(TRAIN, 0, 0, sample, inputs[0], targets)
