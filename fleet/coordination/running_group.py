"""A group of trainers at work, and what its members say when they leave."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from fleet.coordination.executor import GroupEnded, Measured
from fleet.coordination.protocol import Left, Profiled


@dataclass
class RunningGroup:
    """The trainers that train a job, or measure how fast it trains.

    Attributes:
        devices, members: theirs, and their ranks, the master first.
        lane: number of the one that they read; None: they measure.
        shares: virtual workers of each; () if they are balanced.
        begin: (epoch, step) from which they train.
        reached: the furthest (epoch, step) that anybody told.
        measured: what they measured.
        words: what those said who have left.
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
        """They stand there now; words of those who failed or are lost do not say where, and change nothing."""
        self.reached = max(self.begin, self.reached, (epoch, step))

    @property
    def holds_its_job(self) -> bool:
        """Whether all who left still have their parts of the job in memory."""
        return all(word.held for word in self.words.values())

    @property
    def measurement(self) -> Measured | None:
        """What all of them measured; None if they train, or one of them failed or is lost."""
        found = self.measured
        if found is None or any(word.why != "profiled" for word in self.words.values()):
            return None
        return Measured(found.job, self.devices, found.rate, found.batches, found.seconds, found.forming)

    def verdict(self, after_loss: bool) -> GroupEnded:
        """One from all members' words: a failure counts most, then a loss, and the master's word before others'.

        Args:
            after_loss: members that blame their peers may mean a lost rank, of this group or of one that gave it the
                job.
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
