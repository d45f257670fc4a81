"""When the end of a search may wait for what begins last."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice

from fleet.search.segment import Segment
from fleet.search.stopping.rule import StoppingRule


def is_closing(
    rule: StoppingRule, segments: Iterable[Segment], new: range, early: Collection[int], devices: int
) -> bool:
    """Whether the last of its trials may be the last to end, if others go on before it.

    On M devices all that is left takes W / M, of which the segments from the lowest rung are F / M: those of the new
    trials, if there are any. If these come first, the last trial is at the end of its own after F / M, and may go on
    from there to the last rung, C in all. So it is time for them once

        W - F <= C M,

    W in epochs, with what follows on each segment in the mean, as nobody knows how good its trial is.

    Args:
        rule: of the search.
        segments: what it waits for, and what it will want surely or, beside new trials, probably; more than C M of them
            are not looked at.
        new: the trials that have not begun.
        early: trials whose first results are known already: what follows on these is among the segments, if anything.
        devices: M.
    """
    whole = rule.first(0).end + rule.after(rule.first(0))
    known = [*dict.fromkeys(islice(segments, whole * devices))]
    lowest = rule.first(new[0]) if new else min(known, key=lambda each: each.start, default=None)
    if lowest is None:
        return True
    longest = lowest.end - lowest.start + rule.after(lowest)
    above = sum(each.end - each.start for each in known if each.start > lowest.start)
    tried = (range(trial, trial + 1) for trial in early if trial in new)
    after_new = rule.mean_after_new(new) - sum(map(rule.mean_after_new, tried))
    return above + sum(map(rule.mean_after, known)) + after_new <= devices * longest
