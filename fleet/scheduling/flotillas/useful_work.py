"""What a flotilla gets done, in devices that each train one job alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleet.scheduling.model.state import JobState


def useful_work(jobs: Sequence[JobState], counts: Mapping[str, int]) -> float:
    """Single-device seconds of training that jobs on so many devices get through each second.

    The members of a stream go at the pace p of their slowest, so a stream does p * sum_i 1 / r_i(1).
    """
    streams: dict[str, tuple[float, float]] = {}  # pace, sum of 1 / r(1)
    for job in jobs:
        if job.name in counts:
            rate = job.rate(counts[job.name]) * job.passing  # in samples of the stream
            pace, weight = streams.get(job.stream, (rate, 0.0))
            streams[job.stream] = min(pace, rate), weight + 1 / (job.rate(1) * job.passing)
    return sum(pace * weight for pace, weight in streams.values())
