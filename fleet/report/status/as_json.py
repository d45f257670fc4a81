"""How a run stands, as one JSON object; the keys are told in docs/reference/cli.md and keep their names."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fleet.report.status.standing import RunStanding


def as_json(standing: RunStanding) -> dict[str, Any]:
    """The keys of `fleet status --json`."""
    content = asdict(standing)
    others = {job.pop("job"): job for job in content.pop("others")}
    running = {job.pop("job"): {"status": "running", **job} for job in content.pop("running")}
    used = standing.device_seconds / standing.reserved if standing.reserved > 0 else None
    return {
        **content,
        "counts": dict(standing.counts),
        "waits": dict(standing.waits),
        "seconds_left": content.pop("left"),
        "device_hours": standing.device_seconds / 3600,
        "used": used,
        "jobs": {**running, **others},
    }
