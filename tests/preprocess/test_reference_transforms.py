"""Each built-in transform does what its definition says, at every size and draw, and writes where it is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocess import SampleLayout
from preprocess.samples.errors import TransformError
from preprocess.samples.order import SampleGenerator
from preprocess.transforms.decode import decode_picture
from preprocess.transforms.images import ColourJitter, Flip, RandomResizedCrop, Resize
from preprocess.transforms.transform import Pipeline, UserTransform, build_transforms
from tests.preprocess.support.photographs import encoded, photograph
from tests.preprocess.support.plain_transforms import JITTERS, SCALINGS, drawn_part

SOME = settings(deadline=None, max_examples=60)

SIDES = st.integers(1, 40)
SAMPLES = st.integers(0, 2**40)
CHANNELS = st.sampled_from([1, 3])


def noise(height: int, width: int, channels: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), np.uint8)


def generator(sample: int) -> np.random.Generator:
    return SampleGenerator()(5, 2, sample)


@SOME
@given(SIDES, SIDES, SIDES, SIDES, CHANNELS, st.sampled_from(["linear", "linear_exact", "cubic", "nearest"]))
def test_resize_is_within_a_level_of_its_definition(
    rows: int, columns: int, height: int, width: int, channels: int, name: str
) -> None:
    image = noise(rows, columns, channels)
    found = Resize([height, width], name)(image, generator(0))
    assert found.shape == (height, width, channels) and found.dtype == np.uint8
    allowed = {"nearest": 0, "cubic": 2}.get(name, 1.1)  # a level, and what fixed point adds: 1.012 was found
    assert np.abs(found - SCALINGS[name](image, height, width)).max() <= allowed


@SOME
@given(SIDES, SIDES, st.floats(0.01, 1), st.floats(0.01, 1), CHANNELS)
def test_shrinking_by_area_takes_means(rows: int, columns: int, down: float, across: float, channels: int) -> None:
    image = noise(rows, columns, channels)
    height, width = max(1, int(rows * down)), max(1, int(columns * across))
    found = Resize([height, width], "area")(image, generator(0))
    assert np.abs(found - SCALINGS["area"](image, height, width)).max() <= 1


@SOME
@given(SIDES, SIDES, SIDES, SIDES)
def test_linear_resize_is_that_of_torch(rows: int, columns: int, height: int, width: int) -> None:
    image = noise(rows, columns, 3)
    batch = torch.from_numpy(image).permute(2, 0, 1)[None].float()
    wanted = torch.nn.functional.interpolate(batch, (height, width), mode="bilinear", align_corners=False)
    assert np.abs(Resize([height, width])(image, generator(0)) - wanted[0].permute(1, 2, 0).numpy()).max() <= 1


@SOME
@given(SIDES, SIDES, SIDES)
def test_the_shortest_side_is_set_and_proportions_are_kept(rows: int, columns: int, shortest: int) -> None:
    step = Resize(shortest=shortest)
    wanted = (
        (shortest, int(shortest * columns / rows)) if rows <= columns else (int(shortest * rows / columns), shortest)
    )
    assert step.output_shape((rows, columns, 3)) == (*wanted, 3) and step.output_shape((-1, columns, 3)) == (-1, -1, 3)
    found = step(noise(rows, columns, 3), generator(0))
    assert np.array_equal(found, Resize(wanted)(noise(rows, columns, 3), generator(0)))


@SOME
@given(SIDES, SIDES, SAMPLES, st.sampled_from([(0.08, 1.0), (0.5, 0.5), (0.9, 1.0)]))
def test_parts_are_drawn_as_torchvision_draws_them(
    rows: int, columns: int, sample: int, scale: tuple[float, float]
) -> None:
    ratio = (3 / 4, 4 / 3)
    found = RandomResizedCrop(8, scale).draw(rows, columns, generator(sample))
    assert found == drawn_part(rows, columns, scale, ratio, generator(sample))
    top, left, height, width = found
    assert min(top, left) >= 0 and min(height, width) > 0 and top + height <= rows and left + width <= columns


@pytest.mark.parametrize(
    ("rows", "columns", "ratio", "wanted"),
    [
        (300, 10, (0.75, 4 / 3), (143, 0, 13, 10)),
        (10, 300, (0.75, 4 / 3), (0, 143, 10, 13)),
        (20, 20, (3.0, 4.0), (6, 0, 7, 20)),
        (3, 2, (0.0001, 0.0001), (0, 0, 3, 1)),
        (2, 3, (9000.0, 9000.0), (0, 0, 1, 3)),
    ],
)
def test_the_middle_is_taken_where_no_part_fits(
    rows: int, columns: int, ratio: tuple[float, float], wanted: tuple[int, int, int, int]
) -> None:
    crop = RandomResizedCrop(8, (1.0, 1.0), ratio)
    assert (
        crop.draw(rows, columns, generator(0)) == wanted == drawn_part(rows, columns, (1.0, 1.0), ratio, generator(0))
    )


@SOME
@given(SIDES, SIDES, SIDES, SIDES, CHANNELS, SAMPLES, st.sampled_from(["linear", "cubic", "nearest"]))
def test_random_resized_crop_scales_the_part(
    rows: int, columns: int, height: int, width: int, channels: int, sample: int, name: str
) -> None:
    image = noise(rows, columns, channels)
    crop = RandomResizedCrop([height, width], interpolation=name)
    top, left, tall, wide = drawn_part(rows, columns, (0.08, 1.0), (3 / 4, 4 / 3), generator(sample))
    wanted = SCALINGS[name](image[top : top + tall, left : left + wide], height, width)
    allowed = {"nearest": 0, "cubic": 2}.get(name, 1.1)  # a level, and what fixed point adds: 1.012 was found
    assert np.abs(crop(image, generator(sample)) - wanted).max() <= allowed


def test_areas_and_proportions_of_parts_are_spread_evenly() -> None:
    crop = RandomResizedCrop(8)
    parts = np.array([crop.draw(200, 200, generator(sample)) for sample in range(2000)])
    areas, ratios = parts[:, 2] * parts[:, 3] / 200**2, np.log(parts[:, 3] / parts[:, 2])
    assert 0.07 < areas.min() < 0.09 and 0.95 < areas.max() <= 1 and 0.45 < np.median(areas) < 0.58
    assert abs(ratios.mean()) < 0.01 and np.abs(ratios).max() < np.log(4 / 3) + 0.05


@SOME
@given(SIDES, SIDES, CHANNELS, st.floats(0, 1), st.sampled_from(["horizontal", "vertical"]), SAMPLES)
def test_flip_mirrors_every_dtype(
    rows: int, columns: int, channels: int, probability: float, direction: str, sample: int
) -> None:
    image = noise(rows, columns, channels)
    mirrored = np.flip(image, 1 if direction == "horizontal" else 0)
    wanted = mirrored if generator(sample).random() < probability else image
    for dtype in (np.uint8, np.float32, np.int64):
        given_image = image.astype(dtype)
        flip = Flip(probability, direction)
        assert np.array_equal(flip(given_image, generator(sample)), wanted.astype(dtype))
        out = np.empty_like(given_image)
        flip(given_image, generator(sample), out)
        assert np.array_equal(given_image, image.astype(dtype))
        assert flip(given_image, generator(sample), given_image) is given_image
        assert np.array_equal(given_image, wanted.astype(dtype))


@st.composite
def jitters(draw: st.DrawFn) -> dict[str, Any]:
    factors = st.sampled_from([0, 0.4, 1.5, [0.5, 2.0], [0, 0.2], [1, 1]])
    turns = st.sampled_from([0, 0.1, 0.5, [0.25, 0.25], [-0.5, 0.1]])
    names = ("brightness", "contrast", "saturation")
    return {**{name: draw(factors) for name in names}, "hue": draw(turns)}


@pytest.mark.parametrize(("name", "number"), [("brightness", 0), ("contrast", 1), ("saturation", 2)])
@SOME
@given(rows=SIDES, columns=SIDES, channels=CHANNELS, factor=st.floats(0, 3))
def test_a_factor_is_within_a_level_of_its_definition(
    name: str, number: int, rows: int, columns: int, channels: int, factor: float
) -> None:
    image = noise(rows, columns, channels)
    found = ColourJitter(**{name: [factor, factor]})(image, generator(0))
    assert np.abs(found - JITTERS[number](image.astype(float), factor)).max() <= 1


@SOME
@given(SIDES, SIDES, CHANNELS, st.floats(-0.5, 0.5))
def test_hue_is_near_its_definition(rows: int, columns: int, channels: int, turn: float) -> None:
    image = noise(rows, columns, channels)
    off = np.abs(ColourJitter(hue=[turn, turn])(image, generator(0)) - JITTERS[3](image.astype(float), turn))
    assert off.max() <= 13 and (off.mean() <= 2 or off.size < 300)  # hue and saturation are bytes on the way


def test_hue_of_pure_colours() -> None:
    red, green, blue = (np.full((1, 1, 3), colour, np.uint8) for colour in ([255, 0, 0], [0, 255, 0], [0, 0, 255]))
    for turn, wanted in ((1 / 3, green), (-1 / 3, blue), (0.5, 255 - red)):
        assert np.abs(ColourJitter(hue=[turn, turn])(red, generator(0)).astype(int) - wanted).max() <= 6  # a step


@SOME
@given(SIDES, SIDES, CHANNELS, jitters(), SAMPLES)
def test_colour_jitter_takes_its_steps_in_the_order_drawn(
    rows: int, columns: int, channels: int, parameters: dict[str, Any], sample: int
) -> None:
    image = noise(rows, columns, channels)
    rng = generator(sample)
    order = rng.permutation(4)
    factors: list[float | None] = []
    for name, value in parameters.items():
        centre = 0 if name == "hue" else 1
        ends = value if isinstance(value, list) else [centre - value, centre + value]
        ends = ends if name == "hue" else [max(0, ends[0]), ends[1]]
        factors.append(None if ends == [centre, centre] else rng.uniform(*ends))
    wanted = image
    for number in order:
        if factors[number] is not None:
            step = {list(parameters)[number]: [factors[number]] * 2}
            wanted = ColourJitter(**step)(wanted, generator(0))
    assert np.array_equal(ColourJitter(**parameters)(image, generator(sample)), wanted)


@st.composite
def pipelines(draw: st.DrawFn) -> list[Any]:
    sizes = st.integers(1, 30)
    steps = st.one_of(
        st.builds(lambda size: {"resize": {"size": size}}, sizes),
        st.builds(lambda size: {"resize": {"shortest": size, "interpolation": "area"}}, sizes),
        st.builds(lambda size: {"random_resized_crop": {"size": size}}, sizes),
        st.builds(lambda size: {"random_crop": {"size": size, "padding": 30, "fill": 7}}, sizes),
        st.builds(lambda size: {"center_crop": {"size": size}}, st.integers(1, 3)),
        st.just({"center_crop": {"size": 1}}),
        st.sampled_from(["flip", {"flip": {"direction": "vertical"}}, {"flip": {"probability": 1}}]),
        st.just({"rotation": {"degrees": 90, "fill": 3}}),
        st.builds(lambda parameters: {"colour_jitter": parameters}, jitters()),
    )
    return draw(st.lists(steps, max_size=5))


@given(pipelines(), st.integers(3, 40), st.integers(3, 40), CHANNELS, SAMPLES, st.booleans())
@settings(deadline=None, max_examples=300)
def test_a_pipeline_gives_the_same_in_the_slot_as_step_by_step(
    steps: list[Any], rows: int, columns: int, channels: int, sample: int, own: bool
) -> None:
    image = noise(rows, columns, channels, sample)
    pipeline = build_transforms(steps)
    if own:
        backwards = UserTransform("own", lambda image, rng: image[::-1])
        pipeline = Pipeline((*pipeline.transforms[:2], backwards, *pipeline.transforms[2:]))
    try:
        layout = pipeline.output_layout(SampleLayout(image.shape, "uint8"))
    except TransformError as error:  # a centre crop of less
        assert "no larger than the image" in str(error)
        return
    wanted, rng = image, generator(sample)
    for transform in pipeline.transforms:
        wanted = np.array(transform(wanted, rng))
    before, slot = image.copy(), np.empty(layout.input_shape, layout.input_dtype)
    image.setflags(write=False)
    pipeline.apply_into(image, generator(sample), slot)
    assert np.array_equal(slot, wanted) and np.array_equal(image, before)


def test_encoded_pictures_of_any_size_end_in_the_slot() -> None:
    pipeline = build_transforms([{"random_resized_crop": {"size": [20, 24]}}, "flip"], encoded=True)
    assert pipeline.output_layout(SampleLayout((-1, -1, 3), "uint8")).input_shape == (20, 24, 3)
    for sample, size in enumerate([(50, 70), (33, 20), (1, 1)]):
        content = encoded(photograph(*size, sample), "JPEG")
        slot = np.zeros((20, 24, 3), np.uint8)
        pipeline.apply_into(np.frombuffer(content, np.uint8), generator(sample), slot)
        rng = generator(sample)
        wanted = Flip()(RandomResizedCrop([20, 24])(decode_picture(content), rng), rng)
        assert np.array_equal(slot, wanted)
