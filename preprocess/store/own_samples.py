"""The samples that one preprocessor owns, numbered without gaps."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from preprocess.samples.block_order import BlockOrder
from preprocess.samples.owners import Indices, SampleOwners


class OwnKeys:
    """Numbers the samples of preprocessor `number` of W: sample key x is x // W, where it owns x mod W = number.

    Where samples have owners by their blocks, they are counted through. Where it also stands in for others, samples
    keep their keys as numbers.

    Args:
        samples: n + h, training and held-out samples.
        writers: W.
        number: the preprocessor's number.
        blocks: the order by blocks; None: there is none.
    """

    def __init__(self, samples: int, writers: int, number: int, blocks: BlockOrder | None = None) -> None:
        self._samples, self._writers, self.number = samples, writers, number
        self._stands_in = False
        self._numbers = None if blocks is None else _counted(samples, writers, number, blocks)

    @property
    def count(self) -> int:
        """Numbers go from 0 to below this."""
        if self._stands_in:
            return self._samples
        if self._numbers is not None:
            return max(int(self._numbers.max()) + 1, 1)
        return max(-(-(self._samples - self.number) // self._writers), 1)

    def numbers(self, keys: Indices) -> Indices:
        """The number of each of its samples, (count,)."""
        if self._stands_in:
            return keys
        return keys // self._writers if self._numbers is None else self._numbers[keys].astype(np.int64)

    def number_of(self, key: int) -> int | None:
        """The number of a sample; None if it may not be its own."""
        if self._stands_in:
            return key
        if self._numbers is not None:
            known = self._numbers.item(key)
            return known if known >= 0 else None
        number, home = divmod(key, self._writers)
        return number if home == self.number else None

    def admit(self, owners: SampleOwners) -> Indices | None:
        """See whether it owns others' samples by these rules, for the first time.

        Returns:
            the new number of each sample by its old one, (count,), if they are numbered anew.
        """
        if self._stands_in or not owners.stands_in(self.number):
            return None
        if self._numbers is None:
            labels = np.arange(self.count) * self._writers + self.number
        else:
            labels = np.flatnonzero(self._numbers >= 0)
        self._stands_in = True
        return labels


def _counted(samples: int, writers: int, number: int, blocks: BlockOrder) -> npt.NDArray[np.signedinteger[Any]]:
    """The number of each sample by its key, (n + h,), in 4 bytes where they do; -1 for another preprocessor's."""
    own = SampleOwners(writers, (), blocks).of(np.arange(samples)) == number
    numbers = np.where(own, np.cumsum(own) - 1, -1)
    return numbers.astype(np.int32) if samples < 2**31 else numbers
