"""FLEET's policies and its paper's baselines: flotillas, local filling, random rounds (MLSys'20, 4.3 and 6.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import ClassVar

from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.policy import Allocation, Plan, Policy, State, check_flag, check_share
from fleet.scheduling.placing.placement import place
from fleet.scheduling.policies.formation import check_delta, form_flotilla, useful_work

_ROUNDING = 1e-9
GAIN = 1.1
"""So many times as much useful work a new flotilla must do, to be worth ending a round whose rates turn out others."""


@dataclass(frozen=True)
class Flotilla(Policy):
    """Train one flotilla after another; end each once few of its devices are still at work.

    A round goes on while its jobs hold at least `alpha` of the devices with which it began. Then all of them stop, and
    a new flotilla is formed of all unfinished jobs. Unless `literal`, the round also goes on when no job waits and
    forming anew would give each job the count that it has. It ends sooner, unless `literal`, where training has told
    rates of its members that were guesses, and a flotilla formed anew would do a tenth more useful work.

    Args:
        alpha: share of the flotilla's devices below which the round ends; above 0, at most 1.
        delta: how close the paces of members must be: samples/s, or text such as "12%", of the fastest job's rate.
        literal: Algorithm 2 as printed, see `form_flotilla`.

    Raises:
        ValueError: a parameter out of its range.
    """

    name: ClassVar[str] = "flotilla"
    shares_streams: ClassVar[bool] = True

    alpha: float = 0.8
    delta: float | str = "12%"
    literal: bool = False

    def __post_init__(self) -> None:
        check_share("alpha", self.alpha)
        check_delta(self.delta)
        check_flag("literal", self.literal)

    def plan(self, state: State) -> Plan:
        """What should run from now on: the round's jobs, nothing while it drains, or a new flotilla."""
        if not state.running:
            return Plan(place(self._counts(state), state.cluster, state.available))
        staying = state.staying
        return Plan(staying if self._goes_on(state, staying) else {})

    def _counts(self, state: State) -> dict[str, int]:
        return form_flotilla(state.jobs, len(state.available), self.delta, self.literal)

    def _goes_on(self, state: State, staying: Allocation) -> bool:
        held = sum(map(len, staying.values()))
        counts = {name: len(devices) for name, devices in staying.items()}
        if held >= self.alpha * sum(map(len, state.formed.values())) - _ROUNDING:
            return self.literal or state.refined.isdisjoint(staying) or not self._gains(state, counts)
        if self.literal or len(staying) < len(state.jobs):
            return False
        return self._counts(state) == counts

    def _gains(self, state: State, counts: Mapping[str, int]) -> bool:
        """Whether a flotilla formed anew does so much more than this one that its forming is worth it."""
        anew = self._counts(state)
        return anew != counts and useful_work(state.jobs, anew) >= GAIN * useful_work(state.jobs, counts)


@dataclass(frozen=True)
class Local(Policy):
    """As soon as devices are free, form flotillas of waiting jobs on them; what runs is left alone.

    The paper does not say with which r_fast a job that fills released devices should keep up. Here it is the fastest of
    all unfinished jobs, also of those that run: it joins them.

    Args:
        delta: how close to the pace of the fastest the jobs must come that start together: samples/s, or text such as
            "12%", of its rate.
        literal: Algorithm 2 as printed, see `form_flotilla`.

    Raises:
        ValueError: a parameter out of its range.
    """

    name: ClassVar[str] = "local"
    shares_streams: ClassVar[bool] = True

    delta: float | str = "12%"
    literal: bool = False

    def __post_init__(self) -> None:
        check_delta(self.delta)
        check_flag("literal", self.literal)

    def plan(self, state: State) -> Plan:
        """Waiting ones on the free devices, while the running jobs go on."""
        placed: dict[str, tuple[int, ...]] = {}
        free, waiting, jobs = state.free, state.waiting, state.by_name
        staying = state.staying if state.unavailable else state.running
        while free and waiting:  # again where a flotilla leaves devices idle rather than take a job that slows it down
            flotilla = form_flotilla(waiting, len(free), self.delta, self.literal, map(jobs.__getitem__, staying))
            found = place(flotilla, state.cluster, free)
            placed |= found
            taken = {device for devices in found.values() for device in devices}
            free = [device for device in free if device not in taken]
            waiting = [job for job in waiting if job.name not in found]
        return Plan(placed, others_go_on=True)


@dataclass(frozen=True)
class Homogeneous(Policy):
    """Train a random subset of the jobs, one device each; take the next subset once all of it are done.

    Random draws: seed path ("homogeneous", seed, job).
    """

    name: ClassVar[str] = "homogeneous"
    shares_streams: ClassVar[bool] = True

    def plan(self, state: State) -> Plan:
        """The jobs that run, or a new subset when none does."""
        if state.running:
            return Plan(state.staying)
        subset = zip(drawn(state.jobs, self.name, state.seed), state.available)
        return Plan({job.name: (device,) for job, device in subset})


@dataclass(frozen=True)
class Baseline(Policy):
    """A device that becomes free takes a random waiting job at once. Nothing is shared.

    Random draws: seed path ("baseline", seed, job).
    """

    name: ClassVar[str] = "baseline"

    def plan(self, state: State) -> Plan:
        """The running jobs on their devices, and random waiting ones on the free devices."""
        following = zip(drawn(state.waiting, self.name, state.seed), state.free)
        return Plan(state.staying | {job.name: (device,) for job, device in following})


def drawn(jobs: Iterable[JobState], *path: str | int) -> list[JobState]:
    """The jobs in a random order, each by a number drawn from the seed path (*path, its name).

    So the order of two jobs is the same each time, with any other jobs beside them.
    """
    return sorted(jobs, key=lambda job: (_number(*path, job.name), job.name))


def _number(*path: str | int) -> int:
    """Uniform in 0 .. 2^64 - 1."""
    text = "\0".join(map(str, path))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
