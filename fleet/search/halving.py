"""Successive halving with rungs: without barriers (ASHA), with barriers, and in the brackets of Hyperband."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from fleet.search.chances import LikelyRanks, Probable, Ranking
from fleet.search.decisions import Segment, Verdict
from fleet.search.stopping_rule import SpeculativeRule


class Rungs(SpeculativeRule):
    """The rungs at which trials pause, and from which one of `eta` goes on.

    Args:
        rungs: epochs, ascending; the last is the most that a trial trains.
        eta: of how many trials one goes on, 2 or more.
    """

    def __init__(self, rungs: Sequence[int], eta: int) -> None:
        self._rungs, self._eta = tuple(rungs), eta
        self._level_of = {epoch: level for level, epoch in enumerate(self._rungs)}

    def first(self, trial: int) -> Segment:
        """Begin with the way to the first rung."""
        return Segment(trial, 0, self._rungs[0])

    def after(self, segment: Segment) -> int:
        """Count all epochs up to the last rung."""
        return self._rungs[-1] - segment.end

    def mean_after(self, segment: Segment) -> float:
        """Count what follows where one trial of eta goes on from each rung."""
        return self._mean_from(self._level_of[segment.end])

    def mean_after_new(self, new: range) -> float:
        """Count what follows on as many trials."""
        return len(new) * self._mean_from(0)

    def _mean_from(self, level: int) -> float:
        """Epochs that a trial trains beyond a rung, in the mean."""
        rungs = self._rungs[level:]
        return sum((end - start) / self._eta ** (place + 1) for place, (start, end) in enumerate(zip(rungs, rungs[1:])))

    def _onward(self, trial: int, level: int) -> Segment:
        return Segment(trial, self._rungs[level], self._rungs[level + 1])


class Halving(Rungs):
    """A trial goes on from a rung once it is among the best 1/eta of those that are known there.

    A trial pauses at each rung. A free slot takes the highest promotion there is, otherwise a new trial (Algorithm 2).
    With `confidence`, and while there are new trials, one goes on only if it is this likely to be among the best 1/eta
    of all that will come to its rung (`chance_of_best`). So few go on that only looked good early, and no slot waits.

    Args:
        rungs: epochs, ascending; the last is the most that a trial trains.
        eta: of how many trials one goes on, 2 or more.
        confidence: below 1; 0: Algorithm 2.
    """

    def __init__(self, rungs: Sequence[int], eta: int, confidence: float = 0.0) -> None:
        super().__init__(rungs, eta)
        self._likely_ranks = LikelyRanks(eta, confidence) if confidence else None
        self._known = [Ranking() for _ in self._rungs]
        self._heard = [Ranking() for _ in self._rungs]
        self._probable = Probable(self._heard, eta)
        self._early: list[dict[int, float]] = [{} for _ in self._rungs]  # losses that have arrived, and are not known
        self._gone: list[set[int]] = [set() for _ in self._rungs]  # trials that have gone on from each
        self._ranks: tuple[int, list[int]] | None = None  # trials, and `_sure_ranks` until something changes
        self._came = [0 for _ in self._rungs]  # those that have, and have arrived at the next one, which this is

    def report(self, trial: int, epoch: int, loss: float | None) -> Verdict:
        """Rank the trial at its rung."""
        level, self._ranks = self._level_of[epoch], None
        self._known[level].add(trial, loss)
        self._early[level].pop(trial, None)
        if loss is None:
            return "fail"
        return "done" if epoch == self._rungs[-1] else "pause"

    def next(self, fresh: int | None, trials: int | None = None) -> Segment | None:
        """Give the highest promotion, otherwise the new trial."""
        ranks = self._likely_ranks
        if ranks is not None and fresh is not None and trials is not None:
            found = self._best(lambda level, known: ranks.of(level, known, trials))
        else:
            found = self.promotion()
        return found or (None if fresh is None else self.first(fresh))

    def promotion(self) -> Segment | None:
        """Let the best trial go on that may from the highest rung that has one."""
        return self._best(lambda level, known: known // self._eta)

    def _best(self, quota: Callable[[int, int], int]) -> Segment | None:
        """Let the best trial go on from the highest rung where one is left among the best.

        Args:
            quota: (level, known trials) -> how many of them may go on.
        """
        for level in reversed(range(len(self._rungs) - 1)):
            for trial in self._known[level].best_left(quota(level, len(self._known[level]))):
                return self._go_on(trial, level)
        return None

    def _go_on(self, trial: int, level: int) -> Segment:
        """Let a trial go on from a rung."""
        self._ranks = None
        self._known[level].take(trial)
        self._gone[level].add(trial)
        self._came[level + 1] += self._heard[level + 1].has(trial)
        return self._onward(trial, level)

    def highest(self) -> int | None:
        """The epochs of the rung from which `promotion` would be; None: there is none."""
        for level in reversed(range(len(self._rungs) - 1)):
            ranking = self._known[level]
            if any(True for _ in ranking.best_left(len(ranking) // self._eta)):
                return self._rungs[level]
        return None

    def arrived(self, trial: int, epoch: int, loss: float | None) -> None:
        """Rank the trial among those that have arrived."""
        level = self._level_of.get(epoch)
        if level is None:
            return
        self._ranks = None
        self._heard[level].add(trial, loss)
        self._early[level][trial] = math.inf if loss is None else loss
        if level:
            self._heard[level - 1].take(trial)
            self._came[level] += trial in self._gone[level - 1]

    def likely(self, trials: int | None = None) -> Iterator[Segment]:
        """Trials among the best 1/eta that have arrived at a rung, one at least, from the highest rung down.

        Where so few trials will come to a rung that hardly any goes on from it, none is likely to.
        """
        for level in reversed(range(len(self._rungs) - 1)):
            ranking = self._heard[level]
            quota = max(1, len(ranking) // self._eta)
            quota = quota if trials is None else min(quota, trials // self._eta ** (level + 1))
            for trial in ranking.best_left(quota):
                yield self._onward(trial, level)

    def probable(self, trials: int) -> Iterator[Segment]:
        """Those of `fleet.search.chances.Probable`."""
        return (self._onward(*each) for each in self._probable.onward(trials))

    def is_promising(self, segment: Segment, trials: int) -> bool:
        """Whether its trial is, at the rung where it begins."""
        return self._probable.is_promising(segment.trial, self._level_of[segment.start], trials)

    def sure(self, trials: int) -> Iterator[Segment]:
        """Trials that will be among the best 1/eta of a rung when all have come that may come there.

        Of N trials at a rung the best N // eta go on, at least. Above the first rung nobody knows N; as it grows by
        one, so may the rank of a trial, and N // eta by less. So the most that may come are the worst that can be.
        """
        if self._ranks is None or self._ranks[0] != trials:
            self._ranks = trials, self._sure_ranks(trials)
        ranks = self._ranks[1]
        for level in reversed(range(len(ranks))):
            for trial in self._heard[level].best_left(ranks[level]):
                if trial not in self._gone[level] and self._comes(trial, level, ranks):
                    yield self._onward(trial, level)

    def hopeless(self, trials: int) -> Iterator[int]:
        """Trials that are not among the best 1/eta of as many as may come to their rung."""
        size = trials
        for level, known in enumerate(self._known[:-1]):
            quota, left = size // self._eta, list(known.best_left(len(known)))
            yield from (trial for trial in left if known.rank(trial) >= quota)
            size = min(size, len(self._gone[level]) + known.count_left(quota) + max(0, size - len(known)))

    def _sure_ranks(self, trials: int) -> list[int]:
        """For each rung, how many of the best that have arrived there surely go on, if they surely come there."""
        ranks, size, came = list[int](), trials, len(self._heard[0])
        for level in range(len(self._rungs) - 1):
            best = size // self._eta - (size - came)
            if best <= 0:
                break
            size = self._most_from(level, size, ranks)
            ranks.append(best)
            waiting = self._early[level + 1].keys() - self._gone[level]
            came = self._came[level + 1] + sum(self._comes(trial, level + 1, ranks) for trial in waiting)
        return ranks

    def _comes(self, trial: int, level: int, ranks: Sequence[int]) -> bool:
        """Whether a trial surely comes to a rung; `ranks` are those of the rungs below."""
        if level == 0 or trial in self._gone[level - 1]:
            return True
        below = self._heard[level - 1]
        return below.has(trial) and below.rank(trial) < ranks[level - 1] and self._comes(trial, level - 1, ranks)

    def _most_from(self, level: int, size: int, ranks: Sequence[int]) -> int:
        """How many may go on from a rung to which so many may come."""
        known, quota = self._known[level], size // self._eta
        early = [each for each in self._early[level].items() if self._comes(each[0], level, ranks)]
        too_bad = sum(known.rank(*each) >= quota for each in early)
        return len(self._gone[level]) + known.count_left(quota) + size - len(known) - too_bad


class SynchronousHalving(Rungs):
    """All trials come to a rung before the best 1/eta of them, one at least, go on from it.

    Trials that are added after the first rung was left make a bracket of their own, once the one before is done.

    Args:
        rungs: epochs, ascending; the last is the most that a trial trains.
        eta: of how many trials one goes on, 2 or more.
    """

    def __init__(self, rungs: Sequence[int], eta: int) -> None:
        super().__init__(rungs, eta)
        self._begun = 0  # trials
        self._heard: list[tuple[int, int, float | None]] = []  # of trials of the bracket that comes next
        self._begin_bracket()

    def _begin_bracket(self) -> None:
        """Begin with trials that are new."""
        self._first, self._arrived = self._begun, [Ranking() for _ in self._rungs]
        self._probable = Probable(self._arrived, self._eta)
        self._open(0)
        heard, self._heard = self._heard, []
        for each in heard:
            self.arrived(*each)

    def _open(self, level: int) -> None:
        """Begin with a rung."""
        self._level, self._awaited, self._ranking = level, 0, Ranking()
        self._queue: list[Segment] = []
        self._coming: frozenset[int] = frozenset()  # trials that come to it, once the rung before is left
        self._came = 0  # of these

    def report(self, trial: int, epoch: int, loss: float | None) -> Verdict:
        """Rank the trial at its rung."""
        self._awaited -= 1
        self._ranking.add(trial, loss)
        if loss is None:
            return "fail"
        return "done" if epoch == self._rungs[-1] else "pause"

    def next(self, fresh: int | None, trials: int | None = None) -> Segment | None:
        """A trial that goes on; or a new one, if nobody has gone on from the first rung."""
        if self._level == 0 and fresh is not None:
            self._awaited += 1
            self._begun = fresh + 1
            return self.first(fresh)
        while not self._queue:
            if self._awaited or not len(self._ranking):
                return None
            self._leave_rung()
            if self._level == 0 and fresh is not None:
                return self.next(fresh)
        return self._queue.pop(0)

    def _leave_rung(self) -> None:
        """Let the best of a rung that all have reached go on, or end the bracket."""
        level = self._level
        best = list(self._ranking.best_left(self._quota(len(self._ranking))))
        if level == len(self._rungs) - 1 or not best:
            self._begin_bracket()
            return
        self._open(level + 1)
        self._queue = [self._onward(trial, level) for trial in best]
        self._awaited, self._coming = len(best), frozenset(best)
        self._came = sum(map(self._arrived[level + 1].has, best))

    def arrived(self, trial: int, epoch: int, loss: float | None) -> None:
        """Rank the trial among those of its bracket that have arrived."""
        if epoch not in self._level_of:
            return
        if self._level and trial >= self._begun:
            self._heard.append((trial, epoch, loss))
            return
        level = self._level_of[epoch]
        self._arrived[level].add(trial, loss)
        self._came += level == self._level and trial in self._coming
        if level:
            self._arrived[level - 1].take(trial)

    def likely(self, trials: int | None = None) -> Iterator[Segment]:
        """Trials among the best 1/eta that have arrived at a rung, from the highest rung down."""
        for level in reversed(range(len(self._rungs) - 1)):
            ranking = self._arrived[level]
            for trial in ranking.best_left(self._quota(len(ranking))):
                yield self._onward(trial, level)

    def probable(self, trials: int) -> Iterator[Segment]:
        """Those of the bracket (`fleet.search.chances.Probable`)."""
        return (self._onward(*each) for each in self._probable.onward(trials - self._first))

    def is_promising(self, segment: Segment, trials: int) -> bool:
        """Whether its trial is, at the rung where it begins; none of a bracket that is to come."""
        return self._probable.is_promising(segment.trial, self._level_of[segment.start], trials - self._first)

    def sure(self, trials: int) -> Iterator[Segment]:
        """Trials that are among the best of a rung even if all that are missing there are better, from the lowest up:
        the others wait for these.
        """
        yield from self._queue
        level, coming = self._level, self._coming
        size, came = (len(coming), self._came) if level else (trials - self._first, len(self._arrived[0]))
        while level < len(self._rungs) - 1:
            ranking, quota = self._arrived[level], self._quota(size)
            for trial in ranking.best_left(quota - (size - came)):
                if not level or trial in coming:
                    yield self._onward(trial, level)
            if came < size:
                return
            best = (trial for trial in ranking.not_failed() if not level or trial in coming)
            coming, level = frozenset(islice(best, quota)), level + 1
            size, came = len(coming), sum(map(self._arrived[level].has, coming))

    def _quota(self, size: int) -> int:
        """How many of a rung go on."""
        return max(1, size // self._eta)


class Hyperband(SpeculativeRule):
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
        """Yield what is likely in each bracket, the longest trained first."""
        return self._of_all(lambda bracket, share: bracket.likely(None if trials is None else share), trials or 0)

    def probable(self, trials: int) -> Iterator[Segment]:
        """Yield what is probable in each bracket, the longest trained first."""
        return self._of_all(Halving.probable, trials)

    def is_promising(self, segment: Segment, trials: int) -> bool:
        """Whether its trial is, in its bracket."""
        number = self.bracket(segment.trial)
        return self._brackets[number].is_promising(segment, self._share(number, trials))

    def sure(self, trials: int) -> Iterator[Segment]:
        """Yield what is sure in each bracket, the longest trained first."""
        return self._of_all(Halving.sure, trials)

    def _of_all(self, told: Callable[[Halving, int], Iterator[Segment]], trials: int) -> Iterator[Segment]:
        """Yield what each bracket tells of its share of the trials, the longest trained first."""
        brackets = enumerate(self._brackets)
        found = [segment for number, each in brackets for segment in told(each, self._share(number, trials))]
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
