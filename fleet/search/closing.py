"""When the end of a search may wait for what begins last."""

from __future__ import annotations

from collections.abc import Iterable

from fleet.search.segment import Segment
from fleet.search.stopping.rule import StoppingRule


def is_closing(rule: StoppingRule, needed: Iterable[Segment], new: range, devices: int) -> bool:
    """Whether the last of its trials may be the last to end, if others go on before it.

    On M devices all that is left takes W / M, of which the first segments of the new trials are F / M. If these come
    first, the last new trial is at the end of its own after F / M, and may go on from there to the last rung, C in all.
    So it is time for them once

        W - F <= C M,

    W in epochs, of new trials in the mean (`StoppingRule.mean_after`), as nobody knows how good they are.

    Args:
        rule: of the search.
        needed: what it waits for.
        new: the trials that have not begun.
        devices: M.
    """
    if not new:
        return True
    first = rule.first(0)
    longest = first.end + rule.after(first)
    return sum(each.end - each.start for each in needed) + rule.mean_after(new) <= devices * longest
