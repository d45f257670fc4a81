"""Goodput: how fast a job gets on, if its batch size may be chosen (Pollux, OSDI'21, 3)."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable


class Tuned(NamedTuple):
    """The batch size of the whole job with the highest goodput, and that goodput, samples/s."""

    rate: float
    batch: int


@runtime_checkable
class GoodputModel(Protocol):
    """What a policy may ask of a job whose gradient noise is known; `JobState.scaling` of such a job.

    Goodput is throughput x statistical efficiency (3.1, Eq. 6): the samples/s of the job's first batch size that would
    bring it as far as fast.
    """

    tried: int
    """The most devices that it has had so far."""

    def rate(self, devices: int, batch: int | None = None, nodes: int = 1) -> float:
        """Goodput on so many devices of so many nodes at a batch size."""
        ...

    def worker_rate(self, kind: str) -> float:
        """As `Scaling.worker_rate`."""
        ...

    def tuned(self, devices: int, nodes: int) -> Tuned:
        """The best batch size on so many devices of so many nodes, filled one after another."""
        ...
