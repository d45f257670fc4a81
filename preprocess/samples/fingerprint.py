"""Whether two processes have the same data set: its length, and digests of drawn samples."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from preprocess.samples.order import global_generators_seeded

DRAWN = 16
_PATIENCE = 0.5
"""Seconds after which no other sample is read: two fingerprints then have fewer of them in common."""


MEND = (
    "Draw from the global generators of torch, NumPy or Python, which are seeded for it, or give a generator a seed; "
    "sort what comes from os.listdir, glob or a set"
)
"""What mends a data set that is another one when it is constructed again."""


@dataclass(frozen=True)
class Fingerprint:
    """A data set in short.

    Attributes:
        length: its samples.
        numbers: the samples that were drawn to be read, in the order in which they were.
        digests: theirs; "" for one that is another one each time that it is read, which tells nothing.
    """

    length: int
    numbers: tuple[int, ...] = ()
    digests: tuple[str, ...] = ()

    @classmethod
    def of(cls, length: int, read: Callable[[int], Any], seed: int, patience: float = _PATIENCE) -> Fingerprint:
        """Read some samples, each twice under the same state of the global generators, which are then put back."""
        end, digests = time.monotonic() + patience, list[str]()
        numbers = drawn_samples(length, seed)
        for number in numbers:
            if digests and time.monotonic() > end:
                break
            digests.append(_stable_digest(read, number, seed))
        return cls(length, numbers[: len(digests)], tuple(digests))

    def unlike(self, other: Fingerprint, here: str = "first", there: str = "then") -> str:
        """Return the difference to another one in words, with words for each place; "" if there is none."""
        if self.length != other.length:
            return f"has {self.length} samples {here} and {other.length} {there}"
        for number, mine, theirs in zip(self.numbers, self.digests, other.digests):
            if mine and theirs and mine != theirs:
                return f"has one sample {number} {here} and another one {there}"
        return ""


def drawn_samples(length: int, seed: int) -> tuple[int, ...]:
    """Return the first and some other samples of so many, `DRAWN` at most; which ones is a function of the seed."""
    if length <= DRAWN:
        return tuple(range(length))
    words = np.random.Philox(key=np.array([seed % 2**64, length], np.uint64)).random_raw(64 * DRAWN)
    return tuple(dict.fromkeys([0, *(words % np.uint64(length)).tolist()]))[:DRAWN]


def _stable_digest(read: Callable[[int], Any], number: int, seed: int) -> str:
    first, again = (_digest(read, number, seed) for _ in range(2))
    return first if first == again else ""


def _digest(read: Callable[[int], Any], number: int, seed: int) -> str:
    digest = blake2b(digest_size=16)
    with global_generators_seeded(seed):
        try:
            _add(digest, read(number))
        except Exception as error:  # the user's code may raise anything; told when the sample is made
            return f"raises {type(error).__name__}"
    return digest.hexdigest()


def _add(digest: blake2b, value: Any) -> None:
    """Add all numbers and texts of a sample."""
    if isinstance(value, Mapping):
        for key, child in value.items():
            digest.update(repr(key).encode())
            _add(digest, child)
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        digest.update(str(len(value)).encode())
        for child in value:
            _add(digest, child)
    elif isinstance(value, (str, bytes, int, float, bool, type(None))):
        digest.update(repr(value).encode())
    else:
        _add_array(digest, value)


def _add_array(digest: blake2b, value: Any) -> None:
    try:
        array = np.asarray(value)
    except Exception:  # a tensor on a device, an object of the user's
        array = np.empty(0, object)
    digest.update(f"{type(value).__name__} {array.dtype} {array.shape}".encode())
    if array.dtype != object:
        digest.update(np.ascontiguousarray(array).tobytes())
