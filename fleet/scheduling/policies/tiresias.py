"""Tiresias: two-dimensional least attained service, in discretised queues (Gu et al., NSDI'19)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from fleet.scheduling.model.free_devices import FreeDevices
from fleet.scheduling.model.plan import Plan
from fleet.scheduling.model.state import State
from fleet.scheduling.policies.usual_policy import UsualPolicy
from fleet.scheduling.queues.gang import too_large
from fleet.scheduling.queues.service_queues import ServiceQueues


@dataclass(frozen=True)
class Tiresias(UsualPolicy):
    """Serve the job that has had least first: jobs of an earlier queue preempt others, and no other jobs do.

    A job's service is devices x seconds (3.2.1). New jobs are in the first queue, and go down by one at each threshold
    (3.2.2, priority discretisation). A job that waits gets its gang from free devices or from jobs of later queues, the
    last of the last queue first; where it does not fit, the next one may (the authors' simulator does the same).
    A job that asks for more than the cluster has is dropped.

    Args:
        thresholds: device-seconds between the queues, ascending; one or more. The authors' simulator, as
            pkusys/ElasticFlow uses it, has 3,250 and 7,200.
        promote: PROMOTEKNOB: a job that has waited so many times as long as it ran goes back to the first queue, its
            service forgotten (3.2.3, starvation); 0: never, as in the comparisons of others.

    Raises:
        ValueError: thresholds that do not ascend from above 0, or a negative knob.
    """

    name: ClassVar[str] = "tiresias"
    keeps_minimum: ClassVar[bool] = True

    thresholds: tuple[float, ...] = (3250.0, 7200.0)
    promote: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "thresholds", tuple(float(limit) for limit in self.thresholds))
        steps = zip((0.0, *self.thresholds), self.thresholds)
        if not self.thresholds or not all(low < high < math.inf for low, high in steps):
            raise ValueError(f"thresholds is {self.thresholds}; name device-seconds that ascend from above 0")
        if not 0 <= self.promote < math.inf:
            raise ValueError(f"promote is {self.promote}; it must be 0 (never) or more, and finite")

    def plan(self, state: State) -> Plan:
        """Place the waiting jobs of each queue in turn, on free devices and on devices of later queues."""
        queues = ServiceQueues.of(state, self.thresholds, self.promote)
        placed: dict[str, tuple[int, ...]] = {}
        stopped: dict[str, None] = {}
        if queues.anybody_waits:
            self._preempt(state, queues, placed, stopped)
        return Plan(
            placed,
            others_go_on=True,
            stopped=tuple(stopped),
            dropped=too_large((state.by_name[name] for name in sorted(queues.too_large)), state.cluster),
            promoted=tuple(queues.promoted),
            wake=queues.wake(),
            memo=queues,
        )

    def _preempt(
        self, state: State, queues: ServiceQueues, placed: dict[str, tuple[int, ...]], stopped: dict[str, None]
    ) -> None:
        """Find who gets devices, and who loses them for that."""
        free = state.free_devices()
        for queue in range(queues.count):
            while (name := queues.next(queue, free.count + queues.below(queue))) is not None:
                job = state.by_name[name]
                while free.count < job.gang:
                    last = queues.last()
                    stopped[last] = None
                    queues.stopped(state.by_name[last], state.time)
                    free.give(state.running[last])
                queues.started(job)
                devices = _where(name, job.gang, state, free)
                if name in stopped:
                    del stopped[name]
                if devices != state.running.get(name):
                    placed[name] = devices


def _where(name: str, gang: int, state: State, free: FreeDevices) -> tuple[int, ...]:
    """Where it was until now, if nobody took that; else where it fits best."""
    held = state.running.get(name, ())
    if len(held) == gang and all(device in free for device in held):
        free.remove(held)
        return held
    devices = free.take(gang)
    assert devices is not None, "the queue was asked for a job that fits"
    return devices
