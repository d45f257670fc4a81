"""One file of token ids for eight networks: one service for all, against a DataLoader over a memory map for each."""

from __future__ import annotations

import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.bars import add_median
from benchmarks.feeding import WAYS_OF_TEXT, Cost, networks
from benchmarks.text import CONTEXT, write_ids

SAMPLES = 8192
NETWORKS = 8
REPETITIONS = 5
TOKENS_A_SECOND = 1e6  # of the stream, each handed to all networks, for one core's processor time


def main(repetitions: int = 0) -> dict[str, Any]:
    """Measure epochs of the ways in turn."""
    result: dict[str, Any] = {"bars": [], "tables": [], "samples": SAMPLES, "context": CONTEXT}
    with tempfile.TemporaryDirectory(prefix="tokens-") as folder, ExitStack() as stack:
        data = write_ids(Path(folder), SAMPLES)
        running = {way: stack.enter_context(networks(way, NETWORKS, data)) for way in WAYS_OF_TEXT}
        costs: dict[str, list[Cost]] = {way: [] for way in running}
        for _ in range(repetitions or REPETITIONS):
            for way, group in running.items():
                costs[way].append(group.epoch())
    rates = {way: [CONTEXT / cost.cpu / NETWORKS for cost in found] for way, found in costs.items()}
    median = statistics.median(rates["shared"])
    name = f"tokens a second of one core's time, each handed to {NETWORKS} networks"
    add_median(result, name, rates["shared"], f">= {TOKENS_A_SECOND:g}", median >= TOKENS_A_SECOND)
    for way in WAYS_OF_TEXT[1:]:
        ratios = [ours / theirs for ours, theirs in zip(rates["shared"], rates[way])]
        name = f"the same in multiples of {NETWORKS} {way}"
        add_median(result, name, ratios, ">= 1", statistics.median(ratios) >= 1)
    rows = [
        [way, statistics.median(found), min(found), max(found), statistics.median(cost.wall for cost in costs[way])]
        for way, found in rates.items()
    ]
    columns = ["way", "tokens/s of a core", "least", "most", "wall s an epoch"]
    result["tables"].append({"title": f"{SAMPLES} samples of {CONTEXT} ids", "columns": columns, "rows": rows})
    return result
