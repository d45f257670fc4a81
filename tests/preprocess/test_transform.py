"""The built-in transforms do what a plain implementation does, and a spec's mistakes are named."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preprocess import SampleLayout
from preprocess.samples.errors import TransformError
from preprocess.samples.order import SampleGenerator
from preprocess.transforms.decode import Decode
from preprocess.transforms.images import Rotation
from preprocess.transforms.transform import build_transforms
from tests.preprocess.support.photographs import encoded

Steps = list[Mapping[str, Mapping[str, Any]] | str]

PHOTO = np.random.default_rng(0).integers(0, 256, (12, 10, 3), np.uint8)


def apply(steps: list[Any], image: np.ndarray, sample: int = 0) -> np.ndarray:
    pipeline = build_transforms(steps)
    layout = pipeline.output_layout(SampleLayout(image.shape, str(image.dtype)))
    out = np.empty(layout.input_shape, layout.input_dtype)
    before = image.copy()
    pipeline.apply_into(image, SampleGenerator()(1, 0, sample), out)
    assert np.array_equal(image, before)
    return out


@given(st.integers(1, 8), st.integers(1, 8), st.integers(0, 9), st.integers(0, 9), st.integers(0, 50))
def test_random_crop(height: int, width: int, pad_y: int, pad_x: int, sample: int) -> None:
    step = {"random_crop": {"size": [height, width], "padding": [pad_y, pad_x], "fill": 9}}
    padded = np.pad(PHOTO, ((pad_y, pad_y), (pad_x, pad_x), (0, 0)), constant_values=9)
    rng = SampleGenerator()(1, 0, sample)
    top = rng.integers(padded.shape[0] - height + 1)
    left = rng.integers(padded.shape[1] - width + 1)
    assert np.array_equal(apply([step], PHOTO, sample), padded[top : top + height, left : left + width])


def test_random_crop_reaches_every_place() -> None:
    image = np.arange(16, dtype=np.uint8).reshape(4, 4, 1)
    corners = {int(apply([{"random_crop": {"size": 2}}], image, sample)[0, 0, 0]) for sample in range(200)}
    assert corners == {0, 1, 2, 4, 5, 6, 8, 9, 10}


def test_center_crop() -> None:
    assert np.array_equal(apply([{"center_crop": {"size": [4, 6]}}], PHOTO), PHOTO[4:8, 2:8])


@pytest.mark.parametrize(("direction", "axis"), [("horizontal", 1), ("vertical", 0)])
def test_flip(direction: str, axis: int) -> None:
    step = {"flip": {"direction": direction}}
    flipped = 0
    for sample in range(200):
        wanted = np.flip(PHOTO, axis) if SampleGenerator()(1, 0, sample).random() < 0.5 else PHOTO
        found = apply([step], PHOTO, sample)
        assert np.array_equal(found, wanted)
        flipped += not np.array_equal(found, PHOTO)
    assert 60 < flipped < 140
    assert np.array_equal(apply([{"flip": {"probability": 0}}], PHOTO), PHOTO)
    assert np.array_equal(apply([{"flip": {"probability": 1}}], PHOTO), PHOTO[:, ::-1])


@pytest.mark.parametrize("channels", [1, 3])
def test_resize(channels: int) -> None:
    image = PHOTO[..., :channels]
    wanted = cv2.resize(image, (5, 6), interpolation=cv2.INTER_AREA).reshape(6, 5, channels)
    assert np.array_equal(apply([{"resize": {"size": [6, 5], "interpolation": "area"}}], image), wanted)
    blocks = image.reshape(6, 2, 5, 2, channels).astype(float).mean((1, 3))  # what area means, halving both sides
    assert np.abs(wanted - blocks).max() <= 0.5
    assert apply([{"flip": {"probability": 1}}, {"resize": {"size": 4}}], image).shape == (4, 4, channels)


def rotated(image: np.ndarray, degrees: float) -> np.ndarray:
    """Rotate by looking up, for each pixel, the four around the place where it comes from."""
    height, width, _ = image.shape
    centre_y, centre_x = (height - 1) / 2, (width - 1) / 2
    angle = np.deg2rad(degrees)
    padded = np.pad(image.astype(float), ((1, 1), (1, 1), (0, 0)))
    out = np.zeros(image.shape)
    for y in range(height):
        for x in range(width):
            dy, dx = y - centre_y, x - centre_x
            from_x = np.cos(angle) * dx - np.sin(angle) * dy + centre_x + 1
            from_y = np.sin(angle) * dx + np.cos(angle) * dy + centre_y + 1
            if not (0 <= from_x < width + 1 and 0 <= from_y < height + 1):
                continue
            x0, y0 = int(from_x), int(from_y)
            fx, fy = from_x - x0, from_y - y0
            rows = padded[y0 : y0 + 2, x0 : x0 + 2]
            out[y, x] = (1 - fy) * ((1 - fx) * rows[0, 0] + fx * rows[0, 1]) + fy * (
                (1 - fx) * rows[1, 0] + fx * rows[1, 1]
            )
    return out


@pytest.mark.parametrize("channels", [1, 3])
def test_rotation(channels: int) -> None:
    image = cv2.GaussianBlur(PHOTO, (5, 5), 2)[..., :channels]  # smooth: OpenCV rounds places to 1/32 pixel
    for sample in range(5):
        degrees = SampleGenerator()(1, 0, sample).uniform(-30, 30)
        found = apply([{"rotation": {"degrees": 30}}], image, sample)
        assert np.abs(found - rotated(image, degrees)).max() <= 6
    assert np.array_equal(apply([{"rotation": {"degrees": 0}}], image), image)


def test_rotation_turns_a_quarter() -> None:
    square = np.ascontiguousarray(PHOTO[:10])

    class Quarter(np.random.Generator):
        def uniform(self, low: Any = 0.0, high: Any = 1.0, size: Any = None) -> Any:
            return 90.0

    found = Rotation(180)(square, Quarter(np.random.Philox(0)))
    assert np.array_equal(found, np.rot90(square))


def test_layouts() -> None:
    layout = SampleLayout((12, 10, 3), "uint8", (), "int64")
    steps: Steps = [{"resize": {"size": 20}}, {"random_crop": {"size": 8}}, "flip", {"center_crop": {"size": [3, 4]}}]
    assert build_transforms(steps).output_layout(layout) == SampleLayout((3, 4, 3), "uint8", (), "int64")
    assert build_transforms([]).output_layout(layout) == layout
    vector = SampleLayout((5,), "float32")
    out = np.empty(5, np.float32)
    build_transforms(None).apply_into(np.arange(5, dtype=np.float32), None, out)
    assert np.array_equal(out, np.arange(5)) and build_transforms(None).output_layout(vector) == vector
    with pytest.raises(ValueError, match=r"\(4,\) of float32, all others are \(5,\)"):
        build_transforms(None).apply_into(np.zeros(4, np.float32), None, out)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "own_transforms.py").write_text(
        """
import numpy as np

def invert(image, rng):
    return 255 - image

class Scale:
    def __init__(self, factor=2.0):
        self.factor = factor
    def __call__(self, image, rng):
        return image[::2].astype(np.float32) * np.float32(self.factor)

def broken(image, rng):
    raise RuntimeError("no")

def halved(image, rng):
    return image[::2]

def middle(image, rng):
    return image[100:164, 80:176]

def flat(image, rng):
    return image.reshape(-1) if len(image) == 384 else image
"""
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("own_transforms", None)


def test_own_transforms(module: Any) -> None:
    assert np.array_equal(apply(["own_transforms:invert"], PHOTO), 255 - PHOTO)
    found = apply([{"own_transforms:Scale": {"factor": 3}}, "own_transforms:Scale"], PHOTO)
    assert found.dtype == np.float32 and np.array_equal(found, PHOTO[::4] * np.float32(6))
    assert build_transforms(["own_transforms:invert"]).has_user_code and not build_transforms(["flip"]).has_user_code


@pytest.mark.parametrize(
    ("step", "text"),
    [
        ({"fliip": {}}, "no transform has this name; did you mean 'flip'.*or module:Name"),
        ({"normalise": {"mean": [0]}}, "normalisation happens in the trainer"),
        ({"random_crop": {"size": 8, "pading": 1}}, "'pading': .*no such parameter; did you mean 'padding'"),
        ({"random_crop": {}}, "lacks a parameter; its parameters: size, padding, fill"),
        ({"random_crop": {"size": 0}}, "0: size is a whole number"),
        ({"random_crop": {"size": [1, 2, 3]}}, "size is a whole number"),
        ({"random_crop": {"size": 2.5}}, "size is a whole number"),
        ({"resize": {"size": 8, "interpolation": "bilinear"}}, "did you mean 'linear'"),
        ({"flip": {"probability": 2}}, "2: probability is a number from 0 to 1"),
        ({"flip": {"direction": "up"}}, "no such direction; .*known: horizontal, vertical"),
        ({"rotation": {"degrees": "ten"}}, "degrees is a number from 0 to 180"),
        ({"resize": {}}, "resize takes size or shortest, one of them"),
        ({"resize": {"size": 8, "shortest": 8}}, "resize takes size or shortest, one of them"),
        ({"resize": {"shortest": [8, 8]}}, "shortest is a whole number of at least 1"),
        ({"random_resized_crop": {}}, "lacks a parameter; its parameters: size, scale, ratio, interpolation"),
        ({"random_resized_crop": {"size": 8, "scale": 0.5}}, r"scale is a range of two numbers; write scale: \[0, 1\]"),
        ({"random_resized_crop": {"size": 8, "scale": [0, 1]}}, "scale is above 0"),
        ({"random_resized_crop": {"size": 8, "scale": [0.5, 2]}}, "2: scale is a number from 0 to 1"),
        ({"random_resized_crop": {"size": 8, "ratio": [2, 1]}}, r"\[least, greatest\]; write ratio: \[1, 2\]"),
        ({"random_resized_crop": {"size": 8, "interpolation": "lineer"}}, "did you mean 'linear'"),
        ({"colour_jitter": {"brightness": -1}}, "-1: brightness is a number from 0"),
        ({"colour_jitter": {"contrast": "much"}}, "contrast is a range of two numbers"),
        ({"colour_jitter": {"hue": 0.6}}, "0.6: hue is a number from 0 to 0.5"),
        ({"colour_jitter": {"hue": [-1, 0]}}, "-1: hue is a number from -0.5 to 0.5"),
        ({"colour_jitter": {"saturation": True}}, "saturation is a number from 0"),
        ({"color_jitter": {}}, "did you mean 'colour_jitter'"),
        ({"decode": {"channels": 4}}, "4: channels is 3 for RGB or 1 for grey"),
        ({"flip": {}, "resize": {}}, "one name with its parameters"),
        ({"flip": 0.5}, "the parameters of 'flip' are names with values"),
        (3, "one name with its parameters"),
        ("own_transforms:inverse", "has no 'inverse'; did you mean 'invert'"),
        ({"own_transforms:Scale": {"size": 2}}, "raised TypeError"),
    ],
)
def test_mistakes(module: Any, step: Any, text: str) -> None:
    with pytest.raises(TransformError, match=text):
        build_transforms([step])


@pytest.mark.parametrize(
    ("step", "shape", "text"),
    [
        ({"random_crop": {"size": 20, "padding": 2}}, (12, 10, 3), "no larger than the image, which is 16 x 14"),
        ({"center_crop": {"size": 11}}, (12, 10, 3), "no larger than the image"),
        ({"flip": {}}, (12,), "flip works on images of .height, width, channels."),
        ({"rotation": {"degrees": 3}}, (12, 10, 5), "at most 4 channels"),
        ({"colour_jitter": {}}, (12, 10, 2), "works on images of 1 or 3 channels"),
        ({"center_crop": {"size": 11}}, (-1, 10, 3), "no larger than the image, which is -1 x 10"),
        ("own_transforms:broken", (12, 10, 3), "trying it on zeros.*raised RuntimeError: no"),
    ],
)
def test_transforms_that_do_not_fit(module: Any, step: Any, shape: tuple[int, ...], text: str) -> None:
    with pytest.raises(TransformError, match=text):
        build_transforms([step]).output_layout(SampleLayout(shape, "uint8"))


VARYING = SampleLayout((-1, -1, 3), "uint8")


def test_built_in_transforms_are_tried_on_the_dtype() -> None:
    with pytest.raises(TransformError, match="colour_jitter works on bytes"):
        build_transforms([{"colour_jitter": {}}]).output_layout(SampleLayout((12, 10, 3), "float32"))
    with pytest.raises(TransformError, match="'resize': trying it on zeros.*and dtype complex64 raised"):
        build_transforms([{"resize": {"size": 3}}]).output_layout(SampleLayout((12, 10, 3), "complex64"))


def test_encoded_pictures_are_decoded_first() -> None:
    steps: Steps = [{"resize": {"size": [6, 4]}}, "flip"]
    explicit: Steps = [{"decode": {"channels": 1}}]
    first, *_ = build_transforms(steps, encoded=True).transforms
    assert first == Decode(3) and build_transforms(steps, encoded=True, channels=1).transforms[0] == Decode(1)
    assert build_transforms([*explicit, *steps], encoded=True).transforms[0] == Decode(1)
    assert build_transforms([*explicit, *steps]).output_layout(VARYING).input_shape == (6, 4, 1)
    assert build_transforms(steps).transforms == build_transforms(steps, encoded=False).transforms
    fixed = SampleLayout((12, 10, 3), "uint8")
    assert build_transforms([], encoded=True).output_layout(fixed) == fixed
    with pytest.raises(TransformError, match="only the first transform can decode; put decode first"):
        build_transforms([*steps, "decode"], encoded=True)
    with pytest.raises(TransformError, match="gives images that are decoded already; leave out decode"):
        build_transforms(["decode", *steps], encoded=False)


def test_images_of_many_sizes_must_end_in_one(module: Any) -> None:
    fitting: Steps = [{"resize": {"shortest": 30}}, {"center_crop": {"size": 24}}, "flip", {"rotation": {"degrees": 5}}]
    assert build_transforms(fitting).output_layout(VARYING).input_shape == (24, 24, 3)
    assert build_transforms([{"random_crop": {"size": 9}}]).output_layout(VARYING).input_shape == (9, 9, 3)
    for steps in ([], ["flip"], [{"resize": {"shortest": 30}}], ["own_transforms:halved"]):
        with pytest.raises(TransformError, match="differ in size.*add resize: .* or random_resized_crop"):
            build_transforms(steps).output_layout(VARYING)


def test_own_transforms_of_images_of_many_sizes(module: Any) -> None:
    assert build_transforms(["own_transforms:middle"]).output_layout(VARYING).input_shape == (64, 96, 3)
    steps: Steps = ["own_transforms:halved", {"random_resized_crop": {"size": 7}}]
    assert build_transforms(steps).output_layout(VARYING).input_shape == (7, 7, 3)
    with pytest.raises(TransformError, match="as many dimensions"):
        build_transforms(["own_transforms:flat"]).output_layout(VARYING)


def test_a_crop_of_images_of_many_sizes_is_checked_when_one_comes() -> None:
    for step in ({"random_crop": {"size": 11}}, {"center_crop": {"size": 11}}):
        pipeline = build_transforms([step])
        slot = np.zeros(pipeline.output_layout(VARYING).input_shape, np.uint8)
        with pytest.raises(TransformError, match="no larger than the image, which is 12 x 10"):
            pipeline.apply_into(PHOTO, SampleGenerator()(1, 0, 0), slot)
        pipeline.apply_into(np.full((11, 12, 3), 9, np.uint8), SampleGenerator()(1, 0, 0), slot)
        assert (slot == 9).all()


def test_a_picture_of_another_size_is_refused() -> None:
    pipeline = build_transforms([], encoded=True)
    content = np.frombuffer(encoded(PHOTO, "PNG"), np.uint8)
    with pytest.raises(ValueError, match=r"the sample is \(12, 10, 3\) of uint8, all others are \(12, 11, 3\)"):
        pipeline.apply_into(content, SampleGenerator()(1, 0, 0), np.zeros((12, 11, 3), np.uint8))
    slot = np.zeros((12, 10, 3), np.uint8)
    pipeline.apply_into(content, SampleGenerator()(1, 0, 0), slot)
    assert np.array_equal(slot, PHOTO)
