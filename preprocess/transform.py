"""The transforms of a data set, built from what a spec says, and applied straight into a slot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

import numpy as np

from preprocess.errors import TransformError, nearest
from preprocess.layout import Array, SampleLayout
from preprocess.names import load_object
from preprocess.transforms.crop import CenterCrop, RandomCrop
from preprocess.transforms.flip import Flip
from preprocess.transforms.resize import Resize
from preprocess.transforms.rotation import Rotation

__all__ = ["Pipeline", "Transform", "UserTransform", "build_transforms", "built_in_transforms"]


class Transform(Protocol):
    """One step of a pipeline."""

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the result for an input of this shape, or raise TransformError."""
        ...

    def __call__(self, image: Array, rng: np.random.Generator) -> Array:
        """Return the transformed image; the given one is not changed, the result may be a view of it."""
        ...


def built_in_transforms() -> dict[str, Callable[..., Transform]]:
    """Return the built-in transforms by name."""
    return {
        "random_crop": RandomCrop,
        "center_crop": CenterCrop,
        "resize": Resize,
        "flip": Flip,
        "rotation": Rotation,
    }


@dataclass(frozen=True)
class UserTransform:
    """A callable f(image, rng) -> image of the user's."""

    name: str
    function: Callable[[Array, np.random.Generator], Any]

    def __call__(self, image: Array, rng: np.random.Generator) -> Array:
        return np.asarray(self.function(image, rng))


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

        A user's transform is tried on zeros to learn the shape and dtype that it gives.

        Raises:
            TransformError: a transform does not fit what comes to it.
        """
        for transform in self.transforms:
            if isinstance(transform, UserTransform):
                result = _try(transform, layout)
                layout = replace(layout, input_shape=result.shape, input_dtype=str(result.dtype))
            else:
                layout = replace(layout, input_shape=transform.output_shape(layout.input_shape))
        return layout

    def apply_into(self, image: Array, rng: np.random.Generator | None, slot_view: Array) -> None:
        """Transform one image and write the result to `slot_view`; rng may be None only without transforms.

        Raises:
            ValueError: the result does not have the slot's shape and dtype.
        """
        for transform in self.transforms:
            assert rng is not None
            image = transform(image, rng)
        if image.shape != slot_view.shape or image.dtype != slot_view.dtype:
            wanted = f"{slot_view.shape} of {slot_view.dtype}"
            raise ValueError(f"the sample is {image.shape} of {image.dtype}, all others are {wanted}")
        slot_view[...] = image


def build_transforms(steps: Sequence[Mapping[str, Mapping[str, Any]] | str] | None) -> Pipeline:
    """Build a pipeline from a spec's list, such as [{random_crop: {size: 28, padding: 2}}, {flip: {}}].

    Args:
        steps: each names one transform and its parameters: a built-in one, or module:Name of a callable
            f(image, rng) -> image; where parameters are given, or it is a class, Name(**parameters) gives the callable.

    Raises:
        TransformError: unknown transform or parameter, or a value that breaks its rule.
    """
    return Pipeline(tuple(_build(*_name_and_parameters(step)) for step in steps or ()))


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
        advice = f"{hint}{nearest(name, built_in)}; or module:Name of a callable"
        raise TransformError(name, "no transform has this name", advice)
    known = {field.name: field for field in fields(built_in[name])}
    for key in parameters:
        if key not in known:
            raise TransformError(key, f"transform {name!r} has no such parameter", nearest(key, known))
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


def _try(transform: UserTransform, layout: SampleLayout) -> Array:
    image = np.zeros(layout.input_shape, layout.input_dtype)
    try:
        return transform(image, np.random.Generator(np.random.Philox(0)))
    except Exception as cause:  # the user's code may raise anything
        rule = f"trying it on zeros of shape {layout.input_shape} raised {type(cause).__name__}: {cause}"
        raise TransformError(transform.name, rule, "let it work on such images: f(image, rng) -> image") from cause
