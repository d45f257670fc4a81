"""Several brackets of successive halving without barriers (Hyperband; Li et al., JMLR 18, 2018)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from fleet.search.segment import Segment, Verdict
from fleet.search.stopping.halving import Halving


class Hyperband:
    """Bracket s begins at rung s: the first stops most of its trials early, the last none.

    Of each round of trials bracket s has as many as Hyperband gives it (Li et al., 2018, Algorithm 1), spread evenly.
    Its rungs are those of `Halving`, without barriers.

    Args:
        rungs: epochs, ascending; the last is the most that a trial trains.
        eta: of how many trials one goes on, 2 or more.
    """

    def __init__(self, rungs: Sequence[int], eta: int) -> None:
        self._brackets = [Halving(rungs[start:], eta) for start in range(len(rungs))]
        halvings = range(len(rungs) - 1, -1, -1)  # of each bracket
        self._round = spread([math.ceil(len(rungs) * eta**count / (count + 1)) for count in halvings])

    def bracket(self, trial: int) -> int:
        """The bracket of a trial, by its number alone."""
        return self._round[trial % len(self._round)]

    def first(self, trial: int) -> Segment:
        """The way to the first rung of its bracket."""
        return self._brackets[self.bracket(trial)].first(trial)

    def report(self, trial: int, epoch: int, loss: float | None) -> Verdict:
        """Rank the trial in its bracket."""
        return self._brackets[self.bracket(trial)].report(trial, epoch, loss)

    def next(self, fresh: int | None, trials: int | None = None) -> Segment | None:
        """The longest trained of the brackets' promotions, otherwise the new trial."""
        waiting = [bracket.highest() for bracket in self._brackets]
        ready = [(-rung, number) for number, rung in enumerate(waiting) if rung is not None]
        if ready:
            return self._brackets[min(ready)[1]].promotion()
        return None if fresh is None else self.first(fresh)

    def _share(self, bracket: int, trials: int) -> int:
        """How many of the first trials are those of a bracket."""
        rounds, rest = divmod(trials, len(self._round))
        return rounds * self._round.count(bracket) + self._round[:rest].count(bracket)

    def arrived(self, trial: int, epoch: int, loss: float | None) -> None:
        """Rank the trial among those of its bracket that have arrived."""
        self._brackets[self.bracket(trial)].arrived(trial, epoch, loss)

    def likely(self, trials: int | None = None) -> Iterator[Segment]:
        """What is likely in each bracket, the longest trained first."""
        found = [
            segment
            for number, bracket in enumerate(self._brackets)
            for segment in bracket.likely(None if trials is None else self._share(number, trials))
        ]
        return iter(sorted(found, key=lambda segment: -segment.start))

    def probable(self, trials: int) -> Iterator[Segment]:
        """What is probable in each bracket, the longest trained first."""
        brackets = enumerate(self._brackets)
        found = [segment for number, each in brackets for segment in each.probable(self._share(number, trials))]
        return iter(sorted(found, key=lambda segment: -segment.start))

    def is_promising(self, segment: Segment, trials: int) -> bool:
        """Whether its trial is, in its bracket."""
        number = self.bracket(segment.trial)
        return self._brackets[number].is_promising(segment, self._share(number, trials))

    def sure(self, trials: int) -> Iterator[Segment]:
        """What is sure in each bracket, the longest trained first."""
        brackets = enumerate(self._brackets)
        found = [segment for number, each in brackets for segment in each.sure(self._share(number, trials))]
        return iter(sorted(found, key=lambda segment: -segment.start))

    def hopeless(self, trials: int) -> Iterator[int]:
        """Those of each bracket."""
        shares = enumerate(self._brackets)
        return (trial for number, each in shares for trial in each.hopeless(self._share(number, trials)))

    def after(self, segment: Segment) -> int:
        """All up to the last rung."""
        return self._brackets[0].after(segment)

    def mean_after(self, segment: Segment) -> float:
        """As in its bracket."""
        return self._brackets[self.bracket(segment.trial)].mean_after(segment)

    def mean_after_new(self, new: range) -> float:
        """As in their brackets."""
        numbers = range(len(self._brackets))
        shares = [range(*(self._share(number, end) for end in (new.start, new.stop))) for number in numbers]
        return sum(bracket.mean_after_new(share) for bracket, share in zip(self._brackets, shares))


def spread(sizes: Sequence[int]) -> list[int]:
    """Numbers 0, 1, ... each as often as its size, so that any first part has each about as often as it should."""
    total, had = sum(sizes), [0] * len(sizes)
    order = []
    for place in range(1, total + 1):
        behind = [size * place / total - count for size, count in zip(sizes, had)]
        chosen = max(range(len(sizes)), key=lambda number: (had[number] < sizes[number], behind[number], -number))
        had[chosen] += 1
        order.append(chosen)
    return order
