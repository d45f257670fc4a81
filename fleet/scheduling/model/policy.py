"""The base class of policies: a pure function from a state to a plan."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from fleet.scheduling.model.plan import Plan
from fleet.scheduling.model.state import State
from fleet.scheduling.model.trigger import Trigger


class Policy(ABC):
    """Decides who trains where. Inherit from it, write `plan`, and name the class as `module:Name` in a spec.

    The driver, a run or a simulation, asks whenever a job comes, ends or stops, and when the policy wished to be asked.
    It shows a `State` and carries the `Plan` out: jobs whose devices change stop first, and start on the others.
    Parameters are what `__init__` takes, or the fields of a dataclass: a spec's `policy.parameters` are checked
    against these names, and what `__init__` raises as ValueError is told as it is.

    Attributes:
        name: the word by which reports call it; the name of the class, where it is not given.
        shares_streams: whether jobs that start together at the same place of the same data read the same samples.
        interval: seconds; what happens waits for the next multiple of it; 0: nothing waits.
        knows_kinds: whether it sees that devices are of several kinds; else it is asked for each kind alone.
        keeps_minimum: whether it gives no job fewer devices than its `minimum_devices`.
        keeps_service_levels: whether it holds what a job's `service_level` promises.
        tunes_batches: whether jobs that can choose their batch sizes themselves do so; else they keep their own.
        weighs_data_path: whether it minds what all jobs together ask of the preprocessors.
        learns_rates: whether it lets jobs learn their rates as they train, though they could be profiled before.
        chooses_batches: whether it chooses batches of jobs that have a range and are known by their rate curves alone.
        most_executors: the most trainers of a job that it may have on an accelerator that these share.
    """

    knows_kinds: ClassVar[bool] = False
    keeps_minimum: ClassVar[bool] = False
    keeps_service_levels: ClassVar[bool] = False
    tunes_batches: ClassVar[bool] = False
    weighs_data_path: ClassVar[bool] = False
    learns_rates: ClassVar[bool] = False
    interval: float = 0.0

    @property
    def name(self) -> str:
        return type(self).__name__

    @property
    def shares_streams(self) -> bool:
        return False

    @property
    def chooses_batches(self) -> bool:
        return False

    @property
    def most_executors(self) -> int:
        return 1

    @property
    def trigger(self) -> Trigger:
        """When the driver asks: at each event, or at the ends of intervals."""
        return Trigger(self.interval)

    @abstractmethod
    def plan(self, state: State) -> Plan:
        """What should run from now on; the same answer for the same state.

        A running job that should go on appears with the devices that it has, unless `Plan.others_go_on`. One that is
        absent, or has other devices, stops.
        """
