"""The live executor: groups, lanes and messages on real ranks, and the energy that groups use.

`LiveExecutor` sends orders and turns messages into events; `RunningGroup` gathers what a group's members say when they
leave; `EnergyShares` shares out hosts' counters of energy among the jobs that held their devices.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from fleet.coordination.executor import Event, GroupEnded, Measured, RanksGone, SetBack, Started, StopReason
from fleet.coordination.failures import CannotGoOnError
from fleet.coordination.open_lanes import OpenLanes
from fleet.coordination.protocol import (
    AtStep,
    CheckpointWritten,
    EnergyRead,
    EpochEnded,
    Formed,
    Left,
    MoveGroup,
    Profiled,
    ProfileGroup,
    SampleSkipped,
    SamplesMade,
    SampleTorn,
    SaveJob,
    Start,
    StartGroup,
    StepsTimed,
    StopGroup,
    StopRequested,
)
from fleet.coordination.worker_channel import WorkerChannel
from fleet.journal import events
from fleet.journal.state import SampleCounts
from fleet.machine.cluster_map import Place
from fleet.machine.launch.launched import StopFlag
from preprocess.samples.stream import LaneSpec


@dataclass
class _Follower:
    """A job that begins when another one leaves its device, and its events since then."""

    start: Start
    started: Started
    events: list[Event] = field(default_factory=list)


LAST_WORD_SECONDS = 2.0
"""A preprocessor finishes the slot that it fills within so many seconds."""
SAVE_SECONDS = 300.0
"""So long a checkpoint is awaited; whoever writes it finds out sooner what holds it up."""


class LiveExecutor:
    """Carries allocations out by messages to trainers and preprocessors.

    Args:
        channel: reaches the ranks.
        lanes: of their rings.
        next_tag: gives fresh tags for groups.
        stop: raised when another rank got a signal.
        skipped: takes the samples that preprocessors skip, or cannot make.
        effort: of a measurement: steps, how many of the last are timed, and seconds after which it takes fewer.
        energy: shares out hosts' counters.
    """

    def __init__(
        self,
        channel: WorkerChannel,
        lanes: OpenLanes,
        next_tag: Callable[[], int],
        stop: StopFlag,
        skipped: Callable[[SampleSkipped | SampleTorn], None],
        effort: tuple[int, int, float],
        energy: EnergyShares,
    ) -> None:
        self._channel, self._lanes, self._next_tag = channel, lanes, next_tag
        self._stop, self._skipped, self._effort, self._energy = stop, skipped, effort, energy
        self._groups: dict[str, RunningGroup] = {}
        self._held: dict[str, RunningGroup] = {}  # job in memory alone -> the group that trained it
        self._saving: dict[str, tuple[int, ...]] = {}  # job in memory alone -> the ranks that write its checkpoint
        self._following: dict[str, _Follower] = {}
        self._called_off: set[str] = set()  # followers that were called off and have not left
        self._waiting: deque[Event] = deque()  # events that came while something else was awaited

    def start(self, batch: tuple[Start, ...], round_: int, share: bool) -> tuple[Started, ...]:
        """Open the lanes of one allocation, and start its groups.

        A job that is still in its last ranks' memory moves from there; all ranks get these orders in the same order, so
        that no two moves wait for each other. No answer is awaited: readers and writers wait until the lane of their
        generation is open on their node.
        """
        followed = [self._begin_following(start) for start in batch]
        batch = tuple(start for start, begun in zip(batch, followed) if begun is None)
        names = [start.job for start in batch]
        self._save(job for job in self._held if job not in names)
        self._await_saved(names)
        ended = {event.job for event in self._waiting if isinstance(event, GroupEnded)}
        batch = tuple(start for start in batch if start.job not in ended)  # else they could not be saved: they failed
        moved = {start.job for start in batch if self._move(start)}
        started = [begun for begun in followed if begun is not None]
        for start, lane in self._lanes.open_for(batch, share):
            self._form(start, lane, round_, start.job in moved)
            self._energy.began(start.job, start.devices)
            started.append(Started(start.job, lane.lane, str(lane.stream), start.job in moved))
        return tuple(started)

    def follow(self, batch: Mapping[str, Start], share: bool) -> bool:
        """Open lanes for jobs that begin as soon as others are done, and start their groups."""
        if len(batch) + len(self._called_off) > self._lanes.spare or self._channel.lost:
            return False
        before = {start.job: job for job, start in batch.items()}
        for start, lane in self._lanes.open_for(tuple(batch.values()), share):
            self._form(start, lane, 0, False, before[start.job])
            self._following[start.job] = _Follower(start, Started(start.job, lane.lane, str(lane.stream)))
        return True

    def call_off(self, job: str) -> None:
        """Let a job not follow after all: all its events until it has left are dropped."""
        known = self._following.pop(job, None)
        if known is not None and job in self._groups:
            self._called_off.add(job)
            self._channel.send(self._groups[job].members, StopGroup(job, "called off"))

    def _begin_following(self, start: Start) -> Started | None:
        """Start a job that follows another, if it still fits its order; its events come next."""
        known = self._following.get(start.job)
        if known is None or replace(known.start, makers=start.makers, turn_seconds=start.turn_seconds) != start:
            self.call_off(start.job)
            return None
        del self._following[start.job]
        self._energy.began(start.job, start.devices)
        self._waiting.extend(known.events)
        return known.started

    def measure(self, job: str, devices: tuple[int, ...]) -> None:
        """Have a group formed that trains on made-up samples."""
        members = self._channel.ranks_of(devices)
        self._channel.send(members, ProfileGroup(job, members, self._next_tag(), *self._effort))
        self._groups[job] = RunningGroup(devices, members, None)

    def stop(self, job: str, why: StopReason) -> None:
        """Tell the group's master."""
        group = self._groups.get(job)
        if group is not None:
            self._channel.send(group.members[:1], StopGroup(job, why))

    def save_held(self) -> bool:
        """Have checkpoints written of jobs that wait in memory; `next_event` tells when that is done."""
        self._save(self._held)
        return bool(self._saving)

    def count_samples(self) -> SampleCounts:
        """Return what was read, shared and made, once no group is left and each preprocessor has answered or is too
        late.

        Hosts' counters of energy are read a last time meanwhile.
        """
        samples, energy = self._lanes.samples, self._energy
        energy.ask()
        for message in self._channel.last_words(lambda: samples.awaited | energy.awaited, LAST_WORD_SECONDS):
            if isinstance(message, SamplesMade):
                samples.on_samples_made(message)
            elif isinstance(message, EnergyRead):
                energy.on_energy_read(message)
        energy.write()
        return samples.counts

    def next_event(self, timeout: float) -> Event | None:
        """Return the next event of a group, after at most `timeout` seconds; None: there is none."""
        self._energy.ask_if_due()
        self._lanes.look()
        return self._waiting.popleft() if self._waiting else self._new_event(timeout)

    def _new_event(self, timeout: float) -> Event | None:
        deadline = time.monotonic() + timeout
        while True:
            message = self._channel.next_message(deadline - time.monotonic())
            if message is None:  # all that lost ranks said before their end has been received by now
                self._waiting.extend(filter(self._is_due, self._lose(self._channel.take_out_lost())))
                return self._waiting.popleft() if self._waiting else None
            if isinstance(message, Left):
                event = self._member_left(message)
                if event is not None and self._is_due(event):
                    return event
            elif isinstance(message, (EpochEnded, CheckpointWritten, Formed, StepsTimed, AtStep)):
                self._note(message)
                if self._is_due(message):
                    return message
            elif isinstance(message, Profiled) and message.job in self._groups:
                self._groups[message.job].measured = message
            elif isinstance(message, (SampleSkipped, SampleTorn)):
                self._skipped(message)
            elif isinstance(message, SamplesMade):
                self._lanes.samples.on_samples_made(message)
            elif isinstance(message, EnergyRead):
                self._energy.on_energy_read(message)
            elif isinstance(message, StopRequested):
                self._stop.raised = True
                return None

    def _is_due(self, event: Event) -> bool:
        """Return whether the coordinator gets an event now: not of jobs that it has not started yet."""
        if isinstance(event, RanksGone):
            return True
        if event.job in self._called_off:
            if isinstance(event, GroupEnded):
                self._called_off.discard(event.job)
            return False
        if event.job not in self._following:
            return True
        self._following[event.job].events.append(event)
        return False

    def _note(self, message: EpochEnded | CheckpointWritten | Formed | StepsTimed | AtStep) -> None:
        if isinstance(message, CheckpointWritten):
            self._saving.pop(message.job, None)
        group = self._groups.get(message.job)
        if group is not None and isinstance(message, EpochEnded):
            group.reaches(message.epoch, 0)
        elif group is not None and isinstance(message, AtStep):
            group.reaches(message.epoch, message.step)

    def _save(self, jobs: Iterable[str]) -> None:
        for job in list(jobs):
            self._saving[job] = self._held.pop(job).members
            self._channel.send(self._saving[job], SaveJob(job))

    def _await_saved(self, jobs: Sequence[str]) -> None:
        """Wait until jobs that leave memory have their checkpoints, with which they begin, and called-off ones have
        left.

        Raises:
            CannotGoOnError: that takes too long.
        """
        deadline = time.monotonic() + SAVE_SECONDS
        while late := [job for job in jobs if job in self._saving or job in self._called_off]:
            event = self._new_event(1.0)
            if event is not None:
                self._waiting.append(event)
            if time.monotonic() > deadline:
                raise CannotGoOnError(
                    f"waited {SAVE_SECONDS:.0f} s until job {late[0]} was saved and had left rank "
                    f"{(self._saving.get(late[0]) or self._groups[late[0]].members)[0]}; see what holds that rank up"
                )

    def _move(self, start: Start) -> bool:
        """Move a job's state from the ranks that hold it to those that will train it; return whether any hold it."""
        old = self._held.pop(start.job, None)
        if old is None:
            return False
        new = self._channel.ranks_of(start.devices)
        order = MoveGroup(start.job, old.members, new, self._next_tag(), old.shares, start.shares)
        self._next_tag()  # the move itself takes as many tags again
        self._channel.send(dict.fromkeys((*old.members, *new)), order)
        return True

    def _form(self, start: Start, lane: LaneSpec, round_: int, moved: bool, after: str = "") -> None:
        members = self._channel.ranks_of(start.devices)
        order = StartGroup(
            **vars(start), members=members, tag=self._next_tag(), round=round_, lane=lane, moved=moved, after=after
        )
        self._channel.send(members, order)
        begin = (start.epoch, start.step)
        self._groups[start.job] = RunningGroup(start.devices, members, lane.lane, start.shares, begin, begin)

    def _member_left(self, word: Left) -> GroupEnded | Measured | None:
        """Note that a member has left; return the group's end once all have."""
        if word.fatal:
            raise CannotGoOnError(f"job {word.job}, rank {word.rank}: {word.error}")
        if word.rank in self._channel.lost and word.why != "lost":
            return None  # its message came after it was found to be lost
        group = self._groups.get(word.job)
        if group is None:
            return self._unsaved(word)
        group.words.setdefault(word.rank, word)  # it may have left before it was lost
        group.reaches(word.epoch, word.step)
        if not group.is_gone:
            return None
        del self._groups[word.job]
        self._energy.ended(word.job, group.devices)
        if group.lane is not None:
            self._lanes.leave(group.lane, word.job, group.begin, group.reached)
        if group.holds_its_job:
            self._held[word.job] = group
        self._hand_over()
        return group.measurement or group.verdict(bool(self._channel.lost))

    def _unsaved(self, word: Left) -> GroupEnded | None:
        """Return the end of a job that could not be saved from memory; the first of its ranks' words counts."""
        if self._saving.pop(word.job, None) is None:
            return None
        return RunningGroup((), (word.rank,), 0, words={word.rank: word}).verdict(bool(self._channel.lost))

    def _lose(self, places: list[Place]) -> Iterator[Event]:
        """Take lost ranks out of all that is under way; other members of their groups notice by themselves."""
        if not places:
            return
        ranks = {place.rank for place in places}
        devices = tuple(place.device for place in places if place.device is not None)
        orphaned = any(self._channel.fills(place) for place in places)
        yield RanksGone(tuple(p.rank for p in places), tuple(p.host for p in places), devices, orphaned)
        for place in places:
            self._channel.dismiss(place)
        for job in self._groups if orphaned else ():
            self.stop(job, "policy")
        for name, group in list(self._groups.items()):
            for rank in ranks.intersection(group.members):
                event = self._member_left(Left(name, rank, "lost", error=f"rank {rank} was lost"))
                if event is not None:
                    yield event
        holders = {**{name: group.members for name, group in self._held.items()}, **self._saving}
        for name in [name for name, members in holders.items() if ranks.intersection(members)]:
            self._held.pop(name, None)
            self._saving.pop(name, None)
            yield SetBack(name)
        self._hand_over()

    def _hand_over(self) -> None:
        if not self._groups:
            self._channel.hand_over()


@dataclass
class RunningGroup:
    """The trainers that train a job, or measure it.

    Attributes:
        members: ranks of the devices, the master first.
        lane: number of the lane that they read; None: they measure.
        shares: virtual workers of each; () if they are balanced.
        begin: (epoch, step) from which they train.
        reached: the furthest (epoch, step) that any of them told.
        words: rank -> its last message, of those who have left.
        measured: what they measured.
    """

    devices: tuple[int, ...]
    members: tuple[int, ...]
    lane: int | None
    shares: tuple[int, ...] = ()
    begin: tuple[int, int] = (0, 0)
    reached: tuple[int, int] = (0, 0)
    words: dict[int, Left] = field(default_factory=dict)
    measured: Profiled | None = None

    @property
    def is_gone(self) -> bool:
        """Whether all have left."""
        return len(self.words) == len(self.members)

    def reaches(self, epoch: int, step: int) -> None:
        """Note how far they are; the words of those who failed or are lost do not say it, and change nothing."""
        self.reached = max(self.begin, self.reached, (epoch, step))

    @property
    def holds_its_job(self) -> bool:
        """Whether all who left still have their parts of the job in memory."""
        return all(word.held for word in self.words.values())

    @property
    def measurement(self) -> Measured | None:
        """What they measured; None if they train, or one of them failed or is lost."""
        found = self.measured
        if found is None or any(word.why != "profiled" for word in self.words.values()):
            return None
        return Measured(found.job, self.devices, found.rate, found.batches, found.seconds, found.forming)

    def verdict(self, after_loss: bool) -> GroupEnded:
        """Return the end from all members' words: a failure counts first, then a loss, then the master's word.

        Args:
            after_loss: ranks are lost; members that blame their peers may mean one of them.
        """
        words = [self.words[rank] for rank in self.members]
        failures = [word for word in self.words.values() if word.why == "failed"]
        losses = [word for word in self.words.values() if word.why == "lost" or (word.why == "peer" and after_loss)]
        word = (failures or losses or words)[0]
        return GroupEnded(
            word.job,
            self.devices,
            _why(word, after_loss),
            word.reason,
            word.epoch,
            word.step,
            word.error,
            word.traceback,
            tuple(word.waited_data for word in words),
            tuple(word.waited_peers for word in words),
            tuple(word.computed for word in words),
        )


def _why(word: Left, after_loss: bool) -> Literal["done", "stopped", "failed", "lost"]:
    if word.why == "peer":
        return "lost" if after_loss else "failed"
    assert word.why != "profiled", "no measurement is made while groups train"
    return word.why


PACE_SECONDS = 2.0  # at least so long between two readings of a host
READINGS_A_SECOND = 50  # of all hosts together, at most
WRITE_SECONDS = 10.0  # at least so long between two lines of the journal
NETWORKS_A_SECOND = 4  # that lines tell of, at most: a day's lines are less than 10 MB


class EnergyShares:
    """Shares a counter's joules between two readings among jobs, by the device time that each of them held.

    Args:
        readers: the ranks that read their hosts' counters.
        ask: asks the keepers that these ranks are for a reading.
        record: writes events.
        clock: seconds.
    """

    def __init__(
        self,
        readers: Iterable[int],
        ask: Callable[[Iterable[int]], object],
        record: Callable[[events.Event], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask, self._record, self._clock = ask, record, clock
        self._readers = set(readers)
        self._pace = max(PACE_SECONDS, len(self._readers) / READINGS_A_SECOND)
        self._asked: frozenset[int] = frozenset()
        self._holders: dict[int, tuple[str, float]] = {}  # device -> the job that holds it, since when
        self._held: dict[int, dict[str, float]] = defaultdict(dict)  # device -> job -> seconds since its last reading
        self._jobs: dict[str, float] = defaultdict(float)  # joules that no line tells yet
        self._idle = 0.0
        self._sources: set[str] = set()
        self._next = self._written = clock()

    @property
    def awaited(self) -> frozenset[int]:
        """Ranks that have not answered yet."""
        return self._asked

    def began(self, job: str, devices: Sequence[int]) -> None:
        """Count the time of these devices to a job from now on."""
        now = self._clock()
        self._holders.update(dict.fromkeys(devices, (job, now)))

    def ended(self, job: str, devices: Sequence[int]) -> None:
        """Count the time of these devices to the job no more."""
        for device in devices:
            if self._holders.get(device, ("", 0.0))[0] == job:
                self._settle(device, self._clock())
                del self._holders[device]

    def ask_if_due(self) -> None:
        """Ask for readings if the last ones are long enough ago."""
        if self._clock() >= self._next:
            self.ask()

    def ask(self) -> None:
        """Ask for readings now. A host that has not answered is not asked again: its driver may be stuck."""
        asked = self._readers - self._asked
        self._next = self._clock() + self._pace
        if asked:
            self._asked |= asked
            self._ask(sorted(asked))

    def on_energy_read(self, word: EnergyRead) -> None:
        """Share out what a host has read."""
        self._asked -= {word.rank}
        if word.gone:
            text = (
                f"energy of {word.host} by {', '.join(word.gone)} cannot be read any more: figures miss it from now on"
            )
            self._record(events.Warned(text=text))
        if not word.sources:
            self._readers.discard(word.rank)
        self._sources.update(word.sources)
        now = self._clock()
        counted = {device for devices in word.devices for device in devices}
        for device in counted:
            self._settle(device, now)
        for devices, joules in zip(word.devices, word.joules):
            self._share(devices, joules, word.seconds)
        for device in counted:
            self._held.pop(device, None)
        if now >= self._written + max(WRITE_SECONDS, len(self._jobs) / NETWORKS_A_SECOND):
            self.write()

    def write(self) -> None:
        """Record the joules that no event has told yet."""
        self._written = self._clock()
        if self._sources and (self._jobs or self._idle):
            jobs = {job: round(joules, 3) for job, joules in self._jobs.items()}
            self._record(events.Energy(jobs=jobs, idle=round(self._idle, 3), sources=tuple(sorted(self._sources))))
            self._jobs.clear()
            self._idle = 0.0

    def _settle(self, device: int, now: float) -> None:
        """Count a device's time until now to the job that holds it."""
        if device in self._holders:
            job, since = self._holders[device]
            held = self._held[device]
            held[job] = held.get(job, 0.0) + now - since
            self._holders[device] = (job, now)

    def _share(self, devices: Sequence[int], joules: float, seconds: float) -> None:
        parts: dict[str, float] = defaultdict(float)
        for device in devices:
            for job, held in self._held.get(device, {}).items():
                parts[job] += held
        whole = max(len(devices) * seconds, sum(parts.values()))  # clocks of hosts and messages differ a little
        for job, part in parts.items():
            self._jobs[job] += joules * part / whole
        self._idle += joules * (1 - sum(parts.values()) / whole) if whole > 0 else joules
