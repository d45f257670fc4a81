"""Which sample lies where in a lane: pure arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from preprocess.samples.order import HELD_OUT, TRAIN


@dataclass(frozen=True)
class Span:
    """Samples that follow each other in a lane and come from one part of one epoch.

    Attributes:
        epoch: the epoch.
        kind: "train" or "held_out".
        start: first place in that part; a train place p is sample order[p % n] of the epoch's order,
            a held-out place is the sample itself.
        count: how many samples.
    """

    epoch: int
    kind: str
    start: int
    count: int


@dataclass(frozen=True)
class Itinerary:
    """The endless row of samples that a lane carries: epoch after epoch, each in three parts.

    An epoch is the n training samples in its order, then the first `tail` of that order again (so that the order
    can be dealt to any number of virtual workers, as DistributedSampler pads it), then the held-out samples.

    Attributes:
        length: n, the training samples of an epoch.
        tail: how many places are appended to the order; more than n goes round again.
        held_out: h, the held-out samples that follow each epoch.
        first_epoch: epoch at lane position 0.
        first_place: place in that epoch at lane position 0, from 0 to n + tail.
        last_epoch: epoch after which the lane ends, or None if it never does.
    """

    length: int
    tail: int = 0
    held_out: int = 0
    first_epoch: int = 0
    first_place: int = 0
    last_epoch: int | None = None

    def __post_init__(self) -> None:
        if self.length < 1 or min(self.tail, self.held_out, self.first_epoch) < 0:
            raise ValueError(f"{self}: length is at least 1, tail, held_out and first_epoch at least 0")
        if not 0 <= self.first_place <= self.places:
            raise ValueError(f"first_place is {self.first_place}: an epoch has the places 0 to {self.places}")
        if self.last_epoch is not None and self.last_epoch < self.first_epoch:
            raise ValueError(f"last_epoch is {self.last_epoch}: it comes before the first, {self.first_epoch}")

    @property
    def places(self) -> int:
        """Training places of an epoch, n + tail."""
        return self.length + self.tail

    @property
    def epoch_samples(self) -> int:
        """Samples of one epoch, n + tail + h."""
        return self.places + self.held_out

    @property
    def end(self) -> int | None:
        """The lane position after the last sample, or None if the lane never ends."""
        return None if self.last_epoch is None else self._epoch_start(self.last_epoch + 1)

    def position(self, epoch: int, place: int) -> int:
        """Return the lane position of a training place of an epoch, 0 to n + tail (its held-out start).

        Raises:
            ValueError: the lane does not carry it.
        """
        if not 0 <= place <= self.places:
            raise ValueError(f"place {place}: an epoch has the places 0 to {self.places}")
        return self._carried(self._epoch_start(epoch) + place, f"epoch {epoch}, place {place}")

    def held_out_position(self, epoch: int, sample: int = 0) -> int:
        """Return the lane position of a held-out sample of an epoch, 0 to h (its end).

        Raises:
            ValueError: the lane does not carry it.
        """
        if not 0 <= sample <= self.held_out:
            raise ValueError(f"held-out sample {sample}: there are {self.held_out}")
        start = self._epoch_start(epoch) + self.places
        return self._carried(start + sample, f"epoch {epoch}, held-out sample {sample}")

    def spans(self, start: int, stop: int) -> Iterator[Span]:
        """Yield what lies at the lane positions start to stop - 1, in order; nothing lies past the lane's end."""
        stop = stop if self.end is None else min(stop, self.end)
        while start < stop:
            epoch, offset = divmod(start + self.first_place, self.epoch_samples)
            train = offset < self.places
            kind, place = (TRAIN, offset) if train else (HELD_OUT, offset - self.places)
            count = min(stop - start, (self.places if train else self.epoch_samples) - offset)
            yield Span(self.first_epoch + epoch, kind, place, count)
            start += count

    def _epoch_start(self, epoch: int) -> int:
        return (epoch - self.first_epoch) * self.epoch_samples - self.first_place

    def _carried(self, position: int, what: str) -> int:
        if position < 0 or (self.end is not None and position > self.end):
            last = "for ever" if self.last_epoch is None else f"to the end of epoch {self.last_epoch}"
            start = f"epoch {self.first_epoch}, place {self.first_place}"
            raise ValueError(f"{what} is not in this lane, which goes from {start} {last}")
        return position
