"""What a run and its networks have cost: device-hours times the price of each device while they were held."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleet.journal.state import SessionState
from fleet.report.history import RunHistory

HOUR = 3600.0

Course = Sequence[tuple[float, float]]
"""(second of the run, price of a device-hour from then on), by second; the first is at 0."""


@dataclass(frozen=True)
class RunCosts:
    """In the unit of the prices.

    Attributes:
        jobs: by job, while its groups held devices, the forming counted.
        held: of all devices from each session's begin to its end, whoever used them.
    """

    jobs: Mapping[str, float]
    held: float

    @property
    def used(self) -> float:
        """The cost of all jobs together."""
        return sum(self.jobs.values())

    def to_json(self) -> dict[str, Any]:
        """Return the costs as run.json holds them."""
        return {"jobs": dict(self.jobs), "used": self.used, "held": self.held}


def run_costs(history: RunHistory) -> RunCosts | None:
    """The costs of all sessions that had prices; None: none had any."""
    priced = [session for session in history.sessions if session.prices]
    if not priced:
        return None
    devices = {session.index: _kinds(session) for session in priced}
    prices = {session.index: session.prices for session in priced}
    jobs = dict.fromkeys(history.jobs, 0.0)
    for span in history.spans:
        if span.session in prices:
            kind = devices[span.session].get(span.device, "")
            jobs[span.job] = jobs.get(span.job, 0.0) + device_cost(
                prices[span.session].get(kind, ()), span.start, span.end
            )
    held = sum(
        device_cost(session.prices.get(kind, ()), session.start, session.end)
        for session in priced
        for kind in devices[session.index].values()
    )
    return RunCosts(jobs, held)


def device_cost(course: Course, begin: float, end: float) -> float:
    """What a device of this price costs between two seconds of the run."""
    total = 0.0
    ends = [second for second, _ in course[1:]] + [math.inf]
    for (second, price), until in zip(course, ends):
        total += price * max(0.0, min(end, until) - max(begin, second)) / HOUR
    return total


def _kinds(session: SessionState) -> dict[int, str]:
    """Device -> its kind, "" where one price holds for all."""
    ranks = session.cluster.ranks if session.cluster is not None else ()
    alike = set(session.prices) == {""}
    return {rank.device: "" if alike else rank.kind or "" for rank in ranks if rank.device is not None}
