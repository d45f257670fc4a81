"""A search in virtual time: a pure function of its rule, its sampler, its costs and the results.

Trials train on `width` virtual slots, each epoch for as long as its cost says. Decisions fall in that virtual order,
whatever the order in which results arrive, as in a conservative simulation of discrete events (Chandy and Misra, 1979).
So they are the same on any number of real devices, of any speed, that are lost or not.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, count, islice
from typing import Any, get_args

from fleet.search.decisions import Change, Copy, Decision, Kind, Outcome, OwnTrials, Record, Segment, Status, Verdict
from fleet.search.population import Population
from fleet.search.samplers import Sampler
from fleet.search.stopping_rule import SpeculativeRule, StoppingRule

Costs = Callable[[int, Mapping[str, Any]], int]
_STATUS: Mapping[Kind, Status] = {
    "start": "suggested",
    "resume": "suggested",
    "pause": "paused",
    "stop": "stopped",
    "done": "done",
    "fail": "failed",
}

_VERDICTS = get_args(Verdict)


class Search:
    """Which trials train how far, decided in virtual time.

    Events go by (virtual finish, trial): a result becomes known, its slot is free, and free slots are filled before the
    next result becomes known.

    Args:
        rule: which trial goes on; it must be new, and belongs to the search. A `SpeculativeRule` tells what may train
            ahead, of another one nothing does but new trials.
        sampler: what suggests values.
        costs: (trial, its values) -> the virtual cost of one of its epochs, a whole number of 1 or more.
        width: virtual slots.
        trials: how many trials there may be; None: as many as `epochs` allow.
        epochs: how many epochs all trials together may train; the search ends at the first segment that is too long.
        maximise: whether a greater value is better, of several metrics one for each; the first decides.
        planned: how many trials the rule reckons with, where that is not `trials`, as not all are there to be replayed.

    Raises:
        ValueError: nothing bounds the search, or a bound cannot be.
    """

    def __init__(
        self,
        rule: StoppingRule,
        sampler: Sampler,
        costs: Costs,
        width: int,
        trials: int | None = None,
        epochs: int | None = None,
        maximise: bool | Sequence[bool] = False,
        planned: int | None = None,
    ) -> None:
        if trials is None and epochs is None:
            raise ValueError("a search without an end: give it trials or epochs")
        self._rule = rule if isinstance(rule, SpeculativeRule) else _Unforeseen(rule)
        self._name = type(rule).__name__  # for messages
        self._sampler, self._costs = sampler, costs
        directions = [maximise] if isinstance(maximise, bool) else maximise
        self._sign, *self._signs = (-1.0 if more else 1.0 for more in directions)
        self._width, self._most_trials, self._most_epochs, self._planned = width, trials, epochs, planned or trials
        self.clock, self.decisions = 0, list[Decision]()
        self._begun = self._used = 0  # trials, and epochs of all segments, that began
        self._held: Segment | None = None  # decided, but too long for the epochs that are left
        self._closed, self._changes = False, list[Change]()
        self._own, self._tail = OwnTrials(), dict[int, bool]()  # by devices
        self._early = set[int]()  # trials whose first results arrive before they begin
        self._under_way, self._events = dict[int, tuple[int, Segment]](), list[tuple[int, int]]()  # by virtual finish
        self._arrived, self._further = dict[tuple[int, int], float | None](), dict[tuple[int, int], tuple[float, ...]]()
        self._known, self._last = list[tuple[int, int, float | None]](), dict[int, tuple[int, float | None]]()
        self._status, self._values = dict[int, Status](), dict[int, Mapping[str, Any]]()
        self._firsts, self._views = [0], list[tuple[int, int]]()  # by trial: epochs at first; what was known by then
        self._hash = hashlib.sha256()
        Change(0, width, trials, epochs)  # checks them
        self._advance()

    def needed(self) -> tuple[Segment, ...]:
        """What must be told before more can be decided: trials that began first come first.

        So promotions are trained before new trials, and the best is found sooner, where there is more than can be
        trained at a time. Any other order leads to the same decisions.
        """
        if self._closed:
            return ()
        end = min((change.time for change in self._changes if change.over), default=math.inf)
        return tuple(
            segment
            for trial, (finish, segment) in sorted(self._under_way.items())
            if finish <= end and (trial, segment.end) not in self._arrived
        )

    def ahead(self, most: int = 16) -> tuple[Segment, ...]:
        """What may be trained before it is decided, the likeliest first; none of it is needed yet.

        First come trials that would go on by the results that have arrived, then new trials as far as `prefetch` goes.
        """
        if self._closed:
            return ()
        likely = filter(self._may_be_ahead, self._rule.likely(self._most_trials))
        return tuple(islice(chain(likely, self.fresh()), most))

    def sure(self, devices: int) -> Iterator[Segment]:
        """What it will want whatever the missing results come to, and does not need yet.

        New trials are among them `in_tail`. There are none at all where trials may not begin, or not go on,
        although they should: where epochs bound it, or somebody ends it.
        """
        if self._may_end_before() or self._most_trials is None:
            return iter(())
        sure = filter(self._may_be_ahead, self._rule.sure(self._most_trials))
        return chain(sure, self.fresh()) if self.in_tail(devices) else sure

    def probable(self) -> Iterator[Segment]:
        """What it will very likely want of trials that pause, and is better trained before new ones."""
        if self._may_end_before() or self._most_trials is None:
            return iter(())
        return filter(self._may_be_ahead, self._rule.probable(self._most_trials))

    def hopeless(self) -> Iterator[int]:
        """Trials that pause and will never go on, whatever others come to, as long as its bounds stay."""
        return iter(()) if self._most_trials is None else self._rule.hopeless(self._most_trials)

    def is_promising(self, segment: Segment) -> bool:
        """Whether a paused trial is as likely to train a segment as one of which nobody knows anything, or likelier."""
        return self._most_trials is not None and self._rule.is_promising(segment, self._most_trials)

    def further(self, segment: Segment) -> int:
        """Epochs that may follow on a segment, of its own trial or of others that its result lets go on."""
        return self._rule.after(segment)

    def in_tail(self, devices: int) -> bool:
        """Whether its end may wait for what begins last, see `fleet.search.virtual_time`."""
        if self._may_end_before() or self._most_trials is None:
            return False
        if devices not in self._tail:
            sure, new = self._rule.sure(self._most_trials), range(self._begun, self._most_trials)
            segments = chain(self.needed(), filter(self._may_be_ahead, sure), self.probable() if new else ())
            self._tail[devices] = is_tail(self._rule, segments, new, self._early, devices)
        return self._tail[devices]

    def _may_end_before(self) -> bool:
        """Whether it may end before its trials do."""
        return self._closed or self._most_epochs is not None or any(change.over for change in self._changes)

    def least_epochs(self, sure: bool) -> int:
        """Epochs that it wants at least, all in all.

        Args:
            sure: whether all trials will begin; else those count that have.
        """
        if not sure or self._closed or self._most_trials is None or self._most_epochs is not None:
            return self._used
        for trial in range(len(self._firsts) - 1, self._most_trials):
            self._firsts.append(self._firsts[-1] + self._rule.first(trial).end)
        return self._used + self._firsts[self._most_trials] - self._firsts[self._begun]

    def _may_be_ahead(self, segment: Segment) -> bool:
        """Whether a segment is neither told nor beyond one that is needed."""
        if (segment.trial, segment.end) in self._arrived:
            return False
        _, now = self._under_way.get(segment.trial, (0, None))
        return now is None or (segment.trial, now.end) in self._arrived

    def fresh(self) -> Iterator[Segment]:
        """First segments of trials that have not begun, as far as `prefetch` goes; none whose result is told."""
        ahead = self._sampler.prefetch
        for trial in count(self._begun) if ahead is None else range(self._begun, self._begun + ahead):
            segment = self._rule.first(trial)
            if self._most_trials is not None and trial >= self._most_trials:
                return
            used = self._used + (trial + 1 - self._begun) * segment.end
            if self._closed or (self._most_epochs is not None and used > self._most_epochs):
                return
            if self._may_be_ahead(segment):
                yield segment

    def tell(self, trial: int, epoch: int, value: float | None, further: Sequence[float] = ()) -> tuple[Decision, ...]:
        """Take a result, at any real time: also one that nobody has asked for yet.

        Args:
            trial: whose.
            epoch: after how many epochs; only ends of segments count.
            value: the metric; None, and what is not finite, means that the trial failed by then.
            further: the further metrics, where the search has several and there is a value.

        Returns:
            what follows from it and from earlier results.

        Raises:
            ValueError: another value was told before, or another number of metrics than there are.
        """
        known = value is not None and all(map(math.isfinite, (value, *further)))
        if known and len(further) != len(self._signs):
            raise ValueError(f"trial {trial} has {1 + len(further)} of {1 + len(self._signs)} metrics")
        loss = self._sign * value if known and value is not None else None
        rest = tuple(sign * each for sign, each in zip(self._signs, further)) if known else ()
        if (trial, epoch) in self._arrived:
            if (self._arrived[trial, epoch], self._further.get((trial, epoch), ())) != (loss, rest):
                raise ValueError(f"trial {trial} had another value after {epoch} epochs before than {value}")
            return ()
        self._arrived[trial, epoch] = loss
        self._further[trial, epoch] = rest
        if trial >= self._begun:
            self._early.add(trial)
        self._rule.arrived(trial, epoch, loss)
        return self._advance()

    def has_result(self, trial: int, epoch: int) -> bool:
        """Whether what a trial came to after so many epochs has been told."""
        return (trial, epoch) in self._arrived

    def changed(self, change: Change) -> tuple[Decision, ...]:
        """Take other bounds from a virtual time on; `clock` is the earliest that it may be.

        Raises:
            ValueError: later things are decided already.
        """
        latest = max([self.clock, *(other.time for other in self._changes)])
        if change.time < latest:
            raise ValueError(f"the change is of virtual time {change.time}, and it is {latest} already")
        self._changes.append(change)
        return self._advance()

    def remember(self, trial: int, values: Mapping[str, Any]) -> None:
        """Take a trial's values from a record instead of suggesting them again; before the trial begins."""
        self._values.setdefault(trial, dict(values))

    def values(self, trial: int) -> Mapping[str, Any]:
        """A trial's values: dotted path -> value.

        Raises:
            KeyError: it is not suggested yet: it depends on results that are not known.
        """
        ahead = self._sampler.prefetch
        if ahead is not None and trial >= self._begun + ahead and trial not in self._values:
            raise KeyError(f"trial {trial} is not suggested yet: {self._begun} have begun, and prefetch is {ahead}")
        if trial not in self._values:
            self._values[trial] = dict(self._sampler.suggest(trial, () if ahead is None else self._records(trial)))
        return self._values[trial]

    def _records(self, trial: int) -> list[Record]:
        """What a sampler knows when it suggests a trial."""
        lag = trial - (self._sampler.prefetch or 0)
        known, decided = self._views[lag] if lag >= 0 else (0, 0)
        losses: dict[int, dict[int, float]] = {}
        further: dict[int, dict[int, tuple[float, ...]]] = {}
        for number, epoch, loss in self._known[:known]:
            if loss is not None:
                losses.setdefault(number, {})[epoch] = loss
                if self._signs:
                    further.setdefault(number, {})[epoch] = self._further[number, epoch]
        status = {decision.trial: _STATUS[decision.kind] for decision in self.decisions[:decided]}
        records = [
            Record(
                number,
                self.values(number),
                losses.get(number, {}),
                status.get(number, "suggested"),
                further.get(number, {}),
            )
            for number in range(trial)
        ]
        return [*records, *self._own.known(lag)]

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to decide."""
        return self._closed or not self._events

    @property
    def begun(self) -> int:
        """How many trials have begun; they are numbered from 0."""
        return self._begun

    def status(self, trial: int) -> Status:
        """How a trial stands in virtual time; one that was not told to go on by the end is stopped.

        Raises:
            KeyError: it is not suggested yet.
        """
        self.values(trial)
        status = self._status.get(trial, "suggested")
        return "stopped" if self.is_over and status in ("paused", "suggested") else status

    def outcome(self, trial: int) -> Outcome:
        """What is known of a trial in virtual time.

        Raises:
            KeyError: it is not suggested yet.
        """
        epochs, loss = self._last.get(trial, (0, None))
        value = None if loss is None else self._sign * loss
        losses = self._further.get((trial, epochs), ())
        further = tuple(sign * each for sign, each in zip(self._signs, losses))
        return Outcome(trial, self.values(trial), self.status(trial), epochs, value, further)

    def best(self) -> tuple[int, float] | None:
        """The trial whose last known value is best (of equal ones the earlier), and the value; None: there is none."""
        found = min(((loss, trial) for trial, (_, loss) in self._last.items() if loss is not None), default=None)
        return None if found is None else (found[1], self._sign * found[0])

    def front(self) -> tuple[int, ...]:
        """The Pareto front by all metrics: trials to whose last known values no other's are better."""
        last = ((trial, epochs, loss) for trial, (epochs, loss) in self._last.items() if loss is not None)
        return front({trial: (loss, *self._further[trial, epochs]) for trial, epochs, loss in last})

    def digest(self) -> str:
        """SHA-256, in hexadecimal, of all decisions in virtual order, with the values of each trial that began."""
        return self._hash.hexdigest()

    def _advance(self) -> tuple[Decision, ...]:
        """Decide all that can be decided."""
        before = len(self.decisions)
        self._tail.clear()
        self._fill()
        while self._step():
            self._fill()
        return tuple(self.decisions[before:])

    def _step(self) -> bool:
        """Let the next thing happen in virtual time; False: it is not known yet, or there is none."""
        finish, trial = self._events[0] if self._events else (math.inf, -1)
        if self._changes and (self._closed or self._changes[0].time < finish):
            self._apply(self._changes.pop(0))
            return True
        if self._closed or not self._events or (trial, self._under_way[trial][1].end) not in self._arrived:
            return False
        self._commit(*heapq.heappop(self._events))
        return True

    def _apply(self, change: Change) -> None:
        """Take other bounds; while a search is closed its time stands still."""
        self.clock = self.clock if self._closed else max(self.clock, change.time)
        self._width = change.width or self._width
        self._most_trials = change.trials or self._most_trials
        self._planned = change.planned or change.trials or self._planned
        self._most_epochs = change.epochs or self._most_epochs
        self._closed = self._closed if change.over is None else change.over
        if change.own is not None:
            self._own.take(self._begun, change.own)

    def _commit(self, finish: int, trial: int) -> None:
        """Let a result become known."""
        self.clock, (_, segment) = finish, self._under_way.pop(trial)
        loss = self._arrived[trial, segment.end]
        self._known.append((trial, segment.end, loss))
        self._last[trial] = (segment.end, loss)
        verdict = self._rule.report(trial, segment.end, loss)
        if verdict is not None:
            if verdict not in _VERDICTS:
                raise ValueError(f"{self._name}.report gives {verdict!r}; it gives {', '.join(_VERDICTS)}, or None")
            self._decide(segment, verdict)

    def _fill(self) -> None:
        """Give free slots something to train."""
        while not self._closed and len(self._under_way) < self._width:
            may_begin = self._most_trials is None or self._begun < self._most_trials
            segment = self._held or self._next(self._begun if may_begin else None)
            if segment is None:
                return
            length = segment.end - segment.start
            if self._most_epochs is not None and self._used + length > self._most_epochs:
                self._held = segment
                return
            self._held = None
            self._begin(segment, length)

    def _next(self, fresh: int | None) -> Segment | None:
        """Ask the rule what a free slot trains.

        Raises:
            ValueError: it is no segment that can be: its trial trains already, or stands elsewhere, or is over.
        """
        segment = self._rule.next(fresh, self._planned)
        if segment is None:
            return None
        had, _ = self._last.get(segment.trial, (0, None))
        waits = segment.trial not in self._under_way and self._status.get(segment.trial) in ("paused", "suggested")
        if segment.start != had or segment.end <= had or not (waits if had else segment.trial == fresh):
            raise ValueError(
                f"{self._name}.next gives {segment}, and the next new trial is {fresh}; it gives that one, or a trial "
                f"that waits, from where it stands: {had} epochs"
            )
        return segment

    def _begin(self, segment: Segment, length: int) -> None:
        """Put a segment into a slot."""
        trial = segment.trial
        if segment.start == 0:
            self._views.append((len(self._known), len(self.decisions)))
            self._begun += 1
            self._early.discard(trial)
        cost = self._costs(trial, self.values(trial))
        if type(cost) is not int or cost < 1:
            raise ValueError(f"an epoch of trial {trial} costs {cost!r}; a cost is a whole number of 1 or more")
        self._used += length
        finish = self.clock + cost * length
        self._under_way[trial] = finish, segment
        heapq.heappush(self._events, (finish, trial))
        if isinstance(self._rule, Population) and segment.start == 0:
            self._rule.begun(trial, self._values[trial])
        copy = self._rule.copy(trial) if isinstance(self._rule, Population) else None
        self._decide(segment, "resume" if segment.start else "start", copy)

    def _decide(self, segment: Segment, kind: Kind, copy: Copy | None = None) -> None:
        decision = Decision(self.clock, segment.trial, segment.start, segment.end, kind, copy)
        self.decisions.append(decision)
        self._status[segment.trial] = _STATUS[kind]
        told: list[Any] = [decision.time, decision.trial, decision.start, decision.end, kind]
        if kind == "start":
            told.append(self._values[segment.trial])
        if copy is not None:
            told.append([copy.donor, copy.epoch, copy.values])
        self._hash.update(json.dumps(told, sort_keys=True).encode() + b"\n")


class _Unforeseen(SpeculativeRule):
    """A rule that tells nothing of what it will want."""

    def __init__(self, rule: StoppingRule) -> None:
        self._rule = rule

    def first(self, trial: int) -> Segment:
        return self._rule.first(trial)

    def report(self, trial: int, epoch: int, loss: float | None) -> Verdict | None:
        return self._rule.report(trial, epoch, loss)

    def next(self, fresh: int | None, trials: int | None = None) -> Segment | None:
        return self._rule.next(fresh, trials)


def is_tail(
    rule: SpeculativeRule, segments: Iterable[Segment], new: range, early: Collection[int], devices: int
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


def front(losses: Mapping[int, Sequence[float]]) -> tuple[int, ...]:
    """The Pareto front, ascending: trials that no other dominates, being as good by each loss and better by one.

    Args:
        losses: trial -> its losses, as many of each trial; less is better.
    """
    found: list[int] = []
    for trial in sorted(losses, key=lambda each: (tuple(losses[each]), each)):  # whoever dominates comes first
        if not any(_dominates(losses[other], losses[trial]) for other in found):
            found.append(trial)
    return tuple(sorted(found))


def _dominates(mine: Sequence[float], other: Sequence[float]) -> bool:
    return tuple(mine) != tuple(other) and all(a <= b for a, b in zip(mine, other))
