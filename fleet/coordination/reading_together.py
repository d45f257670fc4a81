"""Which jobs that start at unlike places of one stream read one lane: one rule for live runs and the simulator."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fleet.scheduling.model.jobs import JobState
from preprocess.sharing.joining import PreparingCosts, Reader, lanes


def reader_of(job: JobState, place: float, devices: int, rate: float) -> Reader | None:
    """Return a job as a reader of its stream; None where its pace or the end of its epoch is not known.

    Args:
        job: one without a known last epoch counts until the end of this epoch.
        place: of its next sample in the stream.
        devices: how many it has from now on.
        rate: samples/s that it trains there.
    """
    if job.remaining < math.inf:
        end = place + job.remaining * job.passing
    else:
        end = max(place, job.epoch * job.passing)
    return Reader(place, end, devices, rate * job.passing) if rate and (job.epoch or job.remaining < math.inf) else None


def divided(readers: Sequence[Reader | None], made: float, most: int | None = None) -> list[list[int]]:
    """Divide jobs that may read one lane; where something is not known, all read one.

    Args:
        readers: each at its place, on the devices that it will have.
        made: samples/s of the stream that all preprocessors make; infinite: nobody knows.
        most: lanes that there are; None: enough.

    Returns:
        The indices of those of each lane, in their order.
    """
    known = [reader for reader in readers if reader is not None]
    if len(known) < len(readers) or made == math.inf:
        return [list(range(len(readers)))]
    costs = PreparingCosts(1 / made, 1 / made, 1.0)  # what is kept is counted in what all make
    found = lanes(known, costs, max(1, len(known) if most is None else most))
    return sorted(sorted(members) for members in found)
