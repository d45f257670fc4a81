"""Trainers, keepers and preprocessors that are played in rank 0's process: they hear its messages, and answer."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import thread_time
from typing import Any, Literal

import numpy as np
from mpi4py import MPI

from fleet.coordination.protocol import (
    MESSAGES,
    TO_PREPROCESSOR,
    CheckpointWritten,
    CloseLane,
    Formed,
    Left,
    Message,
    SamplesMade,
    SaveJob,
    StartGroup,
    StepsTimed,
    StopGroup,
)
from fleet.machine.cluster_map import ClusterMap, Place

PER_NODE = 8
EPOCHS = 30


def cluster_of(nodes: int) -> ClusterMap:
    """Nodes of one preprocessor and `PER_NODE` trainers each, rank 0 among the preprocessors."""
    places = []
    for node in range(nodes):
        first = node * (1 + PER_NODE)
        host, cores, memory = f"node-{node:05}", tuple(range(16)), (1 << 38, 1 << 36)
        role = "preprocessor" if node else "coordinator+preprocessor"
        places.append(Place(first, first, host, role, None, None, cores, *memory, None))
        for own in range(PER_NODE):
            device = node * PER_NODE + own
            name = f"cuda:{own}"
            places.append(Place(first + 1 + own, first, host, "trainer", device, name, cores, *memory, 1 << 36))
    return ClusterMap(tuple(places))


class _Gone:
    """A send that MPI has taken."""

    def Test(self) -> bool:
        return True


@dataclass
class _Matched:
    """A message that a probe has found."""

    data: bytes

    def Recv(self, buffer: np.ndarray) -> None:
        buffer[:] = np.frombuffer(self.data, np.uint8)


class PlayedRanks:
    """Stands for the communicator of rank 0's mailbox: what is sent is answered at once; else the script goes on.

    The CPU time that rank 0 spends from one event of the script to the next counts for the event, without what playing
    takes.

    Args:
        script: kind and message of one event after another; without a message, rank 0 finds none and looks around.

    Attributes:
        groups: those that train.
        seconds: kind of event -> seconds of CPU that rank 0 spent on each; the first, "start", until all train.
        sent, bytes: messages of rank 0 until all trained, and theirs.
    """

    def __init__(self, script: Callable[[PlayedRanks], Iterator[tuple[str, Message | None]]]) -> None:
        self._script = script(self)
        self._answers: deque[Message] = deque()
        self.groups: dict[str, StartGroup] = {}
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.sent = self.bytes = 0
        self._kind, self._since, self._playing = "start", thread_time(), 0.0

    # what the mailbox asks of a communicator

    def Isend(self, data: np.ndarray, dest: int, tag: int) -> _Gone:
        begin = thread_time()
        if self._kind == "start":
            self.sent += 1
            self.bytes += data.nbytes
        name = data[:_LONGEST].tobytes().partition(b"\n")[0].decode()
        if name in _HEARD:
            self._hear(dest, tag, MESSAGES.decode(data.tobytes()))
        self._playing += thread_time() - begin
        return _Gone()

    def Improbe(self, source: int, tag: int, status: MPI.Status) -> _Matched | None:
        begin = thread_time()
        if self._answers:
            message: Message | None = self._answers.popleft()
        else:
            self.settle()
            self._kind, message = next(self._script)
            self._playing = 0.0
            self._since = begin = thread_time()
        data = b"" if message is None else MESSAGES.encode(message)
        status.Set_elements(MPI.BYTE, len(data))
        self._playing += thread_time() - begin
        return None if message is None else _Matched(data)

    def settle(self) -> None:
        """Count what rank 0 has spent since the last event of the script."""
        self.seconds[self._kind].append(thread_time() - self._since - self._playing)

    # how ranks answer

    def _hear(self, rank: int, inbox: int, message: Any) -> None:
        if isinstance(message, CloseLane) and inbox == TO_PREPROCESSOR:
            self._answers.append(SamplesMade(rank, {"digits": 1}, {"digits": 1}))
        elif isinstance(message, StartGroup) and rank == message.members[0]:
            self.groups[message.job] = message
            self._answers.append(Formed(message.job, 0.1))
            self._answers.append(StepsTimed(message.job, 10.0, 10, 1.0))
        elif isinstance(message, SaveJob):
            self._answers.append(written(message.job, 1))
        elif isinstance(message, StopGroup):
            if message.why == "signal":
                self._answers.append(written(message.job, 1))
            self._answers += self.last_words(message.job, "stopped", message.why)

    def last_words(self, job: str, why: Literal["done", "stopped"], reason: str) -> list[Message]:
        """What the members of a group say who leave it, the master last."""
        group = self.groups.pop(job)
        stands = (group.epoch, group.step) if why == "stopped" else (EPOCHS, 0)
        held = reason == "policy"
        return [Left(job, rank, why, reason, *stands, held=held) for rank in reversed(group.members)]


def written(job: str, epoch: int) -> CheckpointWritten:
    """A master's word that a checkpoint is on the disk."""
    return CheckpointWritten(job, epoch, 0, f"checkpoints/{job}/epoch-{epoch:05}", 1000, 0.1, "abcd")


_HEARD = {kind.__name__ for kind in (StartGroup, StopGroup, SaveJob, CloseLane)}
_LONGEST = 32
"""Bytes of the name of a message, at most."""
