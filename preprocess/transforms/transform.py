"""The transforms of a data set, built from what a spec says, and applied straight into a slot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import takewhile
from typing import Any, ClassVar, Protocol

import numpy as np

from preprocess.samples.errors import TransformError, load_object, spelling_advice
from preprocess.samples.layout import Array, InputPlace, SampleLayout, SamplePlace
from preprocess.transforms.decode import Decode, Scratch, decode_picture
from preprocess.transforms.images import CenterCrop, ColourJitter, Flip, RandomCrop, RandomResizedCrop, Resize, Rotation

#: The length of a side that is not the same in all images of a source.
_VARIES = -1

#: What stands for (height, width, channels) that vary when a user's transform is tried.
_TRIED = ((256, 320, 3), (384, 352, 1))

#: Transforms that are functions of the image alone.
_DRAW_NOTHING = (Decode, Resize, CenterCrop)


class Transform(Protocol):
    """One step of a pipeline.

    Attributes:
        keeps_shape: every image comes out with the shape and dtype that it came with.
    """

    @property
    def keeps_shape(self) -> bool: ...

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the result for an input of this shape, or raise TransformError.

        A height or width of -1 varies from image to image.
        """
        ...

    def __call__(self, image: Array, rng: np.random.Generator, out: Array | None = None) -> Array:
        """Return the transformed image.

        Args:
            image: not changed, unless it is `out` itself.
            rng: all that is drawn is drawn from it.
            out: where the result may be written if it has the result's shape and dtype; if the transform keeps the
                shape it may be `image` itself; otherwise it does not overlap it.

        Returns:
            `out`, a new array, `image` or a view of it.
        """
        ...


def built_in_transforms() -> dict[str, Callable[..., Transform]]:
    """Return the built-in transforms by name."""
    return {
        "decode": Decode,
        "resize": Resize,
        "random_resized_crop": RandomResizedCrop,
        "random_crop": RandomCrop,
        "center_crop": CenterCrop,
        "flip": Flip,
        "rotation": Rotation,
        "colour_jitter": ColourJitter,
    }


@dataclass(frozen=True)
class UserTransform:
    """A callable f(image, rng) -> image of the user's."""

    name: str
    function: Callable[[Array, np.random.Generator], Any]

    keeps_shape: ClassVar[bool] = False

    def __call__(self, image: Array, rng: np.random.Generator, out: Array | None = None) -> Array:
        return np.asarray(self.function(image, rng))


_Step = Callable[[Array, Any, Array | None], Array]
"""A transform as it is called: with an image, the sample's generator, and where to write, or None."""


@dataclass(frozen=True)
class Pipeline:
    """Transforms applied one after the other.

    Attributes:
        has_user_code: some transform is not built in, and may draw from process-wide generators.
    """

    transforms: tuple[Transform | UserTransform, ...] = ()

    @property
    def has_user_code(self) -> bool:
        return any(isinstance(transform, UserTransform) for transform in self.transforms)

    def output_layout(self, layout: SampleLayout) -> SampleLayout:
        """Return the layout of transformed samples.

        Args:
            layout: the layout of the source's samples, decoded; a height or width of -1 varies from sample to sample.

        A transform is tried on zeros, to learn what shape and dtype a user's gives, and whether a built-in one works
        on this dtype. Where the size varies, a user's is tried on two sizes.

        Raises:
            TransformError: a transform does not fit what comes to it, or samples come out in different sizes.
        """
        layout = self.varying_layout(layout)
        if _VARIES in layout.input_shape:
            rule = "the images differ in size (-1), and the samples of a network have one"
            raise TransformError(layout.input_shape, rule, "add resize: {size: 224}, or random_resized_crop")
        return layout

    def varying_layout(self, layout: SampleLayout) -> SampleLayout:
        """Return the same as `output_layout`, also where samples come out in different sizes (-1)."""
        for transform in self.transforms:
            if isinstance(transform, UserTransform):
                layout = _learned(transform, layout)
            else:
                shape = transform.output_shape(layout.input_shape)
                if _VARIES not in layout.input_shape and not isinstance(transform, Decode):
                    _try(transform, layout.input_shape, layout.input_dtype)
                layout = replace(layout, input_shape=shape)
        return layout

    def split(self) -> tuple[Pipeline, Pipeline]:
        """Return the transforms that draw nothing, up to the first one that may draw, and all from there on."""
        count = len(tuple(takewhile(lambda transform: isinstance(transform, _DRAW_NOTHING), self.transforms)))
        return Pipeline(self.transforms[:count]), Pipeline(self.transforms[count:])

    def apply(self, image: Array) -> Array:
        """Transform one image, by transforms that draw nothing; the result is valid until the next call."""
        for step, _ in self._steps:
            image = step(image, None, None)
        return image

    def apply_into(self, image: Array, rng: np.random.Generator | None, slot_view: InputPlace) -> None:
        """Transform one image and write the result to `slot_view`; rng may be None where no transform draws.

        Raises:
            ValueError: the result does not have the slot's shape and dtype.
        """
        if isinstance(slot_view, SamplePlace):
            for step, _ in self._steps:
                image = step(image, rng, None)
            slot_view.put(image)
            return
        for step, in_slot in self._steps:
            image = step(image, rng, slot_view if in_slot else None)
        if image is slot_view:
            return
        if image.shape != slot_view.shape or image.dtype != slot_view.dtype:
            wanted = f"{slot_view.shape} of {slot_view.dtype}"
            raise ValueError(f"the sample is {image.shape} of {image.dtype}, all others are {wanted}")
        slot_view[...] = image

    @cached_property
    def _steps(self) -> list[tuple[_Step, bool]]:
        """The function to call for each transform, and whether it writes to the slot.

        Those do that come after the last one to change the shape, and that one itself. A user's own never does, nor
        one before it: its result may be kept, or be a view of what it was given.
        """
        last = max((i for i, transform in enumerate(self.transforms) if not transform.keeps_shape), default=0)
        scratch = None if self.has_user_code else Scratch()  # a user's transform may keep what it is given
        return [(_step(transform, scratch), i >= last) for i, transform in enumerate(self.transforms)]


def _step(transform: Transform | UserTransform, scratch: Scratch | None) -> _Step:
    if not isinstance(transform, Decode):
        return transform
    channels = transform.channels
    return lambda image, rng, out: decode_picture(image, channels, out, scratch)


def build_transforms(
    steps: Sequence[Mapping[str, Mapping[str, Any]] | str] | None, encoded: bool | None = None, channels: int = 3
) -> Pipeline:
    """Build a pipeline from a spec's list, such as [{random_crop: {size: 28, padding: 2}}, {flip: {}}].

    Args:
        steps: each names one transform and its parameters: a built-in one, or module:Name of a callable
            f(image, rng) -> image; where parameters are given, or it is a class, Name(**parameters) gives the callable.
        encoded: whether the source gives encoded pictures; if it does, they are decoded first, also where the list
            does not begin with `decode_picture`. None: not known, and `decode_picture` is neither added nor refused.
        channels: channels of a decoded picture where the list does not say: 3 for RGB, 1 for grey.

    Raises:
        TransformError: unknown transform or parameter, or a value that breaks its rule.
    """
    transforms = [_build(*_name_and_parameters(step)) for step in steps or ()]
    decodes = [isinstance(transform, Decode) for transform in transforms]
    if any(decodes[1:]):
        raise TransformError("decode", "only the first transform can decode", "put decode first, and once")
    if any(decodes) and encoded is False:
        raise TransformError("decode", "the source gives images that are decoded already", "leave out decode")
    if encoded and not any(decodes):
        transforms.insert(0, Decode(channels))
    return Pipeline(tuple(transforms))


def _name_and_parameters(step: Any) -> tuple[str, dict[str, Any]]:
    if isinstance(step, str):
        return step, {}
    if not (isinstance(step, Mapping) and len(step) == 1):
        raise TransformError(step, "a transform is one name with its parameters", "write {flip: {probability: 0.5}}")
    ((name, parameters),) = step.items()
    if not isinstance(parameters or {}, Mapping):
        rule = f"the parameters of {name!r} are names with values"
        raise TransformError(parameters, rule, f"write {{{name}: {{parameter: value}}}}")
    return str(name), dict(parameters or {})


def _build(name: str, parameters: dict[str, Any]) -> Transform | UserTransform:
    if ":" in name:
        return _user_transform(name, parameters)
    built_in: dict[str, Any] = built_in_transforms()
    if name not in built_in:
        hint = "normalisation happens in the trainer, see normalise; " if name.startswith("normali") else ""
        advice = f"{hint}{spelling_advice(name, built_in)}; or module:Name of a callable"
        raise TransformError(name, "no transform has this name", advice)
    known = {field.name: field for field in fields(built_in[name])}
    for key in parameters:
        if key not in known:
            raise TransformError(key, f"transform {name!r} has no such parameter", spelling_advice(key, known))
    try:
        transform: Transform = built_in[name](**parameters)
    except TypeError as cause:
        rule = f"transform {name!r} lacks a parameter"
        raise TransformError(parameters, rule, f"its parameters: {', '.join(known)}") from cause
    return transform


def _user_transform(name: str, parameters: dict[str, Any]) -> UserTransform:
    found = load_object(name, TransformError)
    try:
        function = found(**parameters) if parameters or isinstance(found, type) else found
    except Exception as cause:  # the user's code may raise anything
        rule = f"calling it with {parameters} raised {type(cause).__name__}: {cause}"
        raise TransformError(name, rule, "mend its parameters") from cause
    if not callable(function):
        raise TransformError(name, f"gave a {type(function).__name__}, not a callable", "give f(image, rng) -> image")
    return UserTransform(name, function)


def _learned(transform: UserTransform, layout: SampleLayout) -> SampleLayout:
    """Try a user's transform to learn what it gives; a side that follows the input's varies as that does."""
    sizes = _TRIED if _VARIES in layout.input_shape else _TRIED[:1]
    shapes = [
        tuple(tried if side == _VARIES else side for side, tried in zip(layout.input_shape, size)) for size in sizes
    ]
    results = [_try(transform, shape, layout.input_dtype) for shape in shapes]
    if len({result.ndim for result in results}) > 1:
        rule = f"it gives {results[0].shape} for an image of {shapes[0]}, and {results[1].shape} for one of {shapes[1]}"
        raise TransformError(transform.name, rule, "let all results have as many dimensions")
    sides = zip(*(result.shape for result in results))
    shape = tuple(lengths[0] if len(set(lengths)) == 1 else _VARIES for lengths in sides)
    return replace(layout, input_shape=shape, input_dtype=str(results[0].dtype))


def _try(transform: Transform | UserTransform, shape: tuple[int, ...], dtype: str) -> Array:
    try:
        return transform(np.zeros(shape, dtype), np.random.Generator(np.random.Philox(0)))
    except TransformError:
        raise
    except Exception as cause:  # the user's code may raise anything, and so may OpenCV
        rule = f"trying it on zeros of shape {shape} and dtype {dtype} raised {type(cause).__name__}: {cause}"
        if isinstance(transform, UserTransform):
            mend = "let it work on such images: f(image, rng) -> image"
            raise TransformError(transform.name, rule, mend) from cause
        raise TransformError(_name_of(transform), rule, "leave it out, or put it before what makes no bytes") from cause


def _name_of(transform: Transform) -> str:
    return next(name for name, kind in built_in_transforms().items() if kind is type(transform))
