"""Between jobs: which proposals are approved (EasyScale, SC'23, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Proposal:
    """A job asks for more devices of one kind.

    Attributes:
        job: its name.
        kind: index of the kind.
        count: how many more.
        nums: devices of each kind that it would have then; of other kinds perhaps fewer than now.
        speedup: what each of the new devices brings: (perf / perf now - 1) / count.
    """

    job: str
    kind: int
    count: int
    nums: tuple[int, ...]
    speedup: float

    @property
    def order(self) -> tuple[float, int]:
        """The smaller goes first: the larger speed-up for each device, then the more devices."""
        return -round(self.speedup, 9), -self.count


def approved(proposals: Iterable[Proposal], available: tuple[int, ...]) -> list[Proposal]:
    """Algorithm 1: the best proposals that the available devices suffice for, at most one of each job.

    Ties go to the proposal that was named first. As printed the algorithm never ends once the best proposal does not
    fit; here it is passed over.

    Args:
        available: devices of each kind.
    """
    left, found, served = list(available), [], set()
    for proposal in sorted(proposals, key=lambda one: one.order):
        if proposal.job not in served and proposal.count <= left[proposal.kind]:
            left[proposal.kind] -= proposal.count
            served.add(proposal.job)
            found.append(proposal)
    return found
