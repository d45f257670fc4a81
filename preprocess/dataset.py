"""An opened data set: makes samples, each a pure function of (seed, epoch, sample)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from preprocess.errors import SampleError, TransformError
from preprocess.itinerary import Itinerary, Span
from preprocess.layout import Array, SampleLayout
from preprocess.order import HELD_OUT, TRAIN, SampleGenerator, epoch_order, seed_global_generators
from preprocess.source import Source, open_source
from preprocess.stream import DatasetSpec, SourceSpec
from preprocess.transform import Pipeline, build_transforms

__all__ = ["Dataset"]

#: Orders of epochs that are kept: the one that is read and the one that comes next, for a few seeds.
_KEPT_ORDERS = 4


class Dataset:
    """The train and the held-out source of a data set with their transforms.

    Attributes:
        name: its name.
        length: n, training samples.
        held_out: h, held-out samples; 0 if there are none.
        layout: shape and dtype of the samples, transforms applied.

    Raises:
        SourceError, TransformError: see `open_source` and `build_transforms`.
    """

    def __init__(self, spec: DatasetSpec) -> None:
        self.name = spec.name
        self._parts = {TRAIN: _Part(spec.train, spec.transforms)}
        if spec.held_out is not None:
            self._parts[HELD_OUT] = _Part(spec.held_out, spec.held_out_transforms)
        self.layout = self._parts[TRAIN].layout
        self.length = len(self._parts[TRAIN].source)
        self.held_out = len(self._parts[HELD_OUT].source) if HELD_OUT in self._parts else 0
        if self.held_out and self._parts[HELD_OUT].layout != self.layout:
            rule = f"training samples are {self.layout}, the held-out ones {self._parts[HELD_OUT].layout}"
            raise TransformError(spec.name, rule, "let both transforms give the same shape and dtype")
        self._generator = SampleGenerator()
        self._orders: OrderedDict[tuple[int, int], npt.NDArray[np.int64]] = OrderedDict()

    def fill(self, itinerary: Itinerary, seed: int, start: int, inputs: Array, targets: Array) -> Iterator[int]:
        """Make the samples at the lane positions start, start + 1 ... into inputs and targets, (count, ...) each.

        Yields:
            the number of samples made so far, after each; the caller may do other things in between.

        Raises:
            SampleError: the source or a transform raised; the text names the sample.
        """
        done = 0
        for span in itinerary.spans(start, start + len(inputs)):
            for sample in self.samples_of(span, seed):
                self.make(span.kind, seed, span.epoch, int(sample), inputs[done], targets[done : done + 1])
                done += 1
                yield done

    def samples_of(self, span: Span, seed: int) -> npt.NDArray[np.int64]:
        """Return the indices in the source of a span's samples, (count,)."""
        places = np.arange(span.start, span.start + span.count, dtype=np.int64)
        if span.kind == HELD_OUT:
            return places
        return self._order(seed, span.epoch)[places % self.length]

    def make(self, kind: str, seed: int, epoch: int, sample: int, input_view: Array, target_view: Array) -> None:
        """Make one sample into an input, of the layout's shape, and a target, (1, ...).

        Held-out samples are the same in every epoch.
        """
        part = self._parts[kind]
        try:
            rng = None
            if part.needs_generator:
                rng = self._generator(seed, 0 if kind == HELD_OUT else epoch, sample, kind)
            if part.has_user_code and rng is not None:
                seed_global_generators(rng)
            image, target = part.source.read(sample)
            part.pipeline.apply_into(image, rng, input_view)
            target_view[0] = target
        except Exception as cause:  # the user's code may raise anything
            raise SampleError(self.name, kind, sample, epoch, cause) from cause

    def _order(self, seed: int, epoch: int) -> npt.NDArray[np.int64]:
        key = (seed, epoch)
        if key not in self._orders:
            self._orders[key] = epoch_order(self.length, seed, epoch)
            if len(self._orders) > _KEPT_ORDERS:
                self._orders.popitem(last=False)
        self._orders.move_to_end(key)
        return self._orders[key]


class _Part:
    """One source with its transforms."""

    def __init__(self, spec: SourceSpec, transforms: Sequence[Any]) -> None:
        self.source: Source = open_source(spec.source, spec.arguments, spec.subset)
        given = self.source.layout
        encoded = bool(getattr(self.source, "encoded", False))
        self.pipeline: Pipeline = build_transforms(transforms, encoded, given.input_shape[-1] if encoded else 3)
        self.layout: SampleLayout = self.pipeline.output_layout(given)
        self.has_user_code = ":" in spec.source or self.pipeline.has_user_code
        self.needs_generator = self.has_user_code or bool(self.pipeline.transforms)
