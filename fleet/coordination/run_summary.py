"""What run.json says of a run."""

from __future__ import annotations

from typing import Any

from fleet.coordination.ledger import Ledger


def run_summary(ledger: Ledger, status: str, policy: str, wall: float, **more: Any) -> dict[str, Any]:
    """The content of run.json, by the books.

    Args:
        wall: seconds of the run.
        more: what others know.
    """
    return {
        "status": status,
        "policy": policy,
        "wall_seconds": wall,
        "overhead_seconds": dict(ledger.overhead),
        "rounds": [round_.to_json(wall) for round_ in ledger.rounds],
        "jobs": {job.name: job.result() for job in ledger.jobs.values()},
        **more,
    }
