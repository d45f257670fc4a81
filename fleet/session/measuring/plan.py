"""What to measure: the counts of devices of FLEET, MLSys'20, section 6.1 and Appendix B.3. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Measurement:
    """Time `job` on `count` devices of a kind, "" where all are alike.

    Attributes:
        batch_size: a virtual worker's; 0: its own.
        most: above 0, find the largest batch of a worker that fits, up to this, in place of timing.
        together: the devices are trainers of one accelerator, on which nobody else trains.
    """

    job: str
    count: int
    batch_size: int = 0
    kind: str = ""
    most: int = 0
    together: bool = False


def first_pass(jobs: Collection[str], kind: str = "") -> list[Measurement]:
    """Step 1: each job on a single device, R(1)."""
    return [Measurement(job, 1, kind=kind) for job in jobs]


def largest_count(single: Mapping[str, float], per_node: int) -> int:
    """M_t = max(M_a, M_b): M_a = ceil(max R(1) / min R(1)) brings the slowest job up to the fastest, M_b = 2 nodes.

    Args:
        single: r_i(1), samples/s, of each job.
        per_node: devices of a node.
    """
    m_a = math.ceil(max(single.values()) / min(single.values()))
    m_b = 2 * per_node
    return max(m_a, m_b)


def second_pass(
    single: Mapping[str, float], limits: Mapping[str, int], per_node: int, devices: int, kind: str = ""
) -> list[Measurement]:
    """Step 3: each job on 2 .. M_t devices of a kind, as far as the machine and the job's virtual workers reach.

    Widest first, so that narrow measurements fill the devices that wide ones leave free.
    """
    most = min(largest_count(single, per_node), devices)
    wanted = [Measurement(job, m, kind=kind) for job in single for m in range(2, min(most, limits[job]) + 1)]
    return sorted(wanted, key=lambda x: (-x.count, x.job))


def preprocessors_needed(throughput: Mapping[int, float], demand: float) -> int | None:
    """The fewest preprocessors whose samples/s meet `demand`; None if no measured count does."""
    enough = [count for count, rate in sorted(throughput.items()) if rate >= demand]
    return enough[0] if enough else None


def demand(single: Mapping[str, float], streams: Mapping[str, str], devices: int, share: bool) -> float:
    """Samples/s that the trainers can eat, one job on each device.

    Args:
        single: r_i(1) of each job, samples/s.
        streams: the stream of each job; jobs with the same one share its samples.
        devices: how many jobs can run at once.
        share: whether the policy shares streams. Members of a shared stream are paced together, so it is eaten at the
            rate of its fastest member at most; without sharing every job eats its own.
    """
    if not share:
        return sum(sorted(single.values(), reverse=True)[:devices])
    fastest: dict[str, float] = {}
    for job, rate in single.items():
        fastest[streams[job]] = max(rate, fastest.get(streams[job], 0.0))
    return sum(sorted(fastest.values(), reverse=True)[:devices])
