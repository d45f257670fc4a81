"""The samples of a job that takes a part of its stream, copied out of the ring as the stream passes by."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

import numpy as np

from fleet.workers.missing_samples import Missing
from preprocess import TRAIN, Itinerary, LaneReader, MemberOrder
from preprocess.samples.layout import ITSELF, Array
from preprocess.samples.part import Indices
from trainers import BatchPlan

Samples = tuple[Array, Array]
"""(inputs, targets)"""


class OwnBatches:
    """One group member's batches, epoch after epoch.

    A step may lie over more of the stream than a ring holds, so its samples are copied as they come. The first ones of
    an epoch pad its end: they are kept until then, but for the lane's first epoch, in whose midst the job may come. Of
    that epoch the lane brings them again.

    Args:
        reader, itinerary: they belong to the lane.
        plan: how the job's own samples are split over its virtual workers.
        block: the virtual ranks of this member.
        order: which samples are the job's own.
        timeout: seconds that one wait may take.
        stopped: asked now and then whether to end a wait.
    """

    def __init__(
        self, reader: LaneReader, itinerary: Itinerary, plan: BatchPlan, block: range, order: MemberOrder,
        timeout: float, stopped: Callable[[], bool],
    ) -> None:  # fmt: skip
        self._reader, self._itinerary, self._plan, self._block = reader, itinerary, plan, block
        self._order, self._timeout, self._stopped = order, timeout, stopped
        self._positions = self._again = np.empty(0, np.int64)
        self._epoch = 0
        self._fresh = 0  # so many of the padded order come by; those that are kept stand for the others
        self._kept: Samples | None = None

    def begin(self, epoch: int) -> None:
        """Turn to an epoch; its steps come next, from the first one on unless it is the lane's first epoch."""
        plan, first, self._epoch = self._plan, epoch == self._itinerary.first_epoch, epoch
        base = -self._itinerary.first_place if first else self._itinerary.position(epoch, 0)
        self._positions = base + self._order.padded_places(epoch, plan.padded)
        self._fresh = plan.padded if first else plan.samples
        repeated = np.arange(self._fresh, plan.padded)
        mine = repeated[np.isin(repeated % plan.virtual_workers, self._block)]
        self._again, self._kept = np.unique(mine % plan.samples), None

    def step(self, number: int) -> Generator[Missing, None, list[Samples] | None]:
        """Return the samples of each of this member's virtual workers; None if the wait was stopped.

        Yields:
            those in whose place lie others that are not the job's own; it goes on once they are replaced.
        """
        places, workers = self._plan.step_range(number), self._plan.virtual_workers
        turns = [np.arange(places.start + rank, places.stop, workers) for rank in self._block]
        coming = np.concatenate([turn[turn < self._fresh] for turn in turns])
        if number == 0:
            coming = np.concatenate([coming, self._again])
        coming = np.unique(coming)
        taken = np.empty(coming.size, np.int64)
        got = self._reader.gather(self._positions[coming], self._timeout, self._stopped, substitutes=taken)
        end = int(self._positions[min(places.stop, self._fresh) - 1]) + 1
        if got is None or not pass_by(self._reader, end, self._timeout, self._stopped):
            return None
        yield from self._missing(coming, taken, got)
        if number == 0:
            self._kept = rows_of(got, np.searchsorted(coming, self._again))
        return [self._turn(turn, coming, got) for turn in turns]

    def _missing(self, numbers: Indices, taken: Indices, got: Samples) -> Iterator[Missing]:
        """What is to be replaced of the samples with these numbers in the padded order."""
        if (taken == ITSELF).all():
            return
        samples = self._order.of_epoch(self._epoch)[numbers % self._plan.samples]
        yield from Missing.among(TRAIN, self._epoch, samples, taken, self._order.own, got)

    def _turn(self, turn: Indices, coming: Indices, got: Samples) -> Samples:
        """The samples with these numbers in the padded order, of those that came and those that are kept."""
        fresh, repeated = turn[turn < self._fresh], turn[turn >= self._fresh]
        samples = rows_of(got, np.searchsorted(coming, fresh))
        if not repeated.size:
            return samples
        assert self._kept is not None, "an epoch is read from its first step on, but for the lane's first one"
        more = rows_of(self._kept, np.searchsorted(self._again, repeated % self._plan.samples))
        return np.concatenate([samples[0], more[0]]), np.concatenate([samples[1], more[1]])


def pass_by(reader: LaneReader, position: int, timeout: float, stopped: Callable[[], bool]) -> bool:
    """Give back all samples before a lane position, once they are here.

    Other members of the group, for which this one will wait, read up to there: a ring that is full of what nobody needs
    any more would not let them.

    Args:
        timeout: seconds that one wait may take.
        stopped: asked now and then whether to end a wait.

    Returns:
        False if the wait was stopped.
    """
    while reader.available < position:
        reader.release(reader.available)
        if not reader.wait(min(position, reader.released + reader.certain), timeout, stopped):
            return False
    reader.release(position)
    return True


def rows_of(samples: Samples, rows: Indices) -> Samples:
    """Some of the samples, (inputs, targets)."""
    return samples[0][rows], samples[1][rows]
