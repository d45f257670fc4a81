"""How fast a group trains, by its first steps."""

from __future__ import annotations

from dataclasses import dataclass

WARMING = 3
"""Steps that say nothing: devices load their libraries in them, and caches fill."""
LEAST_TIMED, TIMED_SECONDS = 3, 0.3


@dataclass
class FirstSteps:
    """Adds up the first steps of a group, until they tell how fast it trains: once it has done enough of them, or for
    long enough and at least three.

    Args:
        most: steps that are enough (20 in FLEET, MLSys'20, Appendix B.3).
    """

    most: int
    steps: int = 0
    seconds: float = 0.0
    _begun: int = 0

    def took(self, seconds: float) -> bool:
        """A step took so long; whether the first steps are over with it."""
        if self._is_over:
            return False
        self._begun += 1
        if self._begun > WARMING:
            self.steps, self.seconds = self.steps + 1, self.seconds + seconds
        return self._is_over

    @property
    def _is_over(self) -> bool:
        return self.steps >= self.most or (self.steps >= LEAST_TIMED and self.seconds >= TIMED_SECONDS)
