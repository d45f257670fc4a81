"""What decides which trial trains how far: in virtual time, or as results come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from benchmarks.searched.drawn_trials import DrawnTrials
from fleet.search import Decision, Record, Search, Segment, StoppingRule


class Decider(Protocol):
    """What devices ask for work."""

    def needed(self) -> tuple[Segment, ...]:
        """What must be trained, the most urgent first."""
        ...

    def ahead(self, most: int) -> tuple[Segment, ...]:
        """What may be trained before it is decided."""
        ...

    def sure(self, devices: int) -> Iterator[Segment]:
        """What will be wanted in any case, and is not needed yet."""
        ...

    def least_epochs(self, sure: bool) -> int:
        """Epochs that it wants at least, all in all; sure: all trials will begin."""
        ...

    def tell(self, trial: int, epoch: int, value: float) -> object:
        """Take a result."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to decide."""
        ...

    @property
    def decided(self) -> Mapping[int, int]:
        """Trial -> epochs that it was to have."""
        ...


class NumberedTrials:
    """A sampler whose trials are drawn already; `prefetch` says how many ahead it would suggest them."""

    def __init__(self, prefetch: int | None) -> None:
        self.prefetch = prefetch

    def suggest(self, trial: int, records: Sequence[Record]) -> Mapping[str, Any]:
        """Nothing: the trial's number says all."""
        return {}


class InVirtualTime(Search):
    """A search of drawn trials in virtual time.

    Args:
        trials: the trials.
        rule: the stopping rule.
        width: virtual slots.
        prefetch: of the sampler.
        speculates: whether anything is trained before it is decided.
    """

    def __init__(
        self, trials: DrawnTrials, rule: StoppingRule, width: int, prefetch: int | None, speculates: bool = True
    ) -> None:
        self.decided: dict[int, int] = {}
        self._speculates = speculates
        super().__init__(rule, NumberedTrials(prefetch), lambda trial, values: trials.costs[trial], width, trials.count)
        self._note(self.decisions)

    def tell(self, trial: int, epoch: int, value: float | None, further: Sequence[float] = ()) -> tuple[Decision, ...]:
        """Take a result."""
        made = super().tell(trial, epoch, value, further)
        self._note(made)
        return made

    def ahead(self, most: int = 16) -> tuple[Segment, ...]:
        """What may be trained before it is decided."""
        return super().ahead(most) if self._speculates else ()

    def sure(self, devices: int) -> Iterator[Segment]:
        """What will be wanted in any case."""
        return super().sure(devices) if self._speculates else iter(())

    def _note(self, decisions: Sequence[Decision]) -> None:
        for each in decisions:
            self.decided[each.trial] = max(each.end, self.decided.get(each.trial, 0))


class AsResultsCome:
    """The same rule where each result is known at once, and each free slot is filled at once.

    Args:
        trials: the trials.
        rule: the stopping rule.
        slots: trials under way at a time.
    """

    def __init__(self, trials: DrawnTrials, rule: StoppingRule, slots: int) -> None:
        self._rule, self._slots, self._count, self._fresh = rule, slots, trials.count, 0
        self._under_way: dict[int, Segment] = {}
        self.decided: dict[int, int] = {}
        self._fill()

    def needed(self) -> tuple[Segment, ...]:
        """What is under way, in the order in which it began."""
        return tuple(self._under_way.values())

    def ahead(self, most: int) -> tuple[Segment, ...]:
        """Nothing: all that is decided is under way."""
        return ()

    def sure(self, devices: int) -> Iterator[Segment]:
        """Nothing."""
        return iter(())

    def least_epochs(self, sure: bool) -> int:
        """Those that it has decided."""
        return sum(self.decided.values())

    def tell(self, trial: int, epoch: int, value: float) -> object:
        """Take a result."""
        if self._under_way[trial].end != epoch:
            return None
        del self._under_way[trial]
        self._rule.report(trial, epoch, value)
        self._fill()
        return None

    @property
    def is_over(self) -> bool:
        """Whether nothing is under way."""
        return not self._under_way

    def _fill(self) -> None:
        while len(self._under_way) < self._slots:
            segment = self._rule.next(self._fresh if self._fresh < self._count else None)
            if segment is None:
                return
            self._fresh += segment.start == 0
            self._under_way[segment.trial] = segment
            self.decided[segment.trial] = segment.end
