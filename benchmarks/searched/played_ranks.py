"""Ranks that take a coordinator's orders and say what became of them: their epochs are drawn, nobody trains."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from time import thread_time

import numpy as np

from fleet.coordination.mailbox import Mailbox
from fleet.coordination.protocol import (
    MESSAGES,
    AtStep,
    CheckpointWritten,
    CloseLane,
    EpochEnded,
    Formed,
    Left,
    Message,
    SamplesMade,
    StartGroup,
    StepsTimed,
    StopGroup,
)

SPREAD = 0.5  # log-sd of the seconds of an epoch, of one network to another
FORMING = 0.1  # seconds
BETWEEN_WORDS = 1.0  # seconds, of a group's progress


@dataclass
class _Group:
    """One that trains: where its network stands, and whether it leaves at the end of this epoch."""

    order: StartGroup
    seconds: float  # of an epoch
    epoch: int
    leaves: str = ""


@dataclass
class PlayedRanks(Mailbox):
    """The coordinator's mailbox: what it sends is encoded and carried out at once, what it hears is encoded, too.

    Args:
        whole: epochs of a network that has all of them.
        seconds: of an epoch, as a mean over networks.
        folder: of a job's checkpoints; empty files are left there.
    """

    comm: None = None  # type: ignore[assignment]
    inbox: int = 0
    whole: int = 1
    seconds: float = 1.0
    folder: Callable[[str], Path] = Path
    clock: float = 0.0
    """Seconds that the epochs took so far."""
    trained: float = 0.0
    """Seconds of devices that the epochs take which have begun."""
    latest: tuple[float, float] = (0.0, 0.0)
    """`clock` and `trained` when the last of all networks began."""
    played: float = 0.0
    """CPU seconds of all this, which are not the coordinator's."""
    _groups: dict[str, _Group] = field(default_factory=dict)
    _paces: dict[str, float] = field(default_factory=dict)
    _words: list[tuple[float, int, str, bytes]] = field(default_factory=list)  # when, number, job, encoded
    _number: int = 0

    def __post_init__(self) -> None:
        self._draw = np.random.default_rng([*b"played"])

    def send(self, rank: int, inbox: int, message: Message) -> None:
        """Take an order."""
        MESSAGES.encode(message)
        begin = thread_time()
        if isinstance(message, StartGroup) and rank == message.members[0]:
            self._begin(message)
        elif isinstance(message, StopGroup) and message.job in self._groups:
            self._groups[message.job].leaves = message.why
        elif isinstance(message, CloseLane):
            self._say(0.0, "", SamplesMade(rank, {}, {}))
        self.played += thread_time() - begin

    def send_all(self, ranks: Iterable[int], inbox: int, message: Message) -> None:
        """Take an order to several."""
        for rank in ranks:
            self.send(rank, inbox, message)

    def poll(self) -> Message | None:
        """The next word."""
        begin = thread_time()
        found = self._next()
        self.played += thread_time() - begin
        return None if found is None else MESSAGES.decode(found)

    def receive(self, timeout: float, until: Callable[[], bool] | None = None) -> Message | None:
        """The next word, without a wait: epochs take no time."""
        return self.poll()

    def flush(self, timeout: float = 10.0) -> None:
        """Nothing is on its way."""

    def _begin(self, order: StartGroup) -> None:
        if order.job not in self._paces:
            self.latest = (self.clock, self.trained)
        pace = self._paces.setdefault(order.job, float(np.exp(SPREAD * self._draw.standard_normal() - SPREAD**2 / 2)))
        group = self._groups[order.job] = _Group(order, self.seconds * pace / len(order.members), order.epoch)
        self._say(FORMING, "", Formed(order.job, FORMING))
        self._say(2 * FORMING, "", StepsTimed(order.job, 100 / group.seconds, 2, FORMING))
        self._train(group, FORMING)

    def _train(self, group: _Group, later: float = 0.0) -> None:
        """Let one epoch pass, which begins so much later."""
        self.trained += group.seconds * len(group.order.members)
        job, steps = group.order.job, int(group.seconds / BETWEEN_WORDS)
        for step in range(1, steps + 1):
            self._say(later + step * BETWEEN_WORDS, "", AtStep(job, group.epoch, step, steps + 1, 100 / group.seconds))
        self._say(later + group.seconds, job, self._epoch_of(group, group.epoch + 1))

    def _epoch_of(self, group: _Group, epoch: int) -> EpochEnded:
        zeros, metrics = (0.0,) * len(group.order.members), {"loss": float(np.exp(-0.15 * epoch))}
        return EpochEnded(
            group.order.job, epoch, epoch, group.seconds, 100 / group.seconds, metrics, 0.1, zeros, zeros, zeros
        )

    def _next(self) -> bytes | None:
        if not self._words:
            return None
        self.clock, _, job, word = heapq.heappop(self._words)
        if job:
            self._ended_epoch(job)
        return word

    def _ended_epoch(self, job: str) -> None:
        """Go on with a network, or let its group leave; its checkpoint is written."""
        group = self._groups[job]
        group.epoch += 1
        path = self.folder(job) / f"epoch-{group.epoch:05}-step-000000.h5"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        self._say(0.0, "", CheckpointWritten(job, group.epoch, 0, str(path), 0, 0.01, ""))
        if group.epoch == self.whole:
            self._leave(job, group, "done", "epochs")
        elif group.epoch == group.order.until:
            self._leave(job, group, "stopped", "pause")
        elif group.leaves:
            self._leave(job, group, "stopped", group.leaves)
        else:
            self._train(group)

    def _leave(self, job: str, group: _Group, why: str, reason: str) -> None:
        del self._groups[job]
        for rank in group.order.members:
            self._say(0.0, "", Left(job, rank, why, reason, group.epoch))  # type: ignore[arg-type]

    def _say(self, later: float, job: str, word: Message) -> None:
        """Let a word come, so much later; with the name of a job, it goes on then."""
        self._number += 1
        heapq.heappush(self._words, (self.clock + later, self._number, job, MESSAGES.encode(word)))
