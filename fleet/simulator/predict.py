"""What would happen: the rounds and the time that a policy needs for an ensemble."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from fleet.coordination.coordinator import Coordinator
from fleet.coordination.ledger import JobRecord, Ledger, Round
from fleet.run_directory.journal import Journal
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.model.state import Cluster
from fleet.scheduling.policies import Policy
from fleet.simulator.executor import SimulatedClock, SimulatedExecutor, SimulatedJob


@dataclass(frozen=True)
class Prediction:
    """A predicted run: its length in seconds, its rounds, and the seconds that each device spends computing."""

    seconds: float
    rounds: tuple[Round, ...]
    computing: Mapping[int, float]


def predict(
    policy: Policy,
    cluster: Cluster,
    jobs: Mapping[str, SimulatedJob],
    curves: Mapping[str, RateCurve],
    limits: Mapping[str, int],
    seed: int = 0,
    start_seconds: float = 0.0,
    leave_seconds: float = 0.0,
) -> Prediction:
    """Run `policy` over the predicted machine, to the end of all jobs."""
    clock = SimulatedClock()
    records = [JobRecord(name, job.stream, limits[name], curve=curves[name]) for name, job in jobs.items()]
    ledger = Ledger(cluster, records, seed)
    journal = Journal(None, clock)
    computing: dict[int, float] = {}

    def count(event: dict[str, object]) -> None:
        if event["event"] == "epoch":
            for device, seconds in event["computed"].items():  # type: ignore[attr-defined]
                computing[device] = computing.get(device, 0.0) + seconds

    journal.listen(count)
    executor = SimulatedExecutor(jobs, clock, start_seconds, leave_seconds)
    Coordinator(policy, executor, ledger, journal, lambda: False, lambda: None, silence=math.inf, poll=math.inf).run()
    return Prediction(clock.now, tuple(ledger.rounds), computing)
