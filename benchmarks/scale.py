"""Room for many networks: what events, start-up and plans cost, with ten thousand networks on as many devices."""

from __future__ import annotations

from typing import Any

from benchmarks.bars import at_most
from benchmarks.scaled.coordinator import EventCosts, event_costs
from benchmarks.scaled.plans import deep_networks, plan_seconds, small_networks
from benchmarks.scaled.startup import PER_NODE, start_costs

SIZES = (250, 1_000, 4_000, 10_000)
OF_POLICIES = 1_000
"""Networks under a policy that looks at all of them at each plan."""


def main(repetitions: int = 0) -> dict[str, Any]:
    """Coordinate networks whose ranks are played: real coordinator, books, journal and policy, no MPI and no torch.

    Args:
        repetitions: not looked at: medians over many events are told.

    Returns:
        {"bars": [...], "tables": [...]}
    """
    found = {size: event_costs(size, size, "local") for size in SIZES}
    others = {name: event_costs(OF_POLICIES, OF_POLICIES, name) for name in ("flotilla", "malleable")}
    small, large = found[1_000], found[10_000]
    starts = {size: start_costs(size, size // PER_NODE) for size in SIZES}
    first, other = starts[10_000]
    plans = {
        **{f"1,000 networks, {name}": (plan_seconds(small_networks(1_000, name)), 5.0) for name in others},
        "100 deep networks": (plan_seconds(deep_networks(100)), 10.0),
    }
    return {
        "bars": [
            at_most("ms of rank 0 for a message of a step, 10,000 networks", large.step, 0.05),
            at_most("ms for an epoch's end", large.epoch, 0.3),
            at_most("ms for a network's end with its plan, policy local", large.end, 20.0),
            at_most("a step's message, 10,000 networks by 1,000", large.step / small.step, 1.5),
            at_most("an epoch's end, 10,000 networks by 1,000", large.epoch / small.epoch, 1.5),
            *(at_most(f"ms for an end with its plan, {name}, 1,000 networks", each.end, 50.0)
              for name, each in others.items()),
            at_most("s of rank 0 until it knows 10,000 jobs and 1,250 nodes, imports apart", first.knowing, 2.0),
            at_most("s of another rank", other.knowing, 0.3),
            *(at_most(f"s of `fleet plan` on 128x8, {name}", seconds, most) for name, (seconds, most) in plans.items()),
        ],
        "tables": [{
            "title": "ms of rank 0's CPU for an event, medians",
            "columns": ["networks", "policy", "s until all train", "step", "epoch", "checkpoint", "end with its plan"],
            "rows": [_row("local", each) for each in found.values()] + [_row(*each) for each in others.items()],
        }, {
            "title": "CPU of start-up beside MPI and torch",
            "columns": ["networks", "rank", "s of imports", "s until spec and map are known", "MB of these"],
            "rows": [
                [size, name, each.imports, each.knowing, each.megabytes]
                for size, pair in starts.items()
                for name, each in zip(("rank 0", "a trainer"), pair)
            ],
        }],
    }  # fmt: skip


def _row(policy: str, costs: EventCosts) -> list[Any]:
    return [costs.networks, policy, costs.starting, costs.step, costs.epoch, costs.checkpoint, costs.end]
