"""How long to sleep between two looks at something that cannot wake a sleeper."""

from __future__ import annotations

_SHORTEST, _LONGEST = 1e-4, 5e-3


class BackOff:
    """Sleeps of 0.1 ms to 5 ms that double as long as nothing happens."""

    def __init__(self) -> None:
        self._seconds = _SHORTEST

    def next(self) -> float:
        """Return the seconds to sleep now."""
        now, self._seconds = self._seconds, min(2 * self._seconds, _LONGEST)
        return now

    def reset(self) -> None:
        """Begin again with the shortest, because something happened."""
        self._seconds = _SHORTEST
