"""Which machine plays which rates."""

from __future__ import annotations

from fleet.scheduling.model.cluster import Cluster
from fleet.simulator.machines.arrivals import Costs
from fleet.simulator.machines.batch_range_machine import BatchRangeMachine
from fleet.simulator.machines.kind_machine import KindMachine
from fleet.simulator.machines.machine import Machine, MeasuredMachine
from fleet.simulator.machines.pollux_machine import PolluxMachine
from fleet.simulator.machines.sia_machine import SiaMachine
from fleet.simulator.rates.batch_rates import BatchRates
from fleet.simulator.rates.kind_rates import KindRates
from fleet.simulator.rates.pollux_rates import PolluxRates
from fleet.simulator.rates.rates import Rates
from fleet.simulator.rates.sia_rates import SiaRates
from fleet.simulator.traces.problem import advice_on


def machine_for(cluster: Cluster, rates: Rates | None, costs: Costs, guaranteed: int | None = None) -> Machine:
    """The machine of this cluster on which jobs are as fast as these rates say.

    On a cluster without kinds each job has the rates of its own kind.

    Args:
        guaranteed: priority from which a job is a guaranteed one; None: none is.

    Raises:
        ValueError: the rates do not know a kind of device that the cluster has, or have no guaranteed jobs.
    """
    if isinstance(rates, KindRates) and cluster.kinds:
        _check_kinds(cluster, rates)
        return KindMachine(cluster, rates, costs, guaranteed=guaranteed)
    if isinstance(rates, PolluxRates):
        if guaranteed is not None:
            raise ValueError("jobs with rates of Pollux serve nobody; leave --guaranteed out")
        return PolluxMachine(cluster, rates, costs)
    if isinstance(rates, SiaRates):
        if guaranteed is not None:
            raise ValueError("jobs with rates of Sia serve nobody; leave --guaranteed out")
        _check_kinds(cluster, rates)
        return SiaMachine(cluster, rates, costs if costs.most else None)
    if isinstance(rates, BatchRates):
        return BatchRangeMachine(cluster, rates, costs, guaranteed)
    return MeasuredMachine(cluster, rates, costs, guaranteed)


def _check_kinds(cluster: Cluster, rates: KindRates | SiaRates) -> None:
    for kind in cluster.counts():
        if kind not in rates.kinds and (kind or len(rates.kinds) > 1):
            raise ValueError(f"cluster: there are no rates of devices of kind {kind!r}; {advice_on(kind, rates.kinds)}")
