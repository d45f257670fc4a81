"""Devices on which a search's trials train, played event by event."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from benchmarks.searched.deciders import Decider
from benchmarks.searched.drawn_trials import RUNGS, DrawnTrials
from fleet.search import Segment
from fleet.session.search.ahead import may_train_ahead

MOVING = 0.05  # epochs that it costs to go on with a trial on a device that had another one
SPEED_UP = 0.9  # m devices train one trial m ** 0.9 times as fast
MOST_DEVICES = 16  # of one trial
SHARE = 0.03  # of the epochs that a search wants, so many may be for nothing


@dataclass
class Training:
    """One epoch of a trial on some devices."""

    trial: int
    devices: list[int]
    begin: float
    end: float
    given_up: bool = False


@dataclass
class Outcome:
    """What became of a search.

    Attributes:
        seconds: until it was over.
        epochs: that it wanted.
        unused: whole epochs that were trained and that it did not want.
        lost: device-seconds of epochs that were given up halfway, as a part of all.
        arrived: (second, loss) of each trial that had all epochs, when it had them.
        known: the same, when the search knew of them.
    """

    seconds: float = 0.0
    epochs: int = 0
    unused: int = 0
    lost: float = 0.0
    arrived: list[tuple[float, float]] = field(default_factory=list)
    known: list[tuple[float, float]] = field(default_factory=list)


class Devices:
    """Devices that train what a search needs, and with what is left what it may need.

    Args:
        trials: how long their epochs take, and their losses.
        count: how many devices.
        search: what decides.
        elastic: whether devices that are left help with what is needed.
    """

    def __init__(self, trials: DrawnTrials, count: int, search: Decider, elastic: bool) -> None:
        self._trials, self._search, self._elastic, self._count = trials, search, elastic, count
        self._guessed = 0  # epochs of what was not needed by then, but for new trials and what is sure
        self._sure: dict[int, int] = {}  # trial -> epochs that it surely will have
        self._clock, self._number, self._spent, self._given_up = 0.0, 0, 0.0, 0.0
        self._idle = list(range(count))
        self._resident: list[int | None] = [None] * count
        self._progress: dict[int, int] = {}
        self._running: dict[int, Training] = {}
        self._events: list[tuple[float, int, Training]] = []
        self._needed: set[int] = set()
        self._seen: set[int] = set()
        self._outcome = Outcome()

    def play(self) -> Outcome:
        """Train until the search is over."""
        self._give_work()
        while not self._search.is_over:
            self._clock, _, training = heapq.heappop(self._events)
            if not training.given_up:
                self._end_epoch(training)
        decided, told = self._search.decided, self._outcome
        told.seconds, told.epochs = self._clock, sum(decided.values())
        told.unused = sum(max(0, done - decided.get(trial, 0)) for trial, done in self._progress.items())
        told.lost = self._given_up / self._spent
        return told

    def _end_epoch(self, training: Training) -> None:
        trial = training.trial
        del self._running[trial]
        self._progress[trial] = epoch = self._progress.get(trial, 0) + 1
        self._spent += (self._clock - training.begin) * len(training.devices)
        if epoch in RUNGS:
            self._search.tell(trial, epoch, self._trials.loss(trial, epoch))
        if epoch == RUNGS[-1]:
            self._outcome.arrived.append((self._clock, self._trials.loss(trial, epoch)))
        self._note_known()
        waiting = self._search.needed()
        self._needed = {segment.trial for segment in waiting}
        if trial in self._needed:
            self._begin(trial, self._sized(training.devices, trial))
        else:
            self._idle += training.devices
        self._give_work()

    def _note_known(self) -> None:
        """Note which trials the search knows to have all epochs."""
        under_way = {segment.trial for segment in self._search.needed()}
        for trial, epochs in self._search.decided.items():
            if epochs == RUNGS[-1] and trial not in self._seen and trial not in under_way and self._has_all(trial):
                self._seen.add(trial)
                self._outcome.known.append((self._clock, self._trials.loss(trial, epochs)))

    def _has_all(self, trial: int) -> bool:
        return self._progress.get(trial, 0) == RUNGS[-1]

    def _give_work(self) -> None:
        """Begin what is needed, if need be in the place of what is not; then what may be needed."""
        needed = self._search.needed()
        self._needed = {segment.trial for segment in needed}
        for segment in needed:
            if segment.trial not in self._running:
                if not self._idle and not self._give_up_one():
                    break
                self._begin(segment.trial, [self._take(segment.trial)])
        while self._idle and (wanted := self._not_needed()) is not None:
            self._begin(wanted.trial, [self._take(wanted.trial)])

    def _not_needed(self) -> Segment | None:
        """What an idle device trains: what the search surely will want, or else may."""
        sure = next((each for each in self._search.sure(self._count) if each.trial not in self._running), None)
        if sure is not None:
            self._sure[sure.trial] = sure.end
            return sure
        free = (each for each in self._search.ahead(self._count + 1) if each.trial not in self._running)
        return next((each for each in free if self._may_begin(each)), None)

    def _may_begin(self, segment: Segment) -> bool:
        """Whether an epoch of what is not needed yet leaves little enough for nothing; new trials are needed surely."""
        if not segment.start:
            return True
        decided, under_way = self._search.decided, self._running.keys()
        begun = {*self._progress, *under_way}
        trained = {trial: self._progress.get(trial, 0) + (trial in under_way) for trial in begun}
        wanted = {trial: max(decided.get(trial, RUNGS[0]), self._sure.get(trial, 0)) for trial in trained}
        beyond = sum(max(0, epochs - wanted[trial]) for trial, epochs in trained.items())
        allowed = may_train_ahead(SHARE, self._search.least_epochs(True), 0, self._guessed - beyond, beyond)
        self._guessed += allowed
        return allowed

    def _give_up_one(self) -> bool:
        """Give up the epoch that would end last of those that nobody may need; False: there is none."""
        guessed = [training for training in self._running.values() if self._is_guess(training.trial)]
        if not guessed:
            return False
        last = max(guessed, key=lambda training: (training.end, training.trial))
        last.given_up = True
        self._guessed -= last.trial in self._progress and self._progress[last.trial] >= RUNGS[0]
        lost = (self._clock - last.begin) * len(last.devices)
        self._spent, self._given_up = self._spent + lost, self._given_up + lost
        del self._running[last.trial]
        self._idle += last.devices
        return True

    def _is_guess(self, trial: int) -> bool:
        """Whether what a trial trains is neither needed yet nor sure to be."""
        return trial not in self._needed and self._progress.get(trial, 0) >= self._sure.get(trial, 0)

    def _take(self, trial: int) -> int:
        """A device, that which had the trial if it is free."""
        own = next((place for place, device in enumerate(self._idle) if self._resident[device] == trial), -1)
        return self._idle.pop(own)

    def _begin(self, trial: int, devices: list[int]) -> None:
        moved = self._progress.get(trial, 0) > 0 and any(self._resident[device] != trial for device in devices)
        seconds = self._trials.seconds[trial] * (1 / len(devices) ** SPEED_UP + (MOVING if moved else 0.0))
        for device in devices:
            self._resident[device] = trial
        training = Training(trial, devices, self._clock, self._clock + seconds)
        self._running[trial] = training
        self._number += 1
        heapq.heappush(self._events, (training.end, self._number, training))

    def _sized(self, devices: list[int], trial: int) -> list[int]:
        """The devices for the next epoch of a needed trial: its share of those that are not needed otherwise."""
        if not self._elastic:
            return devices[:1]
        others = [training for training in self._running.values() if training.trial in self._needed]
        guessed = sum(len(training.devices) for training in self._running.values()) - sum(
            len(o.devices) for o in others
        )
        left = len(self._idle) + guessed + len(devices) - 1
        all_run = all(other in self._running for other in self._needed - {trial})
        size = 1 + min(MOST_DEVICES - 1, left // (1 + len(others))) if all_run else 1
        kept = devices[:size]
        self._idle += devices[size:]
        while len(kept) < size and (self._idle or self._give_up_one()):
            kept.append(self._idle.pop())
        return kept
