"""Room for many networks: what an event costs rank 0, with ten thousand networks on as many devices."""

from __future__ import annotations

from typing import Any

from benchmarks.bars import at_most
from benchmarks.scaled.coordinator import EventCosts, measured_apart

SIZES = (256, 1_000, 4_000, 10_000)
OF_POLICIES = 1_000
"""Networks under a policy that looks at all of them at each plan."""


def main(repetitions: int = 0) -> dict[str, Any]:
    """Coordinate networks whose ranks are played: everything of rank 0 is real, and there is no torch.

    Args:
        repetitions: the most networks, to try it on fewer; 0: all sizes.

    Returns:
        {"bars": [...], "tables": [...]}
    """
    sizes = [size for size in SIZES if size <= (repetitions or SIZES[-1])]
    found = [measured_apart(size, "local") for size in sizes]
    others = [(name, measured_apart(min(OF_POLICIES, sizes[-1]), name)) for name in ("flotilla", "malleable")]
    large, small = found[-1], next(each for each in found if each.networks >= min(OF_POLICIES, sizes[-1]))
    times = large.milliseconds
    return {
        "bars": [
            at_most("ms of rank 0 for a message of a step, most networks", times["step"], 0.05),
            at_most("ms for an epoch's end", times["epoch"], 0.3),
            at_most("ms for a network's end with its plan, policy local", times["end"], 20.0),
            at_most("a step's message, most networks by 1,000", times["step"] / small.milliseconds["step"], 1.5),
            at_most("an epoch's end, most networks by 1,000", times["epoch"] / small.milliseconds["epoch"], 1.5),
            at_most("s of rank 0 until all networks train", large.starting, 60.0),
            at_most("MB that rank 0 sends until then", large.megabytes, 2000.0),
            *(at_most(f"ms for an end with its plan, {name}, 1,000 networks", each.milliseconds["end"], 50.0)
              for name, each in others),
        ],
        "tables": [
            {
                "title": "ms of rank 0's CPU for an event, medians",
                "columns": ["networks", "nodes", "policy", *times],
                "rows": [[each.networks, each.nodes, name, *each.milliseconds.values()]
                         for name, each in [*(("local", each) for each in found), *others]],
            },
            {
                "title": "the whole run",
                "columns": ["networks", "policy", "s until all train", "messages", "MB", "s until all have left",
                            "s to read the books again", "MiB"],
                "rows": [_whole(name, each) for name, each in [*(("local", each) for each in found), *others]],
            },
        ],
    }  # fmt: skip


def _whole(name: str, run: EventCosts) -> list[Any]:
    return [
        run.networks, name, run.starting, run.sent, run.megabytes, run.stopping, run.resuming, run.mebibytes
    ]  # fmt: skip
