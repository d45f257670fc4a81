"""How much energy a run has used so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class EnergyTotals:
    """Joules that a run has used.

    Attributes:
        jobs: by job, while its groups held devices.
        idle: of the hosts while no group held these devices.
        sources: what told it: rapl, hwmon, nvml; none: nothing was ever read.
    """

    jobs: Mapping[str, float] = field(default_factory=dict)
    idle: float = 0.0
    sources: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.sources)

    def plus(self, line: Mapping[str, Any]) -> EnergyTotals:
        """Add what a line `energy` of the journal tells."""
        jobs = dict(self.jobs)
        for job, joules in line["jobs"].items():
            jobs[job] = jobs.get(job, 0.0) + joules
        return EnergyTotals(jobs, self.idle + line["idle"], self.sources | set(line["sources"]))

    @property
    def used(self) -> float:
        """The energy of all jobs together."""
        return sum(self.jobs.values())

    def to_json(self) -> dict[str, Any]:
        """Return the totals as run.json holds them."""
        return {"jobs": dict(self.jobs), "used": self.used, "idle": self.idle, "sources": sorted(self.sources)}
