"""A run in the simulator: who would train where and when, by the rates that are known before it begins."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fleet.machine.cluster_map import ClusterMap, pretended
from fleet.profiling.sizing import Size
from fleet.session.devices_to_plan import devices_to_plan
from fleet.session.expected_jobs import ExpectedJob, expected_jobs
from fleet.session.input_checks import check_against_data, check_minimum, least_sizes
from fleet.session.lanes import RingPlan, ring_of
from fleet.session.lending_checks import check_lending, lending_of
from fleet.session.metric_trial import BatchTrials
from fleet.session.priced_devices import prices_of
from fleet.simulator.machines.machine import Costs
from fleet.simulator.machines.run_machine import RunMachine, SpecRates, spec_trace
from fleet.simulator.outcome import SimulationOutcome
from fleet.simulator.premises import Premises
from fleet.simulator.rounds import PlannedRound, RoundObserver
from fleet.simulator.simulation import Simulation
from fleet.spec import EnsembleSpec, importable
from fleet.spec.policies import chosen_policy
from fleet.spec.semantics import check_places
from fleet.workers.datasets import facts_of, open_datasets
from fleet.workers.runtime import Runtime
from preprocess.files.modules import at_home


@dataclass(frozen=True)
class PredictedRun:
    """What the simulator tells; dropped: job -> why the policy would never run it."""

    outcome: SimulationOutcome
    rounds: tuple[PlannedRound, ...]
    dropped: Mapping[str, str]

    @property
    def seconds(self) -> float:
        """From the begin until the last job is done; infinite if one never is."""
        ends = self.outcome.end.tolist()
        return math.inf if self.dropped or any(map(math.isnan, ends)) else max(ends)


@dataclass(frozen=True)
class Prediction:
    """Predicts runs of a spec; each getting of devices takes `policy.restart` seconds.

    Attributes:
        start: when the run begins, seconds since 1970: deadlines may be times of day.
    """

    spec: EnsembleSpec
    cluster: ClusterMap
    premises: Premises
    start: float

    def of(self, expected: Mapping[str, ExpectedJob]) -> PredictedRun:
        """The run of these jobs, by name."""
        trace = spec_trace({name: one.known for name, one in expected.items()}, self.start)
        trace = trace.with_feeds({name: one.fed for name, one in expected.items() if one.fed is not None})
        jobs = [one.known.job for one in expected.values()]
        rates = SpecRates(
            trace.curves,
            {name: one.scaling for name, one in expected.items() if one.scaling is not None},
            [job.name for job in jobs if job.guaranteed],
            {name: one.by_kind for name, one in expected.items() if one.by_kind is not None},
            [job.name for job in jobs if job.batch is not None and job.batch.change == "epochs"],
            {name: one.executor_rates for name, one in expected.items() if one.executor_rates},
        )
        asked, watch = self.spec.policy, RoundObserver()
        machine = RunMachine(devices_to_plan(self.cluster), rates, Costs(asked.restart, asked.restart))
        chosen = chosen_policy(asked.name, **asked.parameters)
        outcome = Simulation(trace, machine, chosen, premises=self.premises, watch=watch).run()
        ends = dict(zip(outcome.names, outcome.end.tolist()))
        return PredictedRun(outcome, watch.until(ends), watch.dropped)


@dataclass(frozen=True)
class PredictionInput:
    """All that the prediction of a run needs, and what was found on the way.

    Attributes:
        runtime: the spec with the facts of its data.
        shape: trainers of each node.
        device: the kind of the devices, such as "cpu".
    """

    runtime: Runtime
    prediction: Prediction
    expected: Mapping[str, ExpectedJob]
    sizes: Mapping[str, Size]
    ring: RingPlan
    shape: tuple[int, ...]
    device: str


def prepare(spec: EnsembleSpec, shape: tuple[int, ...], start: float | None = None) -> PredictionInput:
    """Check the spec against its data, size its jobs, and find the rates that are known.

    Args:
        shape: trainers of each node.
        start: when the run would begin, seconds since 1970; None: now.

    Raises:
        SpecError, SourceError, TransformError, ClusterError: what a run would refuse.
    """
    asked, device = spec.resources, asked_device(spec)
    check_places(spec)
    with at_home(spec.folder):
        datasets = open_datasets(spec)
        runtime = Runtime(spec, facts_of(datasets))
        check_against_data(runtime, BatchTrials(datasets))
        members = 1 if device == "cpu" else asked.members_per_device
        cluster = pretended(shape, asked.preprocessors, device, socket.gethostname(), members, asked.kinds)
        check_minimum(runtime, cluster)
        check_lending(runtime, cluster)
        sizes = least_sizes(runtime)
    with importable([spec.folder, Path.cwd()]):
        expected = expected_jobs(runtime, sizes, device, cluster)
    ring = ring_of(runtime, cluster)
    lending = lending_of(runtime, cluster)
    premises = Premises(spec.seed, ring.samples, spec.policy.margin, prices_of(spec, cluster), lending)
    prediction = Prediction(spec, cluster, premises, time.time() if start is None else start)
    return PredictionInput(runtime, prediction, expected, sizes, ring, shape, device)


def asked_device(spec: EnsembleSpec) -> str:
    """The kind of this machine's devices that the spec asks for."""
    if spec.resources.device != "auto":
        return spec.resources.device
    import torch

    kind = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return "cpu" if kind is None else kind.type
