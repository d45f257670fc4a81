"""Gains over one network on each device: what `python -m benchmarks fleet_speedup` rehearses, simulated alone."""

from __future__ import annotations

import numpy as np

from benchmarks.rehearsed_ensembles import NETWORKS, draw_networks, simulated_seconds
from benchmarks.simulated.part import Part

DEVICES = (6, 12, 24)
ENSEMBLES = 10
POLICIES = ("flotilla", "local", "homogeneous")
FORMING = (0.0, 0.5, 2.0)
"""Seconds that forming a group takes; an ensemble takes one to three minutes."""


def measure(part: Part, repetitions: int) -> None:
    """Gains by devices and by what forming a group costs.

    Args:
        repetitions: ensembles; 0: 10 of them.
    """
    ensembles = [draw_networks(seed) for seed in range(repetitions or ENSEMBLES)]
    rows = []
    for devices in DEVICES:
        for forming in FORMING:
            seconds = {
                name: np.array([simulated_seconds(networks, devices, name, forming) for networks in ensembles])
                for name in ("baseline", *POLICIES)
            }
            gains = {name: seconds["baseline"] / seconds[name] for name in POLICIES}
            told = [f"{np.median(gain):.2f} ({gain.min():.2f} to {gain.max():.2f})" for gain in gains.values()]
            ahead = f"{(gains['flotilla'] > 1).sum()} of {len(ensembles)}"
            baseline = float(np.median(seconds["baseline"]))
            rows.append([devices, f"{NETWORKS / devices:g}", forming, round(baseline, 1), *told, ahead])
    columns = ["devices", "networks a device", "forming, s", "baseline, s", *POLICIES, "flotilla gains"]
    title = f"simulated: {NETWORKS} networks, {len(ensembles)} ensembles; gains over baseline, median (range)"
    part.table(title, columns, rows)
