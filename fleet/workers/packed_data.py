"""Samples of any shapes from a map-style data set of the spec, packed for the ring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fleet.workers.packed_samples import SamplePacker
from preprocess import SourceError
from preprocess.samples.fingerprint import Fingerprint
from preprocess.sources.map_style import open_items
from trainers.state.tree import encode, outline

_TRIED = 64  # samples that stand for all where the bytes of the largest are declared

Part = Mapping[str, Any]
"""A source of the spec: {"source": module:Name, "arguments": {...}}."""


class PackedData:
    """A map-style data set whose samples are bytes, with target 0.

    The largest one is of `sample_bytes`, or as found by reading all samples of both parts once.

    Args:
        part: what is read.
        other: the other part of the data set, whose samples lie in the same lane; None: there is none.
        sample_bytes: the most bytes that the arrays and texts of a sample take; None: measure.
        seed: see `open_items`.

    Attributes:
        largest: the outline of the largest sample that was looked at.
        ragged: bytes of the largest sample, and of those that were looked at in the mean.

    Raises:
        SourceError: a part is no map-style data set, none of its samples can be packed, or the first of them take more
            than `sample_bytes`.
    """

    def __init__(self, part: Part, other: Part | None = None, sample_bytes: int | None = None, seed: int = 0) -> None:
        self._items = open_items(part["source"], part["arguments"], seed)
        self._other = None if other is None else open_items(other["source"], other["arguments"], seed)
        parts = [(part, self._items)] + ([(other, self._other)] if other is not None else [])
        most = None if sample_bytes is None else _TRIED
        looks = [_look(where["source"], items, most) for where, items in parts]
        largest = max((look.largest for look in looks), key=len)
        if sample_bytes is not None and len(largest) > sample_bytes:
            rule = f"sample_bytes is too few: one of the first {_TRIED} samples takes {len(largest)}"
            raise SourceError(sample_bytes, rule, "write the bytes of the largest, or leave sample_bytes out")
        self.largest = outline(largest)
        what = "the data's sample_bytes" if sample_bytes else "the largest sample that was found as the data was opened"
        self._packing = SamplePacker(max(len(largest), sample_bytes or 0), what, "raise the data's sample_bytes")
        mean = sum(look.nbytes for look in looks) / sum(look.samples for look in looks)
        self.ragged = self._packing.ragged(mean)

    @property
    def block_starts(self) -> Any:
        """The first sample of each block, as the data set says; None if it says nothing."""
        return getattr(self._items, "block_starts", None)

    def unlike_part(self, again: PackedData, seed: int) -> str:
        """In what the other part differs where that was constructed again as `again`; see `Fingerprint.unlike`."""
        if self._other is None:
            return ""
        parts = (self._other, again._items)
        first, then = (Fingerprint.of(len(items), items.__getitem__, seed) for items in parts)
        return first.unlike(then)

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self._packing.pack(self._items[index], index), 0


@dataclass(frozen=True)
class _Look:
    """How many samples were looked at, their bytes, and the largest one's message."""

    samples: int
    nbytes: int
    largest: bytes


def _look(name: str, items: Any, most: int | None) -> _Look:
    """Look at a part's first `most` samples; those that cannot be read say so when they are made."""
    largest, error, samples, nbytes = b"", None, 0, 0
    for index in range(len(items) if most is None else min(most, len(items))):
        try:
            message = encode(items[index])
        except Exception as cause:  # the user's code may raise anything
            error = error or cause
            continue
        largest = max(largest, message, key=len)
        samples, nbytes = samples + 1, nbytes + len(message)
    if not largest:
        why = "it has none" if error is None else f"the first raised {type(error).__name__}: {error}"
        raise SourceError(name, f"none of its samples can be packed: {why}", "give tensors, arrays, numbers and texts")
    return _Look(samples, nbytes, largest)
