"""The live executor: groups, lanes and messages on real ranks."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from fleet.cluster import ClusterMap
from fleet.executor import Event, GroupEnded, Start, Started, StopReason
from fleet.protocol import (
    TO_PREPROCESSOR,
    TO_TRAINER,
    CheckpointWritten,
    CloseLane,
    EpochEnded,
    FillLane,
    Formed,
    LaneState,
    Left,
    Mailbox,
    Message,
    OpenLane,
    Progress,
    StartGroup,
    StopGroup,
    StopRequested,
)
from fleet.signals import StopFlag
from preprocess import LaneSpec, StreamKey


class RunError(RuntimeError):
    """The run cannot go on, through no fault of the program; the text is all that a person needs."""


class RankSilent(TimeoutError):
    """A rank did not answer in time; the text names it."""


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
    awaited: set[int] = field(default_factory=set)  # ranks that have not confirmed its opening or closing yet


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
        silence: seconds to wait for a rank's answer.
        failure: of a thread of this process; looked at while waiting, and raised.
        stop: raised when another rank got a signal.
    """

    def __init__(
        self, mailbox: Mailbox, cluster: ClusterMap, lane_spec: LaneMaker,
        place_of: Callable[[str, int, int], StreamPlace], lanes: int, writers: int, next_tag: Callable[[], int],
        silence: float, failure: Callable[[], BaseException | None], stop: StopFlag,
    ) -> None:  # fmt: skip
        self._mailbox, self._cluster = mailbox, cluster
        self._lane_spec, self._place_of, self._next_tag = lane_spec, place_of, next_tag
        self._silence, self._failure, self._stop = silence, failure, stop
        self._free = deque(range(lanes))
        self._lanes: dict[int, _OpenLane] = {}
        self._groups: dict[str, _RunningGroup] = {}
        self._backlog: deque[Message] = deque()
        self._keepers = sorted({cluster.lowest_rank(node) for node in cluster.nodes})
        self._fillers = [place.rank for place in cluster.preprocessors][:writers]

    def start(self, batch: tuple[Start, ...], round_: int, share: bool) -> tuple[Started, ...]:
        """Open the lanes of one allocation on every node, then tell the groups' members."""
        lanes = [self._open(starts, places) for starts, places in self._by_lane(batch, share)]
        self._await_open(lanes)
        started: list[Started] = []
        for lane, starts in lanes:
            for rank in self._fillers:
                self._mailbox.send(rank, TO_PREPROCESSOR, FillLane(lane.spec))
            for start in starts:
                self._form(start, lane, round_)
                started.append(Started(start.job, lane.spec.lane, str(lane.spec.stream)))
        return tuple(started)

    def stop(self, job: str, why: StopReason) -> None:
        """Tell the group's master."""
        group = self._groups.get(job)
        if group is not None:
            self._mailbox.send(group.members[0], TO_TRAINER, StopGroup(job, why))

    def next_event(self, timeout: float) -> Event | None:
        """The next event of a group; lanes are looked after on the way."""
        deadline = time.monotonic() + timeout
        while True:
            message = self._next_message(deadline - time.monotonic())
            if message is None:
                return None
            if isinstance(message, Left):
                event = self._member_left(message)
                if event is not None:
                    return event
            elif isinstance(message, (EpochEnded, CheckpointWritten, Formed, Progress)):
                return message
            elif isinstance(message, LaneState):
                self._lane_answered(message)
            elif isinstance(message, StopRequested):
                self._stop.raised = True
                return None

    def _by_lane(self, batch: tuple[Start, ...], share: bool) -> list[tuple[list[Start], list[StreamPlace]]]:
        """Starts that read one lane together, with their places."""
        together: dict[object, tuple[list[Start], list[StreamPlace]]] = {}
        for start in batch:
            place = self._place_of(start.job, start.epoch, start.step)
            starts, places = together.setdefault(place.key if share else start.job, ([], []))
            starts.append(start)
            places.append(place)
        return list(together.values())

    def _open(self, starts: list[Start], places: list[StreamPlace]) -> tuple[_OpenLane, list[Start]]:
        """Ask every node for a lane that begins where the rearmost of its jobs stands."""
        number = self._free_lane()
        readers = tuple(self._cluster.rank_of(device) for start in starts for device in start.devices)
        first = replace(places[0], place=min(place.place for place in places))
        jobs = {start.job for start in starts}
        lane = _OpenLane(self._lane_spec(number, first, jobs, readers), jobs, set(self._keepers))
        self._lanes[number] = lane
        for rank in self._keepers:
            self._mailbox.send(rank, TO_PREPROCESSOR, OpenLane(lane.spec))
        return lane, starts

    def _free_lane(self) -> int:
        """A lane that is closed on every node; waits for one that is closing."""
        self._wait_until(lambda: bool(self._free), "a lane to be closed", lambda: _awaited(self._lanes.values()))
        return self._free.popleft()

    def _await_open(self, lanes: list[tuple[_OpenLane, list[Start]]]) -> None:
        opening = [lane for lane, _ in lanes]
        self._wait_until(lambda: not _awaited(opening), "lanes to be opened", lambda: _awaited(opening))

    def _wait_until(self, holds: Callable[[], bool], what: str, whom: Callable[[], set[int]]) -> None:
        """Take messages until `holds()`; those that are not about lanes wait for `next_event`."""
        deadline = time.monotonic() + self._silence
        kept: list[Message] = []
        while not holds():
            message = self._next_message(min(1.0, deadline - time.monotonic()))
            if isinstance(message, LaneState):
                self._lane_answered(message)
            elif message is not None:
                kept.append(message)
            elif time.monotonic() > deadline:
                raise RankSilent(f"waited {self._silence:.0f} s for {what} by ranks {sorted(whom())}")
        self._backlog.extend(kept)

    def _next_message(self, timeout: float) -> Message | None:
        if self._backlog:
            return self._backlog.popleft()
        message = self._mailbox.receive(max(0.0, timeout), until=lambda: self._failure() is not None)
        failure = self._failure()
        if failure is not None:
            raise failure
        return message

    def _form(self, start: Start, lane: _OpenLane, round_: int) -> None:
        members = tuple(self._cluster.rank_of(device) for device in start.devices)
        message = StartGroup(
            start.job, members, self._next_tag(), round_, lane.spec, start.resume, start.epoch, start.step, start.fitted
        )
        for rank in members:
            self._mailbox.send(rank, TO_TRAINER, message)
        self._groups[start.job] = _RunningGroup(start.devices, members, lane.spec.lane)

    def _member_left(self, message: Left) -> GroupEnded | None:
        """Book that one member has left; the group has ended when all have."""
        if message.fatal:
            raise RunError(f"job {message.job}, rank {message.rank}: {message.error}")
        group = self._groups[message.job]
        group.left.append(message)
        if len(group.left) < len(group.members):
            return None
        del self._groups[message.job]
        self._leave_lane(group.lane, message.job)
        return _ended(group)

    def _leave_lane(self, number: int, job: str) -> None:
        lane = self._lanes[number]
        lane.jobs.discard(job)
        if not lane.jobs:
            ranks = set(self._keepers) | set(self._fillers)
            lane.awaited = ranks
            for rank in ranks:
                self._mailbox.send(rank, TO_PREPROCESSOR, CloseLane(number))

    def _lane_answered(self, message: LaneState) -> None:
        lane = self._lanes[message.lane]
        lane.awaited.discard(message.rank)
        if message.state == "closed" and not lane.awaited:
            del self._lanes[message.lane]
            self._free.append(message.lane)


def _awaited(lanes: Iterable[_OpenLane]) -> set[int]:
    return {rank for lane in lanes for rank in lane.awaited}


def _ended(group: _RunningGroup) -> GroupEnded:
    """One verdict from all members' words: a failure counts most, and the master's word before the others'."""
    by_rank = {left.rank: left for left in group.left}
    failures = [left for left in group.left if left.why == "failed"]
    word = failures[0] if failures else by_rank[group.members[0]]
    why = "failed" if failures or word.why not in ("done", "stopped") else word.why
    waited = tuple(by_rank[rank].waited_data for rank in group.members)
    peers = tuple(by_rank[rank].waited_peers for rank in group.members)
    computed = tuple(by_rank[rank].computed for rank in group.members)
    return GroupEnded(
        word.job, group.devices, why, word.reason, word.epoch, word.step, word.error, word.traceback, waited, peers, computed
    )
