"""Samples of a network's own part that cannot be made, as its feed meets them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Event

import numpy as np

from preprocess.samples.layout import ITSELF, Array
from preprocess.samples.part import Indices
from preprocess.samples.ragged import InputPlace, places_in
from preprocess.samples.substitutes import Mask

MakeSubstitute = Callable[[str, int, int, InputPlace, Array, Mask], object]
"""Makes what is taken: called with kind, epoch, sample, its input's and its target's place, and what may be taken."""


@dataclass(frozen=True)
class Missing:
    """Samples of a network that could not be made, and in whose place lie others that are not its own.

    The feed hands them to the thread that trains, which alone may run a person's code, and goes on once that has put
    the network's own there.

    Attributes:
        kind: "train" or "held_out".
        epoch: the stream's.
        samples: their indices in the data set, (count,).
        rows: where they lie in the batch, (count,).
        own: which samples of the kind are the network's own.
        inputs, targets: the batch.
        found: set once they are replaced, or cannot be.
    """

    kind: str
    epoch: int
    samples: Indices
    rows: Indices
    own: Mask
    inputs: Array
    targets: Array
    found: Event

    @classmethod
    def among(
        cls, kind: str, epoch: int, samples: Indices, taken: Indices, own: Mask, batch: tuple[Array, Array]
    ) -> Iterator[Missing]:
        """Ask for those of a batch's samples, (count,), in whose place others were taken that are not own, if any.

        Args:
            taken: what lies in their places: `ITSELF`, or a sample's index, (count,).
        """
        rows = np.flatnonzero(taken != ITSELF)
        rows = rows[~own[taken[rows]]]
        if rows.size:
            missing = cls(kind, epoch, samples[rows], rows, own, *batch, Event())
            yield missing
            missing.found.wait()

    def replace(self, make: MakeSubstitute) -> None:
        """Put the network's own samples there."""
        try:
            place = places_in(self.inputs)
            for row, sample in zip(self.rows.tolist(), self.samples.tolist()):
                make(self.kind, self.epoch, sample, place(row), self.targets[row : row + 1], self.own)
        finally:
            self.found.set()

    def leave(self) -> None:
        """Let those stay that lie there."""
        self.found.set()
