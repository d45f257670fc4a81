"""How fast a loader reads while no sample is late."""

from __future__ import annotations


class OwnPace:
    """Takes the waiting out of what an epoch took, or a part of one. Times are seconds of any one clock.

    Attributes:
        rate: samples/s that the last one would have been read at without waiting; 0: none has been read yet.
    """

    def __init__(self) -> None:
        self.rate = 0.0
        self._begun: tuple[int, float, float] | None = None

    def begins(self, place: int, now: float, waited: float) -> None:
        """The loader reads from a place on; it has waited so long in all."""
        self._begun = (place, now, waited)

    def ends(self, place: int, now: float, waited: float) -> None:
        """It has read up to there, and does something else from now on; nothing happens if it did so already."""
        if self._begun is None:
            return
        (begin, since, before), self._begun = self._begun, None
        own = now - since - (waited - before)
        if place > begin and own > 0:
            self.rate = (place - begin) / own
