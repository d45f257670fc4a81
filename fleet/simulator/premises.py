"""What a simulation takes for given, beside its jobs and its machine."""

from __future__ import annotations

from dataclasses import dataclass

from fleet.scheduling.model.cluster import Prices
from fleet.scheduling.model.data_path import NONE, Lending
from fleet.scheduling.model.jobs import JobState

_ROUNDING = 1e-6  # of a step


@dataclass(frozen=True)
class Premises:
    """What a simulation takes for given.

    Attributes:
        seed: root of the policy's random draws.
        slack: samples that a job may be ahead of those with which it shares them, under a policy that shares.
        margin: seconds that promised deadlines leave, as a run's do for its delays.
        prices: of the devices; None: they do not count.
        lending: how many trainers without a job may prepare samples.
        whole_steps: whether jobs end their steps before they leave, as in a run; else they leave in the midst of them.
    """

    seed: int = 0
    slack: float = 0.0
    margin: float = 0.0
    prices: Prices | None = None
    lending: Lending = NONE
    whole_steps: bool = False

    def left_of_step(self, job: JobState, now: float) -> float:
        """Samples that a running job trains yet before it can leave; an epoch's last step may have fewer than others.

        With b samples a step, e an epoch, and x trained of the epoch at `now`: min(b ceil(x / b), e) - x.
        """
        if not (self.whole_steps and job.batch and now > job.ready):
            return 0.0
        trained = job.trained_at(now) % job.epoch if job.epoch else job.trained_at(now)
        begun = trained / job.batch % 1.0
        if begun < _ROUNDING or begun > 1 - _ROUNDING:
            return 0.0
        left = (1 - begun) * job.batch
        return min(left, job.epoch - trained if job.epoch else left, job.remaining_at(now))


USUAL = Premises()
