"""How long a run takes to stop, and the ends of epochs, as measured so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

NEWEST = 0.3
"""What the last epoch counts in a mean."""


@dataclass
class StopTime:
    """Longest times of each job, seconds; one of which nothing is known is thought to take as long as the longest.

    Attributes:
        saving: job -> what a checkpoint took.
        deaf: job -> how long it heard of no wish in its last epoch.
        usual: job -> what a checkpoint takes in the mean.
        beside: job -> what an epoch takes in the mean beside its steps and its checkpoint: evaluation, most of all.
    """

    saving: dict[str, float] = field(default_factory=dict)
    deaf: dict[str, float] = field(default_factory=dict)
    usual: dict[str, float] = field(default_factory=dict)
    beside: dict[str, float] = field(default_factory=dict)

    def saved(self, job: str, seconds: float) -> None:
        """A checkpoint took so long."""
        self.saving[job] = max(self.saving.get(job, 0.0), seconds)
        _average(self.usual, job, seconds)

    def ended_epoch(self, job: str, beside: float) -> None:
        """An epoch took so many seconds beside its steps."""
        _average(self.beside, job, max(0.0, beside))

    def epoch_end(self, job: str) -> float | None:
        """What an end of the job's epochs takes, evaluation and checkpoint; None: it has ended none yet."""
        return self.beside[job] + self.usual.get(job, 0.0) if job in self.beside else None

    def of(self, steps: Mapping[str, float]) -> float:
        """From a wish to stop until all running jobs are saved, where a step of each takes so long.

        Until the last of them hears of it, after a step or an evaluation, and their checkpoints one by one.
        """
        deafest, longest = max(self.deaf.values(), default=0.0), max(self.saving.values(), default=0.0)
        hearing = max((max(self.deaf.get(job, deafest), seconds) for job, seconds in steps.items()), default=0.0)
        return hearing + sum(self.saving.get(job, longest) for job in steps)


def _average(means: dict[str, float], job: str, seconds: float) -> None:
    before = means.get(job, seconds)
    means[job] = before + NEWEST * (seconds - before)
