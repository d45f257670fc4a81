"""Population-based training (Jaderberg et al., Population Based Training of Neural Networks, 2017)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fleet.search.decisions import Copy, Segment, Verdict
from fleet.search.space import Parameter, answers_of, values_of
from fleet.search.to_the_end import ToTheEnd
from fleet.spec.distributions import Distribution, draw, fraction


class Explorer:
    """Changes values, each by itself: with some probability it is drawn anew, else it is perturbed.

    A number is multiplied by one of the factors, within its range; of choices the one before or after is taken. Draws
    are by seed path (seed, trial, epoch, path, purpose).

    Args:
        over: dotted path -> its distribution.
        seed: the search's.
        resample: probability with which a value is drawn anew.
        factors: of numbers.
    """

    def __init__(
        self, over: Mapping[str, Distribution], seed: int, resample: float, factors: tuple[float, float]
    ) -> None:
        self._over, self._seed, self._resample, self._factors = dict(over), seed, resample, factors

    def choice(self, count: int, trial: int, epoch: int) -> int:
        """A number below `count`."""
        return int(fraction(self._seed, trial, f"{epoch} donor") * count)

    def explored(self, values: Mapping[str, Any], trial: int, epoch: int) -> dict[str, Any]:
        """Values near these, for a trial after so many epochs."""
        return {path: self._one(path, what, values[path], trial, epoch) for path, what in self._over.items()}

    def _one(self, path: str, what: Distribution, value: Any, trial: int, epoch: int) -> Any:
        purpose = f"{epoch} {path}"
        if fraction(self._seed, trial, f"{purpose} resample") < self._resample:
            return draw(what, self._seed, trial, f"{purpose} draw")
        answers = {each.name: answer for each, answer in answers_of({path: what}, {path: value}).items()}

        def perturbed(parameter: Parameter) -> Any:
            answer = answers.get(parameter.name)
            if answer is None:  # of a longer list
                return parameter.at(fraction(self._seed, trial, f"{purpose} {parameter.name} new"))
            up = fraction(self._seed, trial, f"{purpose} {parameter.name}") < 0.5
            return _near(parameter, answer, up, self._factors)

        return values_of({path: what}, perturbed)[path]


def _near(parameter: Parameter, answer: float, up: bool, factors: tuple[float, float]) -> float | int:
    if parameter.step is not None:
        near = parameter.rounded(answer * factors[up])
        return parameter.rounded(answer + (parameter.step if up else -parameter.step)) if near == answer else near
    if parameter.kind == "index":
        moved = int(answer) + (1 if up else -1)
    elif parameter.is_whole:
        moved = round(answer * factors[up])
        moved = int(answer) + (1 if up else -1) if moved == answer else moved
    else:
        return parameter.rounded(answer * factors[up])
    return min(max(moved, int(parameter.low)), int(parameter.high))


class Population(ToTheEnd):
    """All trials train to their end; after each interval one of the worst goes on from one of the best.

    Of n members that are known, those count as worst and as best that are among the last and the first `quantile` of n
    (truncation selection, 4.1.1), one at least, once there are two. A member is known by its last value. The one that
    goes on from another has that one's weights of that time, and its values, explored (see `Explorer`).

    Args:
        epochs: how many each member trains.
        interval: epochs between two comparisons.
        quantile: part of the members, at most half.
        explorer: changes values.
        synchronous: whether members wait for each other at each interval.
    """

    def __init__(
        self, epochs: int, interval: int, quantile: float, explorer: Explorer, synchronous: bool = False
    ) -> None:
        super().__init__(epochs, min(interval, epochs))
        self._quantile, self._explorer, self._waits = quantile, explorer, synchronous
        self._known: dict[int, tuple[float, int]] = {}  # member -> its last loss, and after how many epochs
        self._under_way: set[int] = set()
        self._arrived: list[int] = []  # members that wait for each other
        self._ready: list[int] = []
        self._copies: dict[int, Copy] = {}
        self._now: dict[int, Mapping[str, Any]] = {}  # member -> its values
        self._seen: dict[int, Mapping[str, Any]] = {}  # member -> its values when it was known last

    def begun(self, trial: int, values: Mapping[str, Any]) -> None:
        """Take the values with which a member begins."""
        self._now[trial] = values

    def report(self, trial: int, epoch: int, loss: float | None) -> Verdict | None:
        """Rank the member; it goes on unless it has failed or has all epochs."""
        self._under_way.discard(trial)
        if loss is None:
            self._known.pop(trial, None)
            return "fail"
        self._known[trial], self._seen[trial] = (loss, epoch), self._now.get(trial, {})
        if epoch == self._epochs:
            return "done"
        if self._waits:
            self._arrived.append(trial)
        else:
            self._select(trial)
        return None

    def next(self, fresh: int | None, trials: int | None = None) -> Segment | None:
        """A new member, as long as there are any; then one that goes on."""
        if fresh is not None:
            self._under_way.add(fresh)
            return self.first(fresh)
        if not self._ready and self._arrived and not self._under_way:
            arrived, self._arrived = sorted(self._arrived), []
            for trial in arrived:
                self._select(trial)
        if not self._ready:
            return None
        trial = self._ready.pop(0)
        self._under_way.add(trial)
        epoch = self._known[trial][1]
        return Segment(trial, epoch, min(epoch + self._first, self._epochs))

    def copy(self, trial: int) -> Copy | None:
        """From whom the member goes on that `next` has just given; None: from itself."""
        return self._copies.pop(trial, None)

    def _select(self, trial: int) -> None:
        """Let a member go on, from itself or a better one."""
        self._ready.append(trial)
        order = sorted(self._known, key=lambda member: (self._known[member][0], member))
        count = max(1, math.floor(len(order) * self._quantile))
        if len(order) < 2 or trial not in order[-count:] or self._known[trial][0] == math.inf:
            return
        epoch = self._known[trial][1]
        donor = order[self._explorer.choice(count, trial, epoch)]
        values = self._explorer.explored(self._seen[donor], trial, epoch)
        self._now[trial] = values
        self._copies[trial] = Copy(donor, self._known[donor][1], values)
