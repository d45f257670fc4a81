"""Ensembles like FLEET's 100 networks, calibrated to the total times of its Table 4; and a policy's run on them.

The paper does not list its networks. What it leaves open was chosen so that FLEET-G's total times are near those of
Table 4 (see `benchmarks.simulated.calibration`). So these totals are no prediction; flotillas, speed-ups and the order
of the methods are, since the calibration does not look at them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from benchmarks.simulated.drawn_ensemble import PER_NODE, Ensemble, ensemble_trace
from benchmarks.simulated.drawn_losses import drawn_losses
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.policy import Plan, Policy, State
from fleet.simulator.machines.machine import Costs, MeasuredMachine, RunRates
from fleet.simulator.outcome import PlannedRound, SimulationOutcome
from fleet.simulator.outcome import RoundObserver as WatchedRounds
from fleet.simulator.simulation import Simulation, SimulationConfig
from fleet.simulator.traces.trace import Trace

SIZES = (20, 40, 60, 80, 100, 120, 140, 160)
CHECKPOINT = 34.5
"""Seconds that the checkpoint of a flotilla takes: those of Table 4 are multiples of 34 s."""
BUFFER = 2048 + 2048 + 10 * 32
"""Samples between the first and the last reader: FLEET's queues (Figure 4), with batches of 32."""
CALIBRATED = Ensemble(shape=0.1, tie=0.25, efficiency=0.965)
"""What `benchmarks.simulated.calibration` found."""
CALIBRATED_ON = (1, 2)
"""Seeds of the ensembles that the calibration looked at."""
JUDGED_ON = 100
"""The first of the seeds whose ensembles the calibration has not seen."""


class Rounds:
    """A policy, and how often it began on an idle machine."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.name, self.shares_streams, self.trigger = policy.name, policy.shares_streams, policy.trigger
        self.count = 0

    def plan(self, state: State) -> Plan:
        plan = self._policy.plan(state)
        self.count += bool(plan.allocation) and not state.running
        return plan


@dataclass(frozen=True)
class Trained:
    """An ensemble that a policy has trained: seconds, flotillas, what each of them trained, and all the rest."""

    seconds: float
    rounds: int
    planned: tuple[PlannedRound, ...]
    outcome: SimulationOutcome


@lru_cache(maxsize=64)
def drawn(devices: int, seed: int, ensemble: Ensemble = CALIBRATED) -> Trace:
    """The networks of that seed, with their rates on up to so many devices."""
    return ensemble_trace(ensemble, devices, seed)


@lru_cache(maxsize=64)
def losses(seed: int, ensemble: Ensemble = CALIBRATED) -> dict[str, tuple[float, ...]]:
    """Loss curves of the networks of that seed."""
    jobs = drawn(SIZES[0], seed, ensemble).jobs
    return {name: drawn_losses(int(epochs), seed, name) for name, epochs in zip(jobs.name, jobs.epochs.tolist())}


def trained(
    policy: Policy, devices: int, seed: int, costs: Costs, shown: bool = False, ensemble: Ensemble = CALIBRATED
) -> Trained:
    """What a policy makes of an ensemble of that seed on so many devices; `shown`: it sees losses."""
    trace, rounds = drawn(devices, seed, ensemble), Rounds(policy)
    trace = trace.with_losses(losses(seed, ensemble)) if shown else trace
    machine = MeasuredMachine(Cluster((PER_NODE,) * (devices // PER_NODE)), RunRates(trace.curves), costs)
    watch, config = WatchedRounds(), SimulationConfig(seed, BUFFER)
    outcome = Simulation(trace, machine, rounds, config=config, watch=watch).run()  # type: ignore[arg-type]
    if not outcome.finished.all():
        raise RuntimeError(f"{policy.name} left {int((~outcome.finished).sum())} networks untrained on {devices} GPUs")
    planned = watch.until(dict(zip(outcome.names, outcome.end.tolist())))
    return Trained(outcome.makespan, rounds.count, planned, outcome)
