"""What holds for a policy that says nothing else."""

from __future__ import annotations

from typing import ClassVar

from fleet.scheduling.model.trigger import Trigger


class UsualPolicy:
    """A policy whose jobs share no streams, and which is asked at each event.

    Attributes:
        knows_kinds: whether it sees that devices are of several kinds; else it is asked for each kind alone.
        keeps_minimum: whether it gives no job fewer devices than its `minimum_devices`.
        keeps_service_levels: whether it holds what a job's `service_level` promises.
        tunes_batches: whether jobs that can choose their batch sizes themselves do so; else they keep their own.
        weighs_data_path: whether it minds what all jobs together ask of the preprocessors.
        learns_rates: whether it lets jobs learn their rates as they train, though they could be profiled before.
        interval: seconds; of a policy that has this parameter: what happens waits for the next multiple of it.
    """

    name: ClassVar[str]
    shares_streams: ClassVar[bool] = False
    knows_kinds: ClassVar[bool] = False
    keeps_minimum: ClassVar[bool] = False
    keeps_service_levels: ClassVar[bool] = False
    tunes_batches: ClassVar[bool] = False
    weighs_data_path: ClassVar[bool] = False
    learns_rates: ClassVar[bool] = False
    interval: float = 0.0

    @property
    def trigger(self) -> Trigger:
        """At each event, or at the ends of intervals."""
        return Trigger(self.interval)
