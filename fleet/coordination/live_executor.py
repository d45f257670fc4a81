"""The live executor: groups, lanes and messages on real ranks."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fleet.coordination.errors import RunError
from fleet.coordination.executor import Event, GroupEnded, RanksGone, SetBack, Start, Started, StopReason
from fleet.coordination.lost_ranks import RanksLost
from fleet.coordination.protocol import (
    TO_KEEPER,
    TO_PREPROCESSOR,
    TO_TRAINER,
    CheckpointWritten,
    CloseLane,
    DismissReader,
    DismissWriter,
    EpochEnded,
    Formed,
    Left,
    Mailbox,
    Message,
    MoveGroup,
    OpenLane,
    Progress,
    ReplaceWriter,
    SampleSkipped,
    SaveJob,
    StartGroup,
    StopGroup,
    StopRequested,
)
from fleet.machine.cluster_map import ClusterMap, Place
from fleet.machine.signals import StopFlag
from preprocess import LaneSpec, StreamKey

SAVE_SECONDS = 300.0  # those who write a checkpoint find out sooner what holds them up


@dataclass(frozen=True)
class StreamPlace:
    """Where a job's next samples lie: jobs with an equal `key` can read one lane, from the smallest `place` on."""

    key: StreamKey
    place: int  # in the epoch's order


LaneMaker = Callable[[int, StreamPlace, set[str], tuple[int, ...]], LaneSpec]


@dataclass
class _OpenLane:
    spec: LaneSpec
    jobs: set[str]


@dataclass
class _RunningGroup:
    devices: tuple[int, ...]
    members: tuple[int, ...]
    lane: int
    left: list[Left] = field(default_factory=list)


class LiveExecutor:
    """Carries allocations out by messages to trainers and preprocessors.

    Args:
        mailbox: the coordinator's.
        cluster: the cluster map.
        lane_spec: makes the lane of a stream place, given the lane's number, its jobs and its readers' ranks.
        place_of: where a job's samples at (epoch, step) lie.
        lanes: how many lanes the rings have.
        writers: how many of the preprocessors fill them.
        next_tag: fresh tags for groups.
        failure: of a thread of this process; looked at while waiting, and raised.
        stop: raised when another rank got a signal.
        skipped: takes the samples that preprocessors skip.
        lost: the ranks that are known to be lost.
    """

    def __init__(
        self, mailbox: Mailbox, cluster: ClusterMap, lane_spec: LaneMaker,
        place_of: Callable[[str, int, int], StreamPlace], lanes: int, writers: int, next_tag: Callable[[], int],
        failure: Callable[[], BaseException | None], stop: StopFlag, skipped: Callable[[SampleSkipped], None],
        lost: Callable[[], frozenset[int]] = frozenset,
    ) -> None:  # fmt: skip
        self._mailbox, self._cluster = mailbox, cluster
        self._lane_spec, self._place_of, self._next_tag = lane_spec, place_of, next_tag
        self._failure, self._stop, self._skipped, self._now_lost = failure, stop, skipped, lost
        self._lost: frozenset[int] = frozenset()  # ranks of which the coordinator has been told
        self._free = deque(range(lanes))
        self._lanes: dict[int, _OpenLane] = {}
        self._groups: dict[str, _RunningGroup] = {}
        self._held: dict[str, tuple[int, ...]] = {}  # jobs that are in memory alone -> ranks, the master first
        self._saving: dict[str, tuple[int, ...]] = {}  # those of them whose checkpoints are being written
        self._waiting: deque[Event] = deque()  # events that came while something else was waited for
        self._keepers = sorted({cluster.lowest_rank(node) for node in cluster.nodes})
        self._writers = [place.rank for place in cluster.preprocessors][:writers]
        self._orphaned: list[int] = []  # writers whose work another rank takes over once nobody reads it

    def start(self, batch: tuple[Start, ...], round_: int, share: bool) -> tuple[Started, ...]:
        """Have the lanes of one allocation opened on every node, and tell the groups' members.

        A job that is still in its last ranks' memory moves from there; all ranks get these orders in the same
        sequence, so that no two moves wait for each other. Nobody's answer is waited for: readers and writers wait for
        the lane of their generation to be open on their node.
        """
        started: list[Started] = []
        names = [start.job for start in batch]
        self._save(job for job in self._held if job not in names)
        self._await_saved(names)
        moved = {start.job for start in batch if self._move(start)}
        for starts, places in self._by_lane(batch, share):
            lane = self._open(starts, places)
            for start in starts:
                self._form(start, lane, round_, start.job in moved)
                started.append(Started(start.job, lane.spec.lane, str(lane.spec.stream), start.job in moved))
        return tuple(started)

    def stop(self, job: str, why: StopReason) -> None:
        """Tell the group's master."""
        group = self._groups.get(job)
        if group is not None:
            self._mailbox.send(group.members[0], TO_TRAINER, StopGroup(job, why))

    def save_held(self) -> bool:
        """Have the jobs that wait in memory written down; they are gone from there once `next_event` says so."""
        self._save(self._held)
        return bool(self._saving)

    def next_event(self, timeout: float) -> Event | None:
        """The next event of a group; lanes are looked after on the way."""
        return self._waiting.popleft() if self._waiting else self._new_event(timeout)

    def _new_event(self, timeout: float) -> Event | None:
        deadline = time.monotonic() + timeout
        while True:
            message = self._next_message(deadline - time.monotonic())
            if message is None:  # what a lost rank said before its end has been heard by now
                self._waiting.extend(self._lose(self._now_lost() - self._lost))
                return self._waiting.popleft() if self._waiting else None
            if isinstance(message, Left):
                event = self._member_left(message)
                if event is not None:
                    return event
            elif isinstance(message, (EpochEnded, CheckpointWritten, Formed, Progress)):
                if isinstance(message, CheckpointWritten):
                    self._saving.pop(message.job, None)
                return message
            elif isinstance(message, SampleSkipped):
                self._skipped(message)
            elif isinstance(message, StopRequested):
                self._stop.raised = True
                return None

    def _save(self, jobs: Iterable[str]) -> None:
        for job in list(jobs):
            self._saving[job] = self._held.pop(job)
            for rank in self._saving[job]:
                self._mailbox.send(rank, TO_TRAINER, SaveJob(job))

    def _await_saved(self, jobs: Sequence[str]) -> None:
        """A job that is not in memory any more begins with a checkpoint, which must be there by then."""
        deadline = time.monotonic() + SAVE_SECONDS
        while late := [job for job in jobs if job in self._saving]:
            event = self._new_event(1.0)
            if event is not None:
                self._waiting.append(event)
            if time.monotonic() > deadline:
                raise RunError(
                    f"waited {SAVE_SECONDS:.0f} s for the checkpoint of job {late[0]} from rank "
                    f"{self._saving[late[0]][0]}; see what holds that rank up"
                )

    def _move(self, start: Start) -> bool:
        """Have a job's state go from the ranks that hold it to those that will train it; whether there are any."""
        old = self._held.pop(start.job, None)
        if old is None:
            return False
        new = self._members(start)
        order = MoveGroup(start.job, old, new, self._next_tag())
        self._next_tag()  # the move itself takes as many tags again
        for rank in dict.fromkeys((*old, *new)):
            self._mailbox.send(rank, TO_TRAINER, order)
        return True

    def _members(self, start: Start) -> tuple[int, ...]:
        return tuple(self._cluster.rank_of(device) for device in start.devices)

    def _by_lane(self, batch: tuple[Start, ...], share: bool) -> list[tuple[list[Start], list[StreamPlace]]]:
        """Starts that read one lane together, with their places."""
        together: dict[object, tuple[list[Start], list[StreamPlace]]] = {}
        for start in batch:
            place = self._place_of(start.job, start.epoch, start.step)
            starts, places = together.setdefault((place.key, start.lane) if share else start.job, ([], []))
            starts.append(start)
            places.append(place)
        return list(together.values())

    def _open(self, starts: list[Start], places: list[StreamPlace]) -> _OpenLane:
        """Open a lane that begins where the rearmost of its jobs stands."""
        number = self._free.popleft()
        readers = tuple(self._cluster.rank_of(device) for start in starts for device in start.devices)
        first = replace(places[0], place=min(place.place for place in places))
        jobs = {start.job for start in starts}
        lane = _OpenLane(self._lane_spec(number, first, jobs, readers), jobs)
        self._lanes[number] = lane
        self._tell_lane_ranks(OpenLane(lane.spec))
        return lane

    def _tell_lane_ranks(self, message: OpenLane | CloseLane) -> None:
        for rank in self._keepers:
            self._mailbox.send(rank, TO_KEEPER, message)
        for rank in sorted(set(self._writers) - self._lost):
            self._mailbox.send(rank, TO_PREPROCESSOR, message)

    def _next_message(self, timeout: float) -> Message | None:
        message = self._mailbox.receive(max(0.0, timeout), until=self._is_disturbed)
        failure = self._failure()
        if failure is not None:
            raise failure
        return message

    def _is_disturbed(self) -> bool:
        return self._failure() is not None or self._now_lost() != self._lost

    def _form(self, start: Start, lane: _OpenLane, round_: int, moved: bool) -> None:
        members = self._members(start)
        message = StartGroup(
            start.job, members, self._next_tag(), round_, lane.spec, start.resume, start.epoch, start.step,
            start.fitted, moved,
        )  # fmt: skip
        for rank in members:
            self._mailbox.send(rank, TO_TRAINER, message)
        self._groups[start.job] = _RunningGroup(start.devices, members, lane.spec.lane)

    def _member_left(self, message: Left) -> GroupEnded | None:
        """Book that one member has left; the group has ended when all have."""
        if message.fatal:
            raise RunError(f"job {message.job}, rank {message.rank}: {message.error}")
        if message.rank in self._lost and message.why != "lost":
            return None  # its last word came after it was found to be lost
        group = self._groups[message.job]
        if message.rank in (left.rank for left in group.left):
            return None  # it had left before it was lost
        group.left.append(message)
        if len(group.left) < len(group.members):
            return None
        del self._groups[message.job]
        self._leave_lane(group.lane, message.job)
        if all(left.held for left in group.left):
            self._held[message.job] = group.members
        self._hand_over()
        return _ended(group, bool(self._lost))

    def _lose(self, ranks: frozenset[int]) -> Iterator[Event]:
        """Take lost ranks out of all that is under way; their groups' other members find out by themselves.

        Raises:
            RanksLost: if the others cannot go on without one of them.
        """
        if not ranks:
            return
        self._lost |= ranks
        places = [place for place in self._cluster.places if place.rank in ranks]
        self._check_that_others_can_go_on(places)
        devices = tuple(place.device for place in places if place.device is not None)
        orphaned = not ranks.isdisjoint(self._writers)
        yield RanksGone(tuple(p.rank for p in places), tuple(p.host for p in places), devices, orphaned)
        for place in places:
            self._dismiss(place)
            self._bequeath(place.rank)
        for name, group in list(self._groups.items()):
            for rank in ranks.intersection(group.members):
                event = self._member_left(Left(name, rank, "lost", error=f"rank {rank} was lost"))
                if event is not None:
                    yield event
        for jobs in (self._held, self._saving):
            for name in [name for name, holders in jobs.items() if ranks.intersection(holders)]:
                del jobs[name]
                yield SetBack(name)
        self._hand_over()

    def _check_that_others_can_go_on(self, lost: list[Place]) -> None:
        again = "the run is started again from its checkpoints"
        several = len(self._cluster.nodes) > 1
        for place in lost:
            if place.rank in self._keepers or (place.rank in self._writers and several):
                raise RanksLost(f"rank {place.rank} on {place.host}, a {place.role}, was lost: {again}")
        if self._lost.issuperset(place.rank for place in self._cluster.trainers):
            raise RanksLost(f"all trainers were lost: {again}")

    def _bequeath(self, lost: int) -> None:
        """Give a lost preprocessor's work to the one that has least, from when all groups have left."""
        for writer in [number for number, rank in enumerate(self._writers) if rank == lost]:
            living = [place.rank for place in self._cluster.preprocessors if place.rank not in self._lost]
            self._writers[writer] = min(living, key=self._writers.count)
            self._orphaned.append(writer)
            self._mailbox.send(self._keepers[0], TO_KEEPER, DismissWriter(writer))
            for job in self._groups:
                self.stop(job, "policy")

    def _hand_over(self) -> None:
        if self._groups:
            return
        for writer in self._orphaned:
            self._mailbox.send(self._keepers[0], TO_KEEPER, ReplaceWriter(writer))
            self._mailbox.send(self._writers[writer], TO_PREPROCESSOR, ReplaceWriter(writer))
        self._orphaned.clear()

    def _dismiss(self, lost: Place) -> None:
        """Let no lane's writers wait for a lost reader, since others may read there too."""
        if not lost.is_trainer:
            return
        reader = self._cluster.ranks_of(lost.node).index(lost.rank)
        self._mailbox.send(self._cluster.lowest_rank(lost.node), TO_KEEPER, DismissReader(reader))

    def _leave_lane(self, number: int, job: str) -> None:
        lane = self._lanes[number]
        lane.jobs.discard(job)
        if not lane.jobs:
            del self._lanes[number]
            self._tell_lane_ranks(CloseLane(number))
            self._free.append(number)  # a later opening has a later generation, and waits on each node for this end


def _ended(group: _RunningGroup, after_loss: bool) -> GroupEnded:
    """One verdict from all members' words: a failure counts most, then a loss, and the master's word before others'.

    after_loss: members that blame their peers may mean a lost rank, of this group or of one that gave it the job.
    """
    by_rank = {left.rank: left for left in group.left}
    failures = [left for left in group.left if left.why == "failed"]
    losses = [left for left in group.left if left.why == "lost" or (left.why == "peer" and after_loss)]
    word = (failures or losses or [by_rank[group.members[0]]])[0]
    why: Any = {"lost": "lost", "peer": "lost" if after_loss else "failed"}.get(word.why, word.why)
    waited = tuple(by_rank[rank].waited_data for rank in group.members)
    peers = tuple(by_rank[rank].waited_peers for rank in group.members)
    computed = tuple(by_rank[rank].computed for rank in group.members)
    return GroupEnded(
        word.job,
        group.devices,
        why,
        word.reason,
        word.epoch,
        word.step,
        word.error,
        word.traceback,
        waited,
        peers,
        computed,
    )
