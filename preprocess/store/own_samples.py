"""The samples that one preprocessor owns, numbered without gaps."""

from __future__ import annotations

import numpy as np

from preprocess.samples.owners import Indices, SampleOwners


class OwnSamples:
    """Numbers the samples of preprocessor `number` of W: sample key x is x // W, where it owns x mod W = number.

    Where it also stands in for others, samples keep their keys as numbers.

    Args:
        samples: n + h, training and held-out samples.
        writers: W.
        number: of the preprocessor.
    """

    def __init__(self, samples: int, writers: int, number: int) -> None:
        self._samples, self._writers, self.number = samples, writers, number
        self._stands_in = False

    @property
    def count(self) -> int:
        """Numbers go from 0 to below this."""
        if self._stands_in:
            return self._samples
        return max(-(-(self._samples - self.number) // self._writers), 1)

    def numbers(self, keys: Indices) -> Indices:
        """The number of each of its samples, (count,)."""
        return keys if self._stands_in else keys // self._writers

    def number_of(self, key: int) -> int | None:
        """The number of a sample; None if it may not be its own."""
        if self._stands_in:
            return key
        number, home = divmod(key, self._writers)
        return number if home == self.number else None

    def admit(self, owners: SampleOwners) -> Indices | None:
        """See whether it owns others' samples by these rules, for the first time.

        Returns:
            the new number of each sample by its old one, (count,), if they are numbered anew.
        """
        if self._stands_in or not owners.stands_in(self.number):
            return None
        labels = np.arange(self.count) * self._writers + self.number
        self._stands_in = True
        return labels
