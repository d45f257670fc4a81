"""Seeded random order."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from fleet.scheduling.model.state import JobState


def drawn(jobs: Iterable[JobState], *path: str | int) -> list[JobState]:
    """The jobs in a random order, each by a number drawn from the seed path (*path, its name).

    So the order of two jobs is the same each time, with any other jobs beside them.
    """
    return sorted(jobs, key=lambda job: (_number(*path, job.name), job.name))


def _number(*path: str | int) -> int:
    """Uniform in 0 .. 2^64 - 1."""
    text = "\0".join(map(str, path))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
