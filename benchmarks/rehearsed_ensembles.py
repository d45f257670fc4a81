"""Ensembles of unlike networks, drawn at random: as specs to be rehearsed, and as traces to be simulated.

Single-device rates are 8x apart, as those of FLEET's networks are (MLSys'20, Figure 7: 21 to 176 images/s).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.rates import RateCurve
from fleet.simulator.machines.machine import Costs, MeasuredMachine, RunRates
from fleet.simulator.simulation import Simulation, SimulationConfig
from fleet.simulator.traces.trace import JobColumns, Trace, TraceJob
from fleet.spec.policies import policy

NETWORKS, DEVICES_PER_NODE = 24, 6
SLOWEST, FASTEST = 22.0, 176.0
"""Bounds of r(1), samples/s; its logarithm is drawn evenly."""
EPOCHS = (2, 6)
"""Bounds of the epochs, drawn evenly; they have nothing to do with the rate (Appendix B.1, Figure 8)."""
EFFICIENCY = 0.97
"""r(m) = r(1) m 0.97^(m - 1): the paper's scaling (Figure 9)."""
VIRTUAL_WORKERS, BATCH, SAMPLES = 8, 12, 480
RING_SAMPLES = 256
"""Samples that a network may be ahead of another that shares its stream: two steps and a slot."""

DATA = '''
import numpy as np

class Blobs:
    """Ten well-parted clouds of points: what they are does not matter where nobody computes."""
    def __init__(self, count):
        draw = np.random.default_rng(0)
        self.labels = draw.integers(0, 10, count)
        self.points = (draw.standard_normal((count, 64)) + self.labels[:, None]).astype(np.float32)
    def __len__(self):
        return len(self.labels)
    def __getitem__(self, index):
        return self.points[index], self.labels[index]
'''


@dataclass(frozen=True)
class Network:
    """One network of an ensemble: samples/s on one device, and how long it trains."""

    name: str
    single: float
    epochs: int

    @property
    def rates(self) -> dict[int, float]:
        """r(m), samples/s by number of devices."""
        return {m: round(self._rate(m), 3) for m in range(1, VIRTUAL_WORKERS + 1)}

    def _rate(self, devices: int) -> float:
        """The largest block sets the pace, as workers are dealt out whole."""
        busy = VIRTUAL_WORKERS / (devices * -(-VIRTUAL_WORKERS // devices))
        return self.single * devices * EFFICIENCY ** (devices - 1) * busy


def draw_networks(seed: int) -> list[Network]:
    """Draw an ensemble; the same seed gives the same one."""
    random = np.random.default_rng(seed)
    singles = np.exp(random.uniform(np.log(SLOWEST), np.log(FASTEST), NETWORKS))
    epochs = random.integers(EPOCHS[0], EPOCHS[1] + 1, NETWORKS)
    pairs = zip(singles.tolist(), epochs.tolist())
    return [Network(f"net-{index:02}", single, count) for index, (single, count) in enumerate(pairs)]


def write_ensemble(folder: Path, seed: int, time_scale: float) -> Path:
    """Write the spec of a rehearsal, and the data that it names; return the spec's path."""
    networks = draw_networks(seed)
    spec: dict[str, Any] = {
        "name": f"ensemble-{seed}",
        "data": {"blobs": {"train": {"source": "blobs:Blobs", "arguments": {"count": SAMPLES}}}},
        "defaults": {
            "data": "blobs",
            "model": {"name": "trainers.zoo:MLP", "arguments": {"inputs": 64, "widths": [16]}},
            "optimizer": {"name": "SGD", "arguments": {"lr": 0.01, "momentum": 0.9}},
            "loss": "cross_entropy",
            "virtual_workers": VIRTUAL_WORKERS,
            "batch_size": BATCH,
        },
        "jobs": [{"name": network.name, "stop": {"epochs": network.epochs}} for network in networks],
        "resources": {"ring_samples": RING_SAMPLES},
        "checkpoints": {"every": 1000},  # as in FLEET: when a network leaves its devices
        "rehearse": {"rates": {each.name: each.rates for each in networks}, "time_scale": time_scale},
    }
    (folder / "blobs.py").write_text(DATA)
    path = folder / f"ensemble-{seed}.yaml"
    path.write_text(json.dumps(spec))
    return path


def simulated_seconds(networks: Sequence[Network], devices: int, name: str, forming: float) -> float:
    """How long the ensemble takes in the simulator, seconds of the real run.

    Args:
        networks: all arrive at once and share their samples.
        devices: a multiple of `DEVICES_PER_NODE`.
        name: the policy's.
        forming: seconds that it costs to form a group, first or anew.
    """
    curves = {each.name: RateCurve(each.rates, DEVICES_PER_NODE, workers=VIRTUAL_WORKERS) for each in networks}
    columns = JobColumns.from_jobs([_trace_job(each) for each in networks])
    trace = Trace.of(columns, "rehearsed ensembles").with_curves(curves)
    cluster = Cluster((DEVICES_PER_NODE,) * (devices // DEVICES_PER_NODE))
    machine = MeasuredMachine(cluster, RunRates(curves), Costs(forming, forming))
    config = SimulationConfig(slack=RING_SAMPLES, whole_steps=True)
    return Simulation(trace, machine, policy(name), config=config).run().makespan


def _trace_job(network: Network) -> TraceJob:
    samples, step = network.epochs * SAMPLES, VIRTUAL_WORKERS * BATCH
    return TraceJob(
        network.name, 0.0, 1, model=network.name, batch_size=step, work=samples / step, samples=float(samples),
        limit=VIRTUAL_WORKERS, workers=VIRTUAL_WORKERS, epochs=float(network.epochs), stream="blobs",
    )  # fmt: skip
