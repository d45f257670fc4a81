"""What the loss of devices means for the jobs of a run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from fleet.coordination.errors import TooFewDevicesError
from fleet.coordination.job_record import JobRecord
from fleet.coordination.lost_ranks import RanksLost
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.state import Allocation


def unharmed(running: Allocation, lost: frozenset[int]) -> Allocation:
    """The running jobs that have lost no device."""
    return {job: devices for job, devices in running.items() if lost.isdisjoint(devices)} if lost else running


def stranded(jobs: Iterable[JobRecord], cluster: Cluster, lost: frozenset[int]) -> dict[str, str]:
    """Job -> its kind of device: those whose bits hold for one kind alone, all of whose devices are lost."""
    if not (lost and cluster.kinds):
        return {}
    left = cluster.counts()
    for device in lost:
        left[cluster.kind_of(device)] -= 1
    pinned = [job for job in jobs if job.state.kind and not job.state.mixed_kinds]
    return {job.name: job.state.kind for job in pinned if left.get(job.state.kind) == 0}


def end_if_stranded(waiting: Collection[str], kinds: Mapping[str, str]) -> None:
    """End a run in which nobody can train any more.

    Args:
        waiting: all jobs that could train now.
        kinds: all of them whose kinds of device are gone.

    Raises:
        RanksLost: these are all; with their devices the next start trains them.
    """
    if kinds and kinds.keys() >= {*waiting}:
        gone = " and ".join(sorted({*kinds.values()}))
        raise RanksLost(
            f"all devices of kind {gone} were lost, and these jobs keep their bits on that kind alone: "
            f"{', '.join(waiting)}; the run is started again from its checkpoints"
        )


def nobody_trains(policy: str, waiting: Collection[str], lost: Collection[int]) -> Exception:
    """The error of a run in which jobs wait, and the policy gives no device to anyone."""
    text = f"policy {policy} gives no device to anyone, while these jobs wait: {', '.join(waiting)}"
    if not lost:
        return RuntimeError(text)
    gone = ", ".join(map(str, sorted(lost)))
    return TooFewDevicesError(f"{text}; devices {gone} are lost, a new start has them again")
