"""How fast a job should train that nobody has measured, by its operations and by what others show of the device."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from fleet.profiling.sizing import Size, assumed_rate


def guessed_rate(size: Size, others: Iterable[tuple[Size, float]], device: str) -> float:
    """Samples/s on one device: it works on this job as fast as on the others, in the median.

    A job whose operations cannot be counted trains as many samples/s as they do.

    Args:
        size: the job's.
        others: the sizes of jobs that were measured on such a device, and their samples/s on one.
        device: its kind, by which it is guessed how fast it works while nobody has been measured.
    """
    known = [(other.operations or 0.0, rate) for other, rate in others]
    speeds = [operations * rate for operations, rate in known if operations]
    if size.operations and speeds:
        return median(speeds) / size.operations
    return median(rate for _, rate in known) if known else assumed_rate(size, device)
