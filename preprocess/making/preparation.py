"""The training or the held-out samples of a data set: a source with its transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from preprocess.samples.block_order import Indices
from preprocess.samples.fingerprint import Fingerprint
from preprocess.samples.layout import Array, SampleLayout
from preprocess.samples.ragged import InputPlace
from preprocess.samples.stream import SourceSpec
from preprocess.sources.source import Source, open_source
from preprocess.store.tier import Prepared
from preprocess.transforms.transform import Pipeline, build_transforms


class Preparation:
    """One source with its transforms.

    Attributes:
        source: the source, opened.
        pipeline: its transforms.
        layout: shape and dtype of its samples, transforms applied.
        prepared_layout: after those that draw nothing; -1 for a side that differs.
        has_own_source: the source is the user's.
        has_user_code: a source or a transform is the user's, and may draw from process-wide generators.
        needs_generator: something may draw.
        copy: writes many samples at once, see `Source`; None: each is prepared by itself.
        is_kept: samples that are read and prepared once may be kept: nothing of that draws.
        kept_are_finished: what is kept of a sample is the finished one: no transform is left to be done.

    Args:
        spec: the source.
        transforms: see `build_transforms`.
        looks: see `open_source`.
        store: the user's word: samples may be kept, or may not; None: unless the source is the user's own.
        seed: see `open_source`.

    Raises:
        SourceError, TransformError: see `open_source` and `build_transforms`.
    """

    def __init__(
        self, spec: SourceSpec, transforms: Sequence[Any], looks: int, store: bool | None, seed: int = 0
    ) -> None:
        self.source: Source = open_source(spec.source, spec.arguments, spec.subset, looks, seed)
        given = self.source.layout
        encoded = bool(getattr(self.source, "encoded", False))
        self.pipeline: Pipeline = build_transforms(transforms, encoded, given.input_shape[-1] if encoded else 3)
        self.layout: SampleLayout = self.pipeline.output_layout(given)
        own = not isinstance(spec.source, str) or ":" in spec.source
        self.has_own_source, self._seed = own, seed
        self.has_user_code = own or self.pipeline.has_user_code
        self.needs_generator = self.has_user_code or bool(self.pipeline.transforms)
        copies_many = not self.needs_generator and bool(getattr(self.source, "copies_many", False))
        self.copy: Callable[[Indices, Array, Array], None] | None = cast(Any, self.source).copy if copies_many else None
        self.is_kept = not own if store is None else store
        self._prefix, self._suffix = self.pipeline.split()
        self.kept_are_finished = self.is_kept and not self._suffix.transforms
        self.prepared_layout = self._prefix.varying_layout(given)
        if given.is_ragged:
            self.prepared_layout = replace(self.prepared_layout, input_shape=(-1,))

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """What tells whether another process has the same samples; a built-in source's are its files', all of them."""
        length = len(self.source)
        return Fingerprint.of(length, self.source.read, self._seed) if self.has_own_source else Fingerprint(length)

    def prepare(self, image: Array, target_view: Array) -> Prepared:
        """Apply the transforms that draw nothing to what was read; valid until the next call.

        Args:
            image: as the source gave it.
            target_view: the target, (1, ...).
        """
        return Prepared(self._prefix.apply(image), target_view[0, ...])

    def finish(
        self, prepared: Prepared, rng: np.random.Generator | None, input_view: InputPlace, target_view: Array
    ) -> None:
        """Apply the other transforms, into an input, of the layout's shape, and a target, (1, ...)."""
        target_view[0] = prepared.target
        image = prepared.image.copy() if self._suffix.has_user_code else prepared.image
        self._suffix.apply_into(image, rng, input_view)


def common_layout(layouts: Sequence[SampleLayout]) -> SampleLayout | None:
    """Return the layout of samples of all these, -1 for a side that differs; the first's where kinds differ."""
    if not layouts:
        return None
    first, *others = layouts
    sides = list(first.input_shape)
    for other in others:
        if len(other.input_shape) == len(sides) and other.input_dtype == first.input_dtype:
            sides = [one if one == side else -1 for one, side in zip(sides, other.input_shape)]
    return replace(first, input_shape=tuple(sides))


def set_target(view: Array, target: object) -> None:
    """Write a target into its place, (1, ...); NumPy alone would stretch or cut what does not fit."""
    if type(target) is np.int64 and view.dtype == np.int64 and view.ndim == 1:  # a class, as most are
        view[0] = target
        return
    value = np.asarray(target)
    if value.shape != view.shape[1:] or not np.can_cast(value.dtype, view.dtype, "same_kind"):
        wanted = f"{view.shape[1:]} of {view.dtype}"
        raise ValueError(f"the target is {value.shape} of {value.dtype}, all others are {wanted}")
    view[0] = value
