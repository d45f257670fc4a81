"""N virtual workers in one process against N packed processes on one device: EasyScale's Figure 12 (SC'23, 5.1).

Packed processes here add nothing up: each trains a network of its own, as fast as packing can be.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from benchmarks.gpu.part import GpuPart, in_a_line
from benchmarks.turns import in_turns
from benchmarks.worker_counts import figures, way

NETWORKS = {"ResNet-50": 32, "ShuffleNetV2": 256}
"""With the samples of a worker's batch. The paper fills a V100 of 32 GB with one worker of ShuffleNetV2: 512."""
SMALL = {"small ResNet": 2}
COUNTS, COUNTS_SMALL = (1, 4, 16, 2, 8), (1, 2)
"""In the order in which they are measured: time may end."""
REPETITIONS = 7
COLUMNS = ["network", "batch", "workers", "samples/s, one process", "samples/s, packed", "packed over one process"]
COLUMNS += ["MiB, one process", "MiB, packed"]


def measure(part: GpuPart) -> None:
    """Measure one number of workers after another, of each network; what cannot be packed any more is left out."""
    networks, counts = (SMALL, COUNTS_SMALL) if part.given.small else (NETWORKS, COUNTS)
    part.note("memory is what torch's allocator held at most; a process's own context, some hundred MiB, is not in it")
    rows: list[list[Any]] = []
    for (count, network), _ in part.shares([(count, network) for network in networks for count in counts]):
        batch = part.given.batch(networks[network])
        seen = _seen(part, network, batch, count)
        rates = [count * batch / seen[name]["seconds"] if name in seen else None for name in ("workers", "packed")]
        memory = [seen[name]["memory"] / 2**20 if name in seen else None for name in ("workers", "packed")]
        ratio = rates[1] / rates[0] if rates[0] and rates[1] else None
        rows.append([network, batch, count, *map(_cell, rates), _cell(ratio), *map(_cell, memory)])
        rows.sort(key=lambda row: (list(networks).index(row[0]), row[2]))
        part.table("EasyScale's Figure 12: throughput and memory of one device", COLUMNS, rows)


def _seen(part: GpuPart, network: str, batch: int, count: int) -> dict[str, dict[str, float]]:
    """Let the two ways take turns; one whose processes do not live, as where memory ends, is told of."""
    with ExitStack() as stack:
        ways = {}
        for name in ("workers", "packed"):
            try:
                ways[name] = stack.enter_context(way(name, network, batch, count, part.given.device))
            except RuntimeError as error:
                part.note(f"{network}, {count} workers, {name}: {in_a_line(error)}")
                if name == "workers":  # packing may find no memory: that is what the figure shows
                    part.bar(f"{count} workers of {network} run", 0.0, "1", False)
        told = in_turns(ways, REPETITIONS)
    return {name: figures(steps) for name, steps in told.items()}


def _cell(value: float | None) -> str:
    return "does not run" if value is None else f"{value:,.0f}" if value >= 10 else f"{value:.3g}"
