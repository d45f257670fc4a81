"""How long to let room gather in lanes before it is filled, so that one wake of a preprocessor fills several slots."""

from __future__ import annotations

_SHORTEST, _LONGEST = 1e-3, 2e-2
_FEW, _MANY = 8, 4


class Gathering:
    """Pauses that grow to 20 ms while less than an eighth of a lane is free after each, and end where a quarter is.

    A reader that gives back a slot at a time would wake its preprocessor for each; where trainers have all cores, each
    wake takes one of them away. Lanes of eight slots or fewer are filled at once, as they have little to wait with.
    """

    def __init__(self) -> None:
        self._seconds, self._filled = 0.0, 0

    def filled(self) -> None:
        """Note a slot that was filled."""
        self._filled += 1

    def next(self, slots: int) -> float:
        """Return the seconds to let pass now; 0 where nothing was filled since the last pause.

        Args:
            slots: of the lane that has fewest.
        """
        filled, self._filled = self._filled, 0
        if not filled:
            return 0.0
        if filled * _MANY > slots:
            self._seconds = self._seconds / 2 if self._seconds > _SHORTEST else 0.0
        elif filled * _FEW < slots:
            self._seconds = min(max(1.5 * self._seconds, _SHORTEST), _LONGEST)
        return self._seconds
