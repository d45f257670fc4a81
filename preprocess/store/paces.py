"""How fast each stream reads, by what it read lately; a stream that has stopped becomes slower while nothing comes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

SMOOTHED = 0.3  # weight of the newest interval


class Paces:
    """Estimates seconds a sample of each stream.

    Args:
        streams: the most that are open at a time.
    """

    def __init__(self, streams: int) -> None:
        self._seconds = np.full(streams, np.nan)  # a sample, by intervals that are over
        self._last = np.full(streams, np.nan)
        self._count = np.ones(streams)

    def read(self, stream: int, count: int, now: float) -> None:
        """A stream has read so many samples, 1 or more, at this second."""
        interval = (now - self._last[stream]) / self._count[stream]
        known = self._seconds[stream]
        if not np.isnan(interval):
            self._seconds[stream] = interval if np.isnan(known) else known + SMOOTHED * (interval - known)
        self._last[stream], self._count[stream] = now, count

    def forget(self, stream: int) -> None:
        """A stream has closed; another one may have its number."""
        self._seconds[stream] = self._last[stream] = np.nan

    def seconds(self, now: float) -> npt.NDArray[np.float64]:
        """Seconds a sample of each stream, (streams,); those that are not known yet read as fast as the others do."""
        waited = (now - self._last) / self._count
        known = np.fmax(self._seconds, np.where(np.isnan(self._seconds), np.nan, waited))
        usual = 1.0 if np.isnan(known).all() else float(np.nanmedian(known))
        return np.asarray(np.where(np.isnan(known), usual, known))
