"""How a group agrees, every now and then, on whether to go on."""

from __future__ import annotations

import time
from collections.abc import Callable

from trainers.messages.group import Group

_SECONDS_BETWEEN_WORDS = 0.1
_MOST_STEPS_BETWEEN_WORDS = 1000


class StopAgreement:
    """The master's word holds for all members; it also says at which step the master will speak again.

    That is about a tenth of a second later, at the pace since the last word, waits and all; and after at most twice as
    many steps as then, since samples that lay ready tell nothing of how long those to come will take.

    Args:
        group: this member's.
        steps: where it begins; the first word is due there.
        clock: seconds.
    """

    def __init__(self, group: Group, steps: int = 0, clock: Callable[[], float] = time.perf_counter) -> None:
        self._group, self._clock = group, clock
        self._spoken = self._due = steps
        self._heard = clock()
        self._longest = 0.0

    def is_due(self, steps: int) -> bool:
        """Whether the master speaks before the step that follows `steps` others."""
        return steps >= self._due

    def reach(self, steps: int, wish: int, wishes: int = 2) -> int:
        """Agree after so many steps; returns the master's wish. All members take part.

        Args:
            wish: this member's, below `wishes`; only the master's counts.
        """
        word = wish + wishes * (steps + self._steps_ahead(steps))
        self._due, verdict = divmod(self._group.agree(word), wishes)
        now = self._clock()
        self._longest, self._heard, self._spoken = max(self._longest, now - self._heard), now, steps
        return verdict

    def longest_silence(self) -> float:
        """The longest time without a word since this was last asked, seconds."""
        longest, self._longest = max(self._longest, self._clock() - self._heard), 0.0
        return longest

    def _steps_ahead(self, steps: int) -> int:
        done = steps - self._spoken
        if done == 0:
            return 1
        pace = max((self._clock() - self._heard) / done, 1e-9)
        return max(1, min(_MOST_STEPS_BETWEEN_WORDS, 2 * done, int(_SECONDS_BETWEEN_WORDS / pace)))
