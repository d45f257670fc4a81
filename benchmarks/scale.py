"""Room for many networks: what starting, planning and each event cost, up to ten thousand networks and devices."""

from __future__ import annotations

from typing import Any

from benchmarks.bars import at_most
from benchmarks.scaled.coordinator import EventCosts, measured_apart
from benchmarks.scaled.plans import deep_networks, plan_seconds, small_networks
from benchmarks.scaled.played_ranks import PER_NODE
from benchmarks.scaled.startup import start_costs

SIZES = (256, 1_000, 4_000, 10_000)
FEW = 1_000
"""Networks under a policy that looks at all of them at each plan, and those of a plan."""
POLICIES = ("flotilla", "malleable")


def main(repetitions: int = 0) -> dict[str, Any]:
    """Coordinate networks whose ranks are played: everything of rank 0 is real, and there is no torch.

    Args:
        repetitions: the most networks, to try it on fewer; 0: all sizes.

    Returns:
        {"bars": [...], "tables": [...]}
    """
    most = repetitions or SIZES[-1]
    sizes, few = [size for size in SIZES if size <= most], min(FEW, most)
    runs = [("local", measured_apart(size, "local")) for size in sizes]
    small, large = next(run for _, run in runs if run.networks >= few), runs[-1][1]
    runs += [(name, measured_apart(few, name)) for name in POLICIES]
    starts = {size: start_costs(size, size // PER_NODE) for size in sizes}
    plans = [(f"{few:,} networks, {name}", plan_seconds(small_networks(few, name)), 5.0) for name in POLICIES]
    plans.append(("100 deep networks", plan_seconds(deep_networks(min(100, most))), 10.0))
    first, other = starts[sizes[-1]]
    times, fewer = large.milliseconds, small.milliseconds
    return {
        "bars": [
            at_most("ms of rank 0 for a message of a step, most networks", times["step"], 0.05),
            at_most("ms for an epoch's end", times["epoch"], 0.3),
            at_most("ms for a network's end with its plan, policy local", times["end"], 20.0),
            at_most("a step's message, most networks by 1,000", times["step"] / fewer["step"], 1.5),
            at_most("an epoch's end, most networks by 1,000", times["epoch"] / fewer["epoch"], 1.5),
            at_most("s of rank 0 until all networks train", large.starting, 60.0),
            at_most("MB that rank 0 sends until then", large.megabytes, 2000.0),
            *(
                at_most(f"ms for an end with its plan, {name}, {few:,} networks", run.milliseconds["end"], 50.0)
                for name, run in runs[-len(POLICIES) :]
            ),
            at_most("s of rank 0 until it knows all jobs and nodes, imports apart", first.knowing, 2.0),
            at_most("s of another rank", other.knowing, 0.3),
            *(at_most(f"s of `fleet plan` on 128x8, {what}", seconds, bar) for what, seconds, bar in plans),
        ],
        "tables": [
            {
                "title": "ms of rank 0's CPU for an event, medians",
                "columns": ["networks", "nodes", "policy", *times],
                "rows": [[run.networks, run.nodes, name, *run.milliseconds.values()] for name, run in runs],
            },
            {
                "title": "the whole run",
                "columns": [
                    "networks",
                    "policy",
                    "s until all train",
                    "messages",
                    "MB",
                    "s until all have left",
                    "s to read the books again",
                    "MiB",
                ],
                "rows": [_whole(name, run) for name, run in runs],
            },
            {
                "title": "CPU of start-up beside MPI and torch",
                "columns": ["networks", "rank", "s of imports", "s until spec and map are known", "MB of these"],
                "rows": [
                    [size, name, each.imports, each.knowing, each.megabytes]
                    for size, pair in starts.items()
                    for name, each in zip(("rank 0", "a trainer"), pair)
                ],
            },
        ],
    }


def _whole(name: str, run: EventCosts) -> list[Any]:
    times = (run.stopping, run.resuming, run.mebibytes)
    return [run.networks, name, run.starting, run.sent, run.megabytes, *times]
