"""How long jobs still train, by the rates that the journal holds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleet.report.status.scan import ScannedJob
from fleet.run_directory.journal_lines import event_of

Event = Mapping[str, Any]


@dataclass(frozen=True)
class JobFacts:
    """A job's lines, taken apart as far as they are needed; empty mappings where there are none."""

    job: ScannedJob
    spec: Event
    epoch: Event
    word: Event
    search: Event

    @classmethod
    def of(cls, job: ScannedJob) -> JobFacts:
        """What the job's lines say."""
        return cls(
            job, *((event_of(line) if line else None) or {} for line in (job.spec, job.epoch, job.word, job.search))
        )

    @property
    def epochs(self) -> int:
        """Epochs that it has finished."""
        return max(_whole(self.epoch.get("epoch")), _whole(self.word.get("epoch")))

    @property
    def most_epochs(self) -> int | None:
        """The most epochs that the job's spec allows; None: not known."""
        return _whole(self.spec.get("max_epochs")) or None

    @property
    def samples_left(self) -> float | None:
        """Samples until its last epoch ends, or that after which its search wants its result; None: not known."""
        samples, most = self.spec.get("samples"), _whole(self.search.get("end")) or self.most_epochs
        return None if not samples or most is None else float(samples) * max(0, most - self.epochs)


def pace_of(facts: JobFacts, planned: Mapping[str, float]) -> tuple[float | None, str]:
    """Samples/s of a running job, and what says so; see `RunningJob`.

    Args:
        planned: what the policy expects, by job.
    """
    job, epoch, samples = facts.job, facts.epoch, facts.spec.get("samples")
    if samples and len(epoch.get("devices") or ()) == len(job.devices) and (epoch.get("seconds") or 0.0) > 0:
        return float(samples) / float(epoch["seconds"]), "epoch"
    timed = event_of(job.timed) if job.timed else None
    if timed is not None and timed.get("count") == len(job.devices) and (timed.get("rate") or 0.0) > 0:
        return float(timed["rate"]), "steps"
    pace = planned.get(job.name) or 0.0
    return (float(pace), "plan") if pace > 0 else (None, "")


def seconds_left(facts: JobFacts, pace: float | None, now: float) -> float | None:
    """Seconds until a running job's last epoch ends, at this pace; what it did since its last line counts."""
    left = facts.samples_left
    if left is None or not pace:
        return None
    since = max(facts.job.since, float(facts.epoch.get("t") or 0.0))
    return max(0.0, left / pace - max(0.0, now - since))


def work_left(facts: JobFacts) -> float | None:
    """Device-seconds that a waiting job still needs, on one device if it never trained; None: nobody knows."""
    left, epoch, samples = facts.samples_left, facts.epoch, facts.spec.get("samples")
    if left is None:
        return None
    if samples and epoch.get("devices") and (epoch.get("seconds") or 0.0) > 0:
        return left / float(samples) * float(epoch["seconds"]) * len(epoch["devices"])
    rates = event_of(facts.job.rates) if facts.job.rates else None
    fitted = (rates or {}).get("fitted") or ()
    return left / float(fitted[0]) if fitted and fitted[0] > 0 else None


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


def _whole(value: Any) -> int:
    return value if type(value) is int and value > 0 else 0
