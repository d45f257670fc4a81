"""Whether jobs fit the memory of a node and of its devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fleet.profiling.sizing import Size
from fleet.report.wording import readable_bytes


@dataclass(frozen=True)
class MemoryProblem:
    """Jobs that do not fit; the text says which, what they need and what there is."""

    text: str


@dataclass(frozen=True)
class Room:
    """Where a node's jobs have to fit.

    Attributes:
        devices: trainers of the node.
        host: bytes of the node that the run may use.
        device: bytes of an accelerator that are each trainer's; None where the devices are CPUs, which use the host's;
            infinite if unknown.
        members: trainers that share an accelerator.
    """

    devices: int
    host: int
    device: float | None = None
    members: int = 1


def memory_problem(sizes: Mapping[str, Size], workers: Mapping[str, int], room: Room) -> MemoryProblem | None:
    """Tell whether every job fits one device and the host, and whether the largest fit the host together.

    Args:
        sizes: the sizes of each job.
        workers: virtual workers of each job; on one device it runs them all in turn.
        room: the node.
    """
    if room.device is not None:
        needs = {job: size.device_bytes(workers[job]) for job, size in sizes.items()}
        mend = "make its batch or the network smaller"
        what = "on one device, and a device"
        if room.members > 1:
            what = f"on one device, and each of the {room.members} trainers of a device"
            mend += f", or lower resources.members_per_device (now {room.members})"
        found = _too_large(needs, room.device, what, mend)
        if found is not None:
            return found
        needs = {job: _host_bytes(size, workers[job], room) for job, size in sizes.items()}
        what = "for the gradients of its virtual workers, which leave the device for the host, and the node"
        mend = "give it fewer virtual_workers, or raise resources.memory_gib"
    else:
        needs = {job: _host_bytes(size, workers[job], room) for job, size in sizes.items()}
        what = "with its virtual workers on one device, and the node"
        mend = "make its batch or the network smaller, or raise resources.memory_gib"
    return _too_large(needs, room.host, what, mend) or _too_many(needs, room)


class FittingJobs:
    """Jobs that fit a run's nodes; of those that join, each is held against the largest of them alone.

    Args:
        rooms: the nodes.
        sizes: of the jobs.
        workers: virtual workers of each job.
    """

    def __init__(self, rooms: Sequence[Room], sizes: Mapping[str, Size], workers: Mapping[str, int]) -> None:
        self._rooms, self._workers = rooms, dict(workers)
        self._largest = [_largest(sizes, workers, room) for room in rooms]

    def problem(self, job: str, size: Size, workers: int) -> MemoryProblem | None:
        """Why one more job does not fit; None: it does."""
        for largest, room in zip(self._largest, self._rooms):
            counts = {**{each: self._workers[each] for each in largest}, job: workers}
            found = memory_problem({**largest, job: size}, counts, room)
            if found is not None:
                return found
        return None

    def joined(self, job: str, size: Size, workers: int) -> None:
        """One more job has joined the run."""
        self._workers[job] = workers
        self._largest = [
            _largest({**largest, job: size}, self._workers, room) for largest, room in zip(self._largest, self._rooms)
        ]


def _largest(sizes: Mapping[str, Size], workers: Mapping[str, int], room: Room) -> dict[str, Size]:
    """The jobs that need most of a node's memory, as many as it can train at a time."""
    needs = {job: _host_bytes(size, workers[job], room) for job, size in sizes.items()}
    return {job: sizes[job] for job in sorted(needs, key=lambda job: -needs[job])[: room.devices]}


def _host_bytes(size: Size, workers: int, room: Room) -> int:
    return size.cpu_bytes(workers) if room.device is None else size.host_bytes(workers)


def _too_large(needs: Mapping[str, int], there: float, what: str, mend: str) -> MemoryProblem | None:
    too_large = sorted((job for job in needs if needs[job] > there), key=lambda job: -needs[job])
    if not too_large:
        return None
    others = f" (and {len(too_large) - 1} more)" if len(too_large) > 1 else ""
    return MemoryProblem(
        f"job {too_large[0]}{others} needs about {readable_bytes(needs[too_large[0]])} of memory {what} has "
        f"{readable_bytes(int(there))}; {mend}"
    )


def _too_many(needs: Mapping[str, int], room: Room) -> MemoryProblem | None:
    """Tell whether the largest jobs can be on all of a node's devices at once."""
    largest = sorted(needs, key=lambda job: -needs[job])[: room.devices]
    together = sum(needs[job] for job in largest)
    if together <= room.host:
        return None
    fits = max(k for k in range(room.devices) if sum(needs[job] for job in largest[:k]) <= room.host)
    return MemoryProblem(
        f"jobs {', '.join(largest)} can run at the same time on {room.devices} trainers of a node and then need about "
        f"{readable_bytes(together)} of the host's memory, and the node has {readable_bytes(room.host)}; use at most "
        f"{max(1, fits)} trainers a node, or raise resources.memory_gib"
    )
