"""How long jobs still train, by the rates that the journal holds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fleet.journal import events
from fleet.journal.journal import event_of
from fleet.report.status.scan import ScannedJob


@dataclass(frozen=True)
class JobFacts:
    """A job's lines, taken apart as far as they are needed; None where there are none.

    Attributes:
        word: that which gave it its status.
        search: the last decision on it.
    """

    job: ScannedJob
    spec: events.Job | None
    epoch: events.Epoch | None
    word: events.Event | None
    search: events.Decided | None

    @classmethod
    def of(cls, job: ScannedJob) -> JobFacts:
        """What the job's lines say."""
        spec, epoch, search = (told_in(line) for line in (job.spec, job.epoch, job.search))
        return cls(
            job,
            spec if isinstance(spec, events.Job) else None,
            epoch if isinstance(epoch, events.Epoch) else None,
            told_in(job.word),
            search if isinstance(search, events.Decided) else None,
        )

    @property
    def epochs(self) -> int:
        """Epochs that it has finished."""
        return max(getattr(told, "epoch", 0) for told in (self.epoch, self.word))

    @property
    def most_epochs(self) -> int | None:
        """The most epochs that the job's spec allows; None: not known."""
        return self.spec.max_epochs or None if self.spec is not None else None

    @property
    def samples(self) -> float | None:
        """Samples of an epoch; None: not known."""
        return self.spec.samples or None if self.spec is not None else None

    @property
    def samples_left(self) -> float | None:
        """Samples until its last epoch ends, or that after which its search wants its result; None: not known."""
        most = self.search.end if self.search is not None else self.most_epochs
        return None if self.samples is None or most is None else float(self.samples) * max(0, most - self.epochs)

    @property
    def metrics(self) -> Mapping[str, float]:
        """Those of its last epoch."""
        return {} if self.epoch is None else self.epoch.metrics


def told_in(line: bytes) -> events.Event | None:
    """The event of a line that a scan kept; None: there is none."""
    return event_of(line) if line else None


def pace_of(facts: JobFacts, planned: Mapping[str, float]) -> tuple[float | None, str]:
    """Samples/s of a running job, and what says so; see `RunningJob`.

    Args:
        planned: what the policy expects, by job.
    """
    job, epoch, count = facts.job, facts.epoch, len(facts.job.devices)
    if facts.samples and epoch is not None and len(epoch.devices) == count and epoch.seconds > 0:
        return facts.samples / epoch.seconds, "epoch"
    timed = told_in(job.timed)
    if isinstance(timed, events.Timed) and timed.count == count:
        return timed.rate, "steps"
    pace = planned.get(job.name) or 0.0
    return (float(pace), "plan") if pace > 0 else (None, "")


def seconds_left(facts: JobFacts, pace: float | None, now: float) -> float | None:
    """Seconds until a running job's last epoch ends, at this pace; what it did since its last line counts."""
    left = facts.samples_left
    if left is None or not pace:
        return None
    since = max(facts.job.since, 0.0 if facts.epoch is None else facts.epoch.t)
    return max(0.0, left / pace - max(0.0, now - since))


def work_left(facts: JobFacts) -> float | None:
    """Device-seconds that a waiting job still needs, on one device if it never trained; None: nobody knows."""
    left, epoch = facts.samples_left, facts.epoch
    if left is None or not facts.samples:
        return None
    if epoch is not None and epoch.seconds > 0:
        return left / facts.samples * epoch.seconds * len(epoch.devices)
    rates = told_in(facts.job.rates)
    fitted = rates.fitted if isinstance(rates, events.Rates) else ()
    return left / fitted[0] if fitted and fitted[0] > 0 else None


def run_seconds_left(
    running: Sequence[tuple[float | None, int]], waiting: Sequence[float | None], devices: int
) -> tuple[float | None, int]:
    """Seconds until all jobs are done if no device ever rests; and how many jobs nobody knows, which count as the mean.

    No less than the longest of those that run now, and of one waiting job on one device of a run that has one.

    Args:
        running: seconds left and devices of each job that trains.
        waiting: device-seconds of each that waits.
    """
    known = [seconds * count for seconds, count in running if seconds is not None]
    known += [work for work in waiting if work is not None]
    unknown = len(running) + len(waiting) - len(known)
    if not devices or (unknown and not known):
        return None, unknown
    mean = math.fsum(known) / len(known) if known else 0.0
    longest = max((seconds for seconds, _ in running if seconds is not None), default=0.0)
    return max(longest, (math.fsum(known) + mean * unknown) / devices), unknown
