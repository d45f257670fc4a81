"""Who waits for devices that guaranteed jobs have taken from it, and has them back (EasyScale, SC'23, 3.4.2)."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from fleet.scheduling.model.job_state import JobState
from fleet.scheduling.model.state import Allocation, State

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Claim:
    """A job has first call on these devices until a time-out, seconds since the run began."""

    devices: tuple[int, ...]
    until: float


@dataclass(frozen=True)
class ClaimPaces:
    """Samples/s of a job: on what it holds, on what it could have instead, and on all that it had before."""

    held: float
    other: float
    whole: float


class Claims:
    """The claims of a state's jobs while a plan is made.

    "The cluster scheduler will try to allocate the same GPUs as preempted ones to elastic jobs. When timeout, the
    EasyScale job fallbacks to utilizing the available GPUs it currently owns" (3.4.2).

    Args:
        state: the state of the run.
        before: job -> its claim, as the plan before left it.
        patience: seconds after which a claim lapses; 0: there are none.
    """

    def __init__(self, state: State, before: Mapping[str, Claim], patience: float) -> None:
        self._state, self._patience, self._before = state, patience, before
        holders = {device: name for name, devices in state.running.items() for device in devices}
        self.of: dict[str, Claim] = {}
        for name, claim in before.items():
            left = tuple(device for device in claim.devices if self._may_return(name, device, holders.get(device)))
            if name in state.by_name and left and claim.until > state.time:
                self.of[name] = replace(claim, devices=left)

    @property
    def changed(self) -> dict[str, Claim | None]:
        """Job -> its claim, where that is another than before; None: it has none any more."""
        names = (name for name in {**self._before, **self.of} if name in self._state.by_name)
        return {name: self.of.get(name) for name in names if self.of.get(name) != self._before.get(name)}

    @property
    def next_lapse(self) -> float:
        """When the first claim lapses; infinite: there is none."""
        return min((claim.until for claim in self.of.values()), default=math.inf)

    def lost(self, name: str, devices: Collection[int]) -> None:
        """Guaranteed jobs have taken these devices from a job."""
        if self._patience:
            earlier = self.of[name].devices if name in self.of else ()
            until = self._state.time + self._patience
            self.of[name] = Claim(tuple(sorted({*earlier, *devices})), until)

    def returned(self, name: str, devices: Collection[int]) -> None:
        """A job has these devices again."""
        left = tuple(device for device in self.of[name].devices if device not in devices)
        self.of[name] = replace(self.of[name], devices=left)
        if not left:
            del self.of[name]

    def seconds(self, name: str, allocation: Allocation) -> float:
        """How long until no guaranteed job holds what a job claims; infinite where the claim lapses before.

        Args:
            allocation: who holds what from now on.
        """
        claimed, now = set(self.of[name].devices), self._state.time
        takers = [self._state.by_name[job] for job, held in allocation.items() if not claimed.isdisjoint(held)]
        ends = [self._left(job, allocation[job.name]) for job in takers if job.guaranteed]
        longest = max(ends, default=0.0)
        return longest if now + longest <= self.of[name].until else math.inf

    def _left(self, job: JobState, devices: Collection[int]) -> float:
        """Seconds until a guaranteed job is done on these devices."""
        now = self._state.time
        if tuple(sorted(devices)) == self._state.running.get(job.name) and job.pace:
            return max(0.0, job.ready - now) + job.remaining_at(now) / job.pace
        return job.restart + job.remaining / job.rate(len(devices))

    def _may_return(self, name: str, device: int, holder: str | None) -> bool:
        """Whether the device may still come back: nobody who keeps it has it."""
        if device in self._state.unavailable:
            return False
        job = None if holder in (None, name) else self._state.by_name.get(str(holder))
        return holder is None or (job is not None and job.guaranteed)


def is_worth_waiting(paces: ClaimPaces, seconds: float, restart: float, leaves: bool) -> bool:
    """Whether a job trains more if it waits for its devices than if it goes to others meanwhile.

    The devices come back after T seconds, and forming a group takes c. Until then the job trains p_held T samples
    where it is, or p_other (T - c) elsewhere; to go back takes c in either case. Others on which it is as fast as it
    was are as good as its own.

    Args:
        seconds: T.
        restart: c.
        leaves: it forms a new group now in any case, as it has lost devices: it trains p_held (T - c) where it is.
    """
    if seconds == math.inf or paces.other >= paces.whole * (1 - _ROUNDING):
        return False
    begun = max(0.0, seconds - restart)
    return paces.other * begun <= paces.held * (begun if leaves else seconds) * (1 + _ROUNDING)


def is_worth_returning(before: float, after: float, left: float, restart: float) -> bool:
    """Whether a job with so many samples left is done sooner if it forms a new group that trains `after` samples/s."""
    if not before:
        return after > 0
    if left == math.inf:
        return after > before * (1 + _ROUNDING)
    return restart + left / after < left / before * (1 - _ROUNDING)
