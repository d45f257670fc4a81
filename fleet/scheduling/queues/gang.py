"""All devices of a job that is not elastic, of one kind."""

from __future__ import annotations

from collections.abc import Iterable

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.free_devices import FreeDevices
from fleet.scheduling.model.job_state import JobState


def take_gang(job: JobState, cluster: Cluster, free: FreeDevices) -> tuple[int, ...] | None:
    """Take the job's gang; None, and nothing taken, if that is not free."""
    if not cluster.kinds:
        return free.take(job.gang)
    taken = (free.take(job.gang, kind) for kind in _kinds(job, cluster))
    return next((devices for devices in taken if devices is not None), None)


def hopeless_gang(job: JobState, cluster: Cluster) -> str | None:
    """Why the job's gang can never be free; None if it can."""
    if job.gang > cluster.size:
        return too_large([job], cluster)[job.name]
    if cluster.kinds and not _kinds(job, cluster):
        there = ", ".join(f"{count} {kind}" for kind, count in cluster.counts().items())
        return f"it asks for {job.gang} devices of one kind{f', {job.kind}' * bool(job.kind)}; the cluster has {there}"
    return None


def too_large(jobs: Iterable[JobState], cluster: Cluster) -> dict[str, str]:
    """The jobs whose gang is larger than the cluster, and what to say of them."""
    size = cluster.size
    return {job.name: f"it asks for {job.gang} devices; the cluster has {size}" for job in jobs if job.gang > size}


def _kinds(job: JobState, cluster: Cluster) -> list[str]:
    """The kinds that may hold the gang, one at a time: that which it prefers, or any if the cluster has none of that.

    An empty one stands for all together: for a job on several kinds that no single one can hold.
    """
    counts = cluster.counts()
    wanted = [job.kind] if job.kind in counts else list(counts)
    return [kind for kind in wanted if counts[kind] >= job.gang] or ([""] if job.mixed_kinds else [])
