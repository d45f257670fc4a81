"""An opened data set: makes samples, each a pure function of (seed, epoch, sample)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from statistics import median
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from preprocess.samples.errors import (
    CorruptSamples,
    DecodeError,
    SampleError,
    SkippedSample,
    Stage,
    TransformError,
    reason_of,
)
from preprocess.samples.fingerprint import Fingerprint
from preprocess.samples.layout import (
    ITSELF,
    Array,
    Indices,
    InputPlace,
    SampleLayout,
    places_in,
    plain_targets,
    substitutes_in,
)
from preprocess.samples.order import (
    HELD_OUT,
    MOST_SUBSTITUTES,
    TRAIN,
    EpochOrders,
    Mask,
    SampleGenerator,
    global_generator_states,
    seed_global_generators,
    substitutes,
)
from preprocess.samples.stream import DatasetSpec, LaneSchedule, SourceSpec, Span
from preprocess.sources.map_style import MapStyleSource
from preprocess.sources.source import (
    Source,
    Subset,
    Weights,
    block_order,
    checked_weights,
    described,
    open_source,
    weights_of,
)
from preprocess.store.sample_store import Prepared, SampleStore
from preprocess.transforms.transform import Pipeline, build_transforms

_TRIED, _QUICK = 64, 1e-4
"""Samples that are watched, and the median of the seconds that one takes; seeding for it takes a tenth of that."""


class _SeedTrial:
    """Finds out whether samples of a person's own source are the same whatever seeds the global generators have.

    It watches the first ones that are made, until all of them have been made under two different seeds.

    Args:
        samples: how many the source has.

    Attributes:
        are_nothing: no sample went by them, and to read one takes so little that seeding for each costs much.
    """

    def __init__(self, samples: int) -> None:
        self.are_nothing = False
        self._most = min(samples, _TRIED)
        self._watched: dict[int, tuple[tuple[int, int], bytes]] | None = {}  # None: it is over
        self._alike: set[int] = set()
        self._seconds: list[float] = []

    def watch(self, sample: int, seeds: tuple[int, int], read: Callable[[int], tuple[Array, Any]]) -> tuple[Array, Any]:
        """Read a sample under these seeds, and note what it was."""
        if self._watched is None or (len(self._watched) == self._most and sample not in self._watched):
            return read(sample)
        begin = time.perf_counter()
        image, target = read(sample)
        self._seconds.append(time.perf_counter() - begin)
        digest = blake2b(image.tobytes(), digest_size=16)
        digest.update(np.asarray(target).tobytes())
        before = self._watched.setdefault(sample, (seeds, digest.digest()))
        if before[0] != seeds:
            self._alike.add(sample)
            if before[1] != digest.digest():
                self._watched = None
            elif len(self._alike) == self._most:
                self._watched, self.are_nothing = None, median(self._seconds) < _QUICK
        return image, target


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
        seeds: what is known of whether samples go by the seeds of the global generators; None: they cannot.
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
        self.is_kept = not own if store is None else store
        self._prefix, self._suffix = self.pipeline.split()
        self.needs_generator = self.has_user_code or bool(self._suffix.transforms)
        self._has_copy = not self.pipeline.transforms and bool(getattr(self.source, "copies_many", False))
        self.seeds = _SeedTrial(len(self.source)) if own and self._has_copy else None
        self.kept_are_finished = self.is_kept and not self._suffix.transforms
        self.prepared_layout = self._prefix.varying_layout(given)
        if given.is_ragged:
            self.prepared_layout = replace(self.prepared_layout, input_shape=(-1,))

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """The fingerprint by which processes compare their samples; a built-in source's are its files', all of them."""
        length = len(self.source)
        return Fingerprint.of(length, self.source.read, self._seed) if self.has_own_source else Fingerprint(length)

    @property
    def copies_many(self) -> bool:
        """Whether `copy` may be called; of a person's own source, once that is known to be safe."""
        return self._has_copy and (self.seeds is None or self.seeds.are_nothing)

    def copy(self, samples: Indices, inputs: Array, targets: Array) -> bool:
        """Write many samples, to which no transform is applied, without seeding the global generators for each.

        A person's own source may draw from those all the same: then what was written does not count.

        Args:
            samples: indices in the source, (count,).
            inputs, targets: of the layout, (count, ...) each.

        Returns:
            False where each is to be made by itself.
        """
        source = cast(Any, self.source)
        if self.seeds is None:
            source.copy(samples, inputs, targets)
            return True
        before = global_generator_states()
        try:
            source.copy(samples, inputs, targets)
        except Exception:  # a person's code may raise anything; it is told of the sample that raises it
            return False
        self.seeds.are_nothing = global_generator_states() == before
        return self.seeds.are_nothing

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


def _common_layout(layouts: Sequence[SampleLayout]) -> SampleLayout | None:
    """Return the layout of samples of all these, -1 for a side that differs; the first's where kinds differ."""
    if not layouts:
        return None
    first, *others = layouts
    sides = list(first.input_shape)
    for other in others:
        if len(other.input_shape) == len(sides) and other.input_dtype == first.input_dtype:
            sides = [one if one == side else -1 for one, side in zip(sides, other.input_shape)]
    return replace(first, input_shape=tuple(sides))


def _set_target(view: Array, target: object) -> None:
    """Write a target into its place, (1, ...); NumPy alone would stretch or cut what does not fit."""
    if type(target) is np.int64 and view.dtype == np.int64 and view.ndim == 1:  # a class, as most are
        view[0] = target
        return
    value = np.asarray(target)
    if value.shape != view.shape[1:] or not np.can_cast(value.dtype, view.dtype, "same_kind"):
        wanted = f"{view.shape[1:]} of {view.dtype}"
        raise ValueError(f"the target is {value.shape} of {value.dtype}, all others are {wanted}")
    view[0] = value


#: Bytes of samples that are copied together at most.
_MOST_COPIED = 1 << 20


class Dataset:
    """The train and the held-out source of a data set with their transforms.

    Attributes:
        name: its name.
        spec: what was opened.
        length: n, training samples.
        held_out: h, held-out samples; 0 if there are none.
        layout: shape and dtype of the samples, transforms applied.
        orders: the orders of its epochs.
        keeps_finished: finished samples may be kept: they are more than copies of what the source has.

    Args:
        spec: what to open.
        on_skip: with `on_corrupt: skip`, called with each sample that is skipped, once.

    Raises:
        SourceError, TransformError: see `open_source` and `build_transforms`.
    """

    def __init__(self, spec: DatasetSpec, on_skip: Callable[[SkippedSample], None] | None = None) -> None:
        self.name, self.spec = spec.name, spec
        self._skips = spec.on_corrupt == "skip"
        self._corrupt = CorruptSamples(spec.name, spec.corrupt_limit, on_skip)
        looks = MOST_SUBSTITUTES if self._skips else 1
        self._preparations = {TRAIN: Preparation(spec.train, spec.transforms, looks, spec.store, spec.seed)}
        if spec.held_out is not None:
            transforms = spec.held_out_transforms
            self._preparations[HELD_OUT] = Preparation(spec.held_out, transforms, looks, spec.store, spec.seed)
        self.layout = replace(self._preparations[TRAIN].layout, names_substitutes=self._skips)
        self.length = len(self._preparations[TRAIN].source)
        self.held_out = len(self._preparations[HELD_OUT].source) if HELD_OUT in self._preparations else 0
        if self.held_out and self._preparations[HELD_OUT].layout != self.layout:
            rule = f"training samples are {self.layout}, the held-out ones {self._preparations[HELD_OUT].layout}"
            raise TransformError(spec.name, rule, "let both transforms give the same shape and dtype")
        train = self._preparations[TRAIN]
        copied = train.copies_many and not train.has_own_source
        self.keeps_finished = not (copied or self.layout.is_ragged or spec.store is False)
        self._generator = SampleGenerator()
        held_out = self._preparations[HELD_OUT].source if HELD_OUT in self._preparations else None
        blocks = block_order(self.train_source, spec.order, spec.name, held_out)
        weights = self._weights(spec)
        self.keeps_finished = self.keeps_finished and weights is None
        self.orders = EpochOrders(self.length, blocks=blocks, weights=weights)

    @property
    def copies_many(self) -> bool:
        """Whether samples, also held-out ones, are copied together, see `Preparation.copy`."""
        return all(each.copies_many for each in self._preparations.values())

    @property
    def train_source(self) -> Source:
        """The source of training samples."""
        return self._preparations[TRAIN].source

    @property
    def items(self) -> Any:
        """The map-style data set behind the training samples; None behind a built-in source."""
        return self.items_of(TRAIN)

    def items_of(self, kind: str) -> Any:
        """The map-style data set behind the samples of a kind; None behind a built-in source."""
        source = self._preparations[kind].source
        while isinstance(source, Subset):
            source, _ = source.inner(0)
        return source.items if isinstance(source, MapStyleSource) else None

    @property
    def prepared_layout(self) -> SampleLayout | None:
        """Layout of what a store keeps: samples after the transforms that draw nothing; None where none can be kept.

        A side is -1 where it differs. Held-out samples are kept if they have as many sides, and the same dtypes.
        """
        kept = [preparation for preparation in self._preparations.values() if preparation.is_kept]
        return _common_layout([preparation.prepared_layout for preparation in kept])

    @property
    def fingerprints(self) -> dict[str, Fingerprint]:
        """Fingerprints of the samples by kind, and of the weights by which they are drawn."""
        prints = {kind: preparation.fingerprint for kind, preparation in self._preparations.items()}
        weights = self.orders.weights
        return prints if weights is None else {**prints, "weights": Fingerprint.of(1, lambda _: weights, 0)}

    def _weights(self, spec: DatasetSpec) -> Weights | None:
        """Return the weights by which training samples are drawn; a map-style data set may have them as `drawn_by`."""
        if spec.order is not None and spec.order.weights is not None:
            return weights_of(self.train_source, spec.order.weights, spec.seed)
        given = getattr(self.items, "drawn_by", None)
        return None if given is None else checked_weights(given, self.length, spec.name)

    def preparation(self, kind: str) -> Preparation:
        """The samples of a kind: their source with its transforms."""
        return self._preparations[kind]

    def fill(self, schedule: LaneSchedule, seed: int, start: int, inputs: Any, targets: Array) -> Iterator[int]:
        """Make the samples at the lane positions start, start + 1 ... into inputs and targets, (count, ...) each.

        Inputs and targets are those of a slot, or as `SampleLayout.empty` makes them.

        Yields:
            the number of samples made so far, after each, or after some that are copied together; the caller may do
            other things in between.

        Raises:
            SampleError, CorruptLimitError: see `make`.
        """
        done, rows = 0, _Rows(inputs, targets)
        for span in schedule.spans(start, start + len(inputs)):
            samples, begin = self.samples_of(span, seed), done
            while done < begin + span.count:
                some = samples[done - begin :][: self._together(span.kind)]
                part = slice(done, done + len(some))
                if len(some) > 1 and self._preparations[span.kind].copy(some, inputs[part], rows.targets[part]):
                    rows.note(part, ITSELF)
                    done = part.stop
                    yield done
                    continue
                for sample in some.tolist():
                    made = self.make(span.kind, seed, span.epoch, sample, rows.place(done), rows.target(done))
                    rows.note(done, made)
                    done += 1
                    yield done

    def _together(self, kind: str) -> int:
        """Number of samples of a kind that may be copied together: 1 where each is to be made by itself."""
        if not self._preparations[kind].copies_many or self._corrupt.was_told_any(kind):
            return 1
        return max(1, _MOST_COPIED // max(1, self.layout.input_bytes))

    def fill_rows(
        self,
        spans: Iterable[Span],
        seed: int,
        rows: Indices,
        keys: Indices,
        inputs: Any,
        targets: Array,
        store: SampleStore | None,
        lane: int,
    ) -> Iterator[int]:
        """Make some samples of a slot.

        Args:
            spans: what the slot carries.
            seed: the order and the transforms draw from it.
            rows: where they lie in the slot, ascending, (count,).
            keys: which ones they are, see `preprocess.samples.stream`, (count,).
            inputs, targets: the slot's, (slot samples, ...).
            store: keeps what is prepared, and is told what the lane has carried; None: nothing is kept.
            lane: its number.

        Yields:
            the number of samples made so far, after each.

        Raises:
            SampleError, CorruptLimitError: see `make`.
        """
        done, start, slot = 0, 0, _Rows(inputs, targets)
        for span in spans:
            before, start = done, start + span.count
            stop = int(np.searchsorted(rows, start))
            for row, key in zip(rows[done:stop].tolist(), keys[done:stop].tolist()):
                sample = key if span.kind == TRAIN else key - self.length
                made = self.make(span.kind, seed, span.epoch, sample, slot.place(row), slot.target(row), store)
                slot.note(row, made)
                done += 1
                yield done
            if store is not None:
                store.settle(lane, span.epoch, keys[before:stop])

    def samples_of(self, span: Span, seed: int) -> npt.NDArray[np.int64]:
        """Return the indices in the source of a span's samples, (count,)."""
        places = np.arange(span.start, span.start + span.count, dtype=np.int64)
        if span.kind == HELD_OUT:
            return places
        return self.orders.of(seed, span.epoch)[places % self.length]

    def make(
        self,
        kind: str,
        seed: int,
        epoch: int,
        sample: int,
        input_view: InputPlace,
        target_view: Array,
        store: SampleStore | None = None,
        own: Mask | None = None,
    ) -> int:
        """Make one sample into an input, of the layout's shape or ragged, and a target, (1, ...).

        Held-out samples are the same in every epoch. With `on_corrupt: skip`, a sample that cannot be made is replaced
        by another one, as that one is in this epoch: the first that can be made of those drawn from (seed, epoch,
        sample). So all others stay where they are, and every preprocessor takes the same one.

        Args:
            store: keeps what the transforms that draw nothing give; the sample is the same with or without.
            own: which samples of this kind are a network's own, (count,): no other one takes the place of one of
                these; None: all.

        Returns:
            the index of the one that was taken in its place, or `ITSELF`.

        Raises:
            SampleError: the source or a transform raised, or none of those that were drawn could be made either.
            CorruptLimitError: too many samples were skipped.
        """
        epoch_drawn = 0 if kind == HELD_OUT else epoch
        failure = self._attempt(kind, seed, epoch_drawn, sample, input_view, target_view, store)
        if failure is None:
            return ITSELF
        if failure.cause is not None and not self._skips:
            raise SampleError(self.name, kind, sample, epoch, failure.cause) from failure.cause
        return self._replace(kind, seed, epoch, {sample: failure}, input_view, target_view, store, own)

    def attempt(self, kind: str, seed: int, sample: int, input_view: InputPlace, target_view: Array) -> bool:
        """Make one sample as `make` does in the first epoch; False if it cannot be made, of which nobody is told."""
        return self._attempt(kind, seed, 0, sample, input_view, target_view, None) is None

    def make_substitute(
        self, kind: str, seed: int, epoch: int, sample: int, input_view: InputPlace, target_view: Array, own: Mask
    ) -> int:
        """Make what a network takes in place of a sample that a preprocessor could not make; see `make`.

        Raises:
            SampleError: none of those that were drawn could be made.
        """
        failures = {sample: _Failure("source", None)}
        return self._replace(kind, seed, epoch, failures, input_view, target_view, None, own)

    def _replace(
        self,
        kind: str,
        seed: int,
        epoch: int,
        failures: dict[int, _Failure],
        input_view: InputPlace,
        target_view: Array,
        store: SampleStore | None,
        own: Mask | None,
    ) -> int:
        """Make another one in place of the only sample that was tried so far, and return its index."""
        epoch_drawn, (sample,) = 0 if kind == HELD_OUT else epoch, failures
        length = len(self._preparations[kind].source)
        for candidate in substitutes(self._generator, kind, seed, epoch_drawn, sample, length, own):
            if candidate in failures:
                continue
            failure = self._attempt(kind, seed, epoch_drawn, candidate, input_view, target_view, store)
            if failure is None:
                self._note(kind, epoch, failures, candidate)
                return candidate
            failures[candidate] = failure
        raise self._in_vain(kind, epoch, failures, own is not None)

    def skip_always(self, kind: str, samples: Iterable[int]) -> None:
        """Replace these samples from now on, without trying them: somebody else found them corrupt."""
        self._corrupt.tell(kind, samples)

    def report_skips(self, on_skip: Callable[[SkippedSample], None]) -> None:
        """Call `on_skip` with each sample that is skipped from now on, once."""
        self._corrupt.on_skip = on_skip

    def _attempt(
        self,
        kind: str,
        seed: int,
        epoch: int,
        sample: int,
        input_view: InputPlace,
        target_view: Array,
        store: SampleStore | None,
    ) -> _Failure | None:
        """Make one sample, or say why it cannot be made."""
        if self._corrupt.was_told(kind, sample):
            return _Failure("source", None)
        preparation = self._preparations[kind]
        key = self._key(kind, sample) if store is not None and preparation.is_kept else None
        stage: Stage = "source"
        try:
            rng = self._generator(seed, epoch, sample, kind) if preparation.needs_generator else None
            if preparation.has_user_code and rng is not None:
                seed_global_generators(rng)
            prepared = None if store is None or key is None else store.find(key)
            if prepared is None:
                trial = preparation.seeds
                if trial is None:
                    image, target = preparation.source.read(sample)
                else:
                    image, target = trial.watch(sample, (seed, epoch), preparation.source.read)
                stage = "transform"
                _set_target(target_view, target)
                if store is None or key is None:
                    preparation.pipeline.apply_into(image, rng, input_view)
                    return None
                prepared = preparation.prepare(image, target_view)
                store.offer(key, prepared)
            stage = "transform"
            preparation.finish(prepared, rng, input_view, target_view)
        except DecodeError as cause:  # decoding is a transform, but what it cannot decode comes from the source
            where = described(preparation.source, sample)
            return _Failure("source", DecodeError(f"{where}: {cause}") if where else cause)
        except Exception as cause:  # the user's code may raise anything
            return _Failure(stage, cause)
        return None

    def _note(self, kind: str, epoch: int, failures: dict[int, _Failure], substitute: int) -> None:
        """Note all samples that were tried in vain before the substitute."""
        for sample, failure in failures.items():
            if failure.cause is not None:
                reason = reason_of(failure.cause)
                self._corrupt.add(SkippedSample(self.name, kind, sample, substitute, epoch, reason, failure.stage))

    def _in_vain(self, kind: str, epoch: int, failures: dict[int, _Failure], has_part: bool) -> SampleError:
        """Return the error that tells that this is not one sample's fault, or that there is no other."""
        (sample, *others), part = failures, " of the part" if has_part else ""
        more = f"; there is no other sample{part} to take in its place"
        if others:
            named = ", ".join(map(str, others[:5])) + (" ..." if len(others) > 5 else "")
            more = (
                f"; none of {len(others)} others{part} could be made in its place ({kind} samples {named}): "
                "such an error is one of the source or the transforms, not of single samples; mend them"
            )
        cause = next((failure.cause for failure in failures.values() if failure.cause is not None), None)
        error = SampleError(self.name, kind, sample, epoch, cause or "it was found corrupt before", more)
        error.__cause__ = cause
        return error

    def _key(self, kind: str, sample: int) -> int:
        """Key of a sample in a store, see `preprocess.samples.stream`."""
        return sample if kind == TRAIN else self.length + sample


@dataclass(frozen=True)
class _Failure:
    """The reason why a sample cannot be made; no cause if somebody else found that out."""

    stage: Stage
    cause: Exception | None


class _Rows:
    """Rows of a slot, or of what `SampleLayout.empty` makes, as they are written.

    Attributes:
        place: gives the place of a row's input.
        targets: (rows, ...).
    """

    def __init__(self, inputs: Any, targets: Array) -> None:
        self.place, self.targets, self._substitutes = places_in(inputs), plain_targets(targets), substitutes_in(targets)

    def target(self, row: int) -> Array:
        """The place of a row's target, (1, ...)."""
        return self.targets[row : row + 1]

    def note(self, rows: int | slice, substitute: int) -> None:
        """Say what was taken in place of the samples there, or `ITSELF`, where anybody may ask."""
        if self._substitutes is not None:
            self._substitutes[rows] = substitute
