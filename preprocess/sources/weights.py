"""How often samples are drawn: a weight for each, as torch's WeightedRandomSampler takes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from preprocess.samples.errors import SourceError, load_object
from preprocess.samples.order import global_generators_seeded
from preprocess.sources.map_style import MapStyleSource
from preprocess.sources.source import Source

Weights = npt.NDArray[np.float64]

BALANCED = "balanced"
_MOST = 2**24
"""torch.multinomial draws from no more."""


class _Samples:
    """A built-in source as a sequence of (input, target)."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if not 0 <= index < len(self._source):
            raise IndexError(index)
        return self._source.read(index)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return map(self.__getitem__, range(len(self)))


def weights_of(source: Source, asked: str, seed: int) -> Weights:
    """Return the weight of each sample, (n,).

    Args:
        asked: `balanced`: one over the samples of the same class, so that each class is drawn as often; or
            `module:Name` of a function of the samples that gives their weights, or of such weights.
        seed: of the global generators while the function is called.

    Raises:
        SourceError: it gives no weights, or samples have no classes.
    """
    if asked == BALANCED:
        return _balanced(source)
    found = load_object(asked, SourceError)
    samples = source.items if isinstance(source, MapStyleSource) else _Samples(source)
    try:
        with global_generators_seeded(seed):
            given = found(samples) if callable(found) else found
    except Exception as cause:  # the user's code may raise anything
        rule = f"calling it with the training samples raised {type(cause).__name__}: {cause}"
        raise SourceError(asked, rule, "mend the function") from cause
    return checked_weights(given, len(source), asked)


def checked_weights(given: Any, length: int, what: str) -> Weights:
    """Return weights that somebody gave as an array. SourceError unless there is a usable one for each sample."""
    mend = "give a number of at least 0 for each training sample, as WeightedRandomSampler takes them"
    try:
        weights = np.asarray(given, np.float64)
    except (TypeError, ValueError) as cause:
        raise SourceError(what, f"it gives a {type(given).__name__}, and no weights", mend) from cause
    if weights.shape != (length,):
        raise SourceError(what, f"it gives weights of shape {weights.shape} for {length} training samples", mend)
    if length > _MOST:
        rule = f"torch draws by weights from at most {_MOST} samples, and there are {length}"
        raise SourceError(what, rule, "take the weights away")
    if not np.isfinite(weights).all() or (weights < 0).any() or not weights.sum() > 0:
        raise SourceError(what, "some of its weights are negative or not finite, or all are 0", mend)
    return weights


def _balanced(source: Source) -> Weights:
    """One over the number of samples of the same class; all targets are read once, unless the data set lists them."""
    items = source.items if isinstance(source, MapStyleSource) else None
    listed = getattr(items, "targets", None)
    if listed is None or len(listed) != len(source):
        listed = [source.read(index)[1] for index in range(len(source))]
    targets = np.asarray(listed)
    if targets.ndim == 2 and targets.shape[1] == 1:
        targets = targets[:, 0]
    if targets.ndim != 1 or targets.dtype.kind not in "iub":
        rule = f"balanced goes by classes, and the targets are {targets.dtype} of shape {targets.shape[1:]}"
        raise SourceError(BALANCED, rule, "write module:Name of a function that gives a weight for each sample")
    _, classes, counts = np.unique(targets, return_inverse=True, return_counts=True)
    return checked_weights(1.0 / counts[classes], len(source), BALANCED)
