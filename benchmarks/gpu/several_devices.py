"""Several devices: gradients that go from one to another against stock DDP's, and a job that moves between them."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.gpu.part import GpuPart, Skipped, failures_noted
from benchmarks.gpu.timed_turns import over
from benchmarks.turns import in_turns
from benchmarks.worker_counts import way

COUNTS = (2, 4, 8)
NETWORKS = {"ResNet-50": 64, "BERT": 32}
"""With the samples of a worker's batch."""
SMALL = {"small ResNet": 2}
REPETITIONS = 15
TASK = "tests.gpu.device_tasks:Convolutions"
WORKERS, STEPS = 8, 12
COLUMNS = ["network", "devices", "batch of each", "stock DDP's step ms", "fleet over DDP"]


def measure(part: GpuPart) -> None:
    """Compare weights first: on all devices, and on fewer after a move."""
    counts = [count for count in COUNTS if count <= part.given.count]
    if not counts:
        raise Skipped("there is one device; several send gradients to each other")
    with failures_noted(part, "a job over several devices"):
        _weights(part, counts[-1])
    networks, rows = SMALL if part.given.small else NETWORKS, []
    for (network, count), _ in part.shares([(network, count) for count in counts for network in networks]):
        with failures_noted(part, f"{network} on {count} devices"):
            batch = part.given.batch(networks[network])
            rows.append([network, count, batch, *_steps(part, network, batch, count)])
        part.table("a step of one virtual worker on each of several devices", COLUMNS, rows)


def _weights(part: GpuPart, count: int) -> None:
    """Train a job on all devices, on one, and first on all and then on half of them."""
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as name:
        folder = Path(name)

        def trained(title: str, trainers: int, steps: int, *options: str | Path) -> Path:
            path = folder / f"{title}.h5"
            words = ["--virtual-workers", f"{WORKERS}", "--steps", f"{steps}", "--trainers", f"{trainers}"]
            part.fleet("train", TASK, *words, "--checkpoint", path, *options)
            return path

        devices = ("--reduce", "device")
        alone, together = trained("alone", 1, STEPS), trained("together", count, STEPS, *devices)
        part.compared(f"1 device, {count} devices that send to each other", alone, together)
        half = trained("half", count, STEPS // 2, *devices)
        moved = trained("moved", count // 2, STEPS, *devices, "--resume", half)
        part.compared(f"1 device, {count} devices and then {count // 2}", alone, moved)


def _steps(part: GpuPart, network: str, batch: int, count: int) -> list[Any]:
    """Return the cells of COLUMNS from the fourth on; a step is over when the last device is done."""
    with ExitStack() as stack:
        ways = {
            name: stack.enter_context(way(name, network, batch, count, part.given.kind))
            for name in ("devices", "ddp-devices")
        }
        told = in_turns(ways, REPETITIONS)
    seconds = {name: [max(member["wall"] for member in step) for step in steps] for name, steps in told.items()}
    theirs = seconds["ddp-devices"]
    return [f"{median(theirs) * 1000:.2f}", over(seconds["devices"], theirs)]
