"""Jobs as the trace generator of ElasticFlow's authors draws them (Gu et al., ASPLOS'23, artifact, trace_generator).

The artifact's Figures 9 to 11 are of such traces. Names, arrivals, durations, networks and devices are drawn from the
artifact's own seeds, call by call, so they are the authors'. Deadlines and best-effort jobs are drawn there from a
generator without a seed; here their seed path is ("elasticflow", "deadlines", repetition).
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from fleet.simulator.machines.rate_tables import RateTable
from fleet.simulator.traces import JobColumns, Trace

NETWORKS = (
    ("resnet50", 64), ("resnet50", 128), ("resnet50", 256), ("vgg16", 64), ("vgg16", 128), ("vgg16", 256),
    ("inception3", 64), ("inception3", 128), ("gpt2", 128), ("gpt2", 256), ("bert", 128), ("bert", 64),
    ("deepspeech2", 64), ("deepspeech2", 32),
)  # fmt: skip
"""Networks and their batches (Table 2), in the order of the artifact's job_table.py."""
WIDE = ((0.99, 16), (0.89, 8), (0.86, 4), (0.83, 2))
"""From this number of 0 to 1 on, a job asks for so many devices; for 1 below."""
MINUTE = 60.0


@dataclass(frozen=True)
class Draw:
    """What the artifact's scripts ask its generator for.

    Attributes:
        jobs: how many.
        gap: mean seconds between two arrivals.
        seed: of all but the deadlines.
        tightness: a deadline lies that many durations after the arrival, at least and at most.
        best_effort: share of the jobs without a deadline.
    """

    jobs: int
    gap: float
    seed: int = 0
    tightness: tuple[float, float] = (0.5, 1.5)
    best_effort: float = 0.0

    def trace(self, rates: RateTable, repetition: int = 0) -> Trace:
        """The jobs, with the deadlines of a repetition; seconds are whole, as the artifact's files have them."""
        networks, gaps, lengths, widths = (random.Random(self.seed + part) for part in range(4))
        due = random.Random(f"elasticflow/deadlines/{repetition}")
        arrival, jobs = 0.0, []
        for number in range(self.jobs):
            devices = _devices(widths.uniform(0, 1))
            model, batch = networks.choice(NETWORKS)
            duration = _duration(lengths)
            arrival += -math.log(1.0 - gaps.random()) * self.gap if number else 0.0
            deadline = int(arrival + int(due.uniform(*self.tightness) * duration))
            free = due.random() < self.best_effort
            steps = int(duration * rates.measured(model, batch)[devices])
            jobs.append((int(arrival), devices, model, batch, steps, math.nan if free else deadline, int(duration)))
        return _trace(jobs)


def _devices(drawn: float) -> int:
    return next((devices for least, devices in WIDE if drawn >= least), 1)


def _duration(draw: random.Random) -> float:
    """Seconds: four of five jobs take 10 to 316 minutes, the others up to 10,000, even in the logarithm."""
    low, high = (2.5, 4.0) if draw.random() >= 0.80 else (1.0, 2.5)
    return MINUTE * float(10 ** draw.uniform(low, high))


def _trace(jobs: list[tuple[int, int, str, int, int, float, int]]) -> Trace:
    arrival, devices, model, batch, steps, deadline, duration = zip(*jobs)
    samples = [count * size for count, size in zip(steps, batch)]
    return Trace.of(
        JobColumns.of(
            name=[str(number) for number in range(len(jobs))], arrival=arrival, devices=devices, model=model,
            batch_size=batch, work=steps, samples=samples, deadline=deadline, duration=duration,
        )
    )  # fmt: skip
