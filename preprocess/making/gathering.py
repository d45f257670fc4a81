"""How long to let room gather in lanes before it is filled, so that one wake of a preprocessor fills several slots."""

from __future__ import annotations

from collections.abc import Mapping

_SHORTEST, _LONGEST = 1e-3, 5e-2
_LITTLE, _MUCH = 0.25, 0.5
_FEW = 8


class Gathering:
    """Pauses that grow to 50 ms while less than a quarter of a lane is free after them, and end where half of one is.

    A reader that gives back a slot at a time would wake its preprocessor for each; where trainers have all cores, each
    wake takes one of them away. Lanes of eight slots or fewer are filled at once, as they have little to wait with.
    """

    def __init__(self) -> None:
        self._seconds, self._filled = 0.0, dict[int, int]()

    def filled(self, lane: int, slots: int = 1) -> None:
        """Note slots of a lane that were filled."""
        self._filled[lane] = self._filled.get(lane, 0) + slots

    def next(self, lanes: Mapping[int, int]) -> float:
        """Return the seconds to let pass now; 0 where nothing was filled since the last pause.

        Args:
            lanes: open lanes, each with the slots that may lie ready in it.
        """
        filled, self._filled = self._filled, {}
        if not filled:
            return 0.0
        if min(lanes.values(), default=0) <= _FEW:
            self._seconds = 0.0
            return 0.0
        used = max(slots / lanes.get(lane, slots) for lane, slots in filled.items())
        if used > _MUCH:
            self._seconds = self._seconds / 2 if self._seconds > _SHORTEST else 0.0
        elif used < _LITTLE:
            self._seconds = min(max(1.5 * self._seconds, _SHORTEST), _LONGEST)
        return self._seconds
