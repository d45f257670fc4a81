"""Which samples may take the place of one that cannot be made: a pure function of named seeds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from preprocess.samples.order import SUBSTITUTE, SampleGenerator

Indices = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

#: Samples that are tried in the place of one that is corrupt. If half of all were corrupt, none of so many could be
#: made once in 2^64 times: it is then an error in the code, which raises for every sample.
MOST_SUBSTITUTES = 64


def substitutes(
    generator: SampleGenerator, kind: str, seed: int, epoch: int, sample: int, length: int, own: Mask | None = None
) -> Iterator[int]:
    """Yield what to try in a sample's place, all others being equally likely.

    A network with a part of the samples takes the first of those that are drawn for all which is its own: where that
    one is the first for all, too, it need not be made again. In a small part none of them may be; then as many are
    drawn from the part.

    Args:
        generator: gives each sample's generator.
        kind: "train" or "held_out".
        epoch: 0 where samples are the same in all epochs.
        length: samples of that kind.
        own: which of them alone may be taken, (length,); None: all.
    """
    others = length - 1
    if others == 0:
        return
    rng = generator(seed, epoch, sample, SUBSTITUTE[kind])
    drawn = rng.integers(others, size=MOST_SUBSTITUTES)
    drawn += drawn >= sample
    if own is None:
        yield from drawn.tolist()
        return
    mine = np.flatnonzero(own)
    mine = mine[mine != sample]
    if mine.size:
        more = mine[rng.integers(mine.size, size=MOST_SUBSTITUTES)]
        yield from drawn[own[drawn]].tolist()
        yield from more.tolist()


def mask_of(samples: Indices, length: int) -> Mask:
    """Return which of so many samples these are, (length,)."""
    mask = np.zeros(length, np.bool_)
    mask[samples] = True
    return mask
