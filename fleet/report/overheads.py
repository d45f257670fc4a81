"""What running the ensemble cost beside training (FLEET, MLSys'20, Table 4)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fleet.report.history import RunHistory

_NAMES = ("scheduling", "profiling", "checkpoint", "reforming")


@dataclass(frozen=True)
class Overhead:
    """One kind of overhead: seconds, their share of the wall time in percent, and how often it came."""

    name: str
    seconds: float
    percent: float
    count: int


def overheads(history: RunHistory) -> tuple[Overhead, ...]:
    """Scheduling, profiling, checkpoint and reforming, then whatever else the run named at its end.

    The totals that the run wrote at its end are taken where it wrote them; a run that was cut is added up from its
    events: checkpoints and re-forming over all groups, profiling by the wall (measurements beside each other count
    once).
    """
    counts = {
        "scheduling": len(history.rounds),
        "profiling": len(history.measurements) + len(history.timings),
        "checkpoint": len(history.checkpoints),
        "reforming": len({(span.job, span.start) for span in history.spans}),
    }
    seconds = _from_events(history)
    if history.sessions and history.session.ended is not None:
        seconds.update(history.session.ended.overhead_seconds)
    wall = history.wall
    return tuple(
        Overhead(name, value, 100.0 * value / wall if wall > 0 else 0.0, counts.get(name, 0))
        for name, value in seconds.items()
    )


def _from_events(history: RunHistory) -> dict[str, float]:
    groups = {(span.job, span.start): span.reforming for span in history.spans}
    profiled = _covered((m.t - m.seconds, m.t) for m in history.measurements)
    scheduling = sum(flotilla.planning_seconds for flotilla in history.rounds)
    checkpoint = sum(file.seconds for file in history.checkpoints)
    return dict(zip(_NAMES, (scheduling, profiled, checkpoint, sum(groups.values())), strict=True))


def _covered(intervals: Iterable[tuple[float, float]]) -> float:
    """Length of the union of `intervals`."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
