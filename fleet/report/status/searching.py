"""How a run's search stands, by the lines that a scan kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fleet.journal import events
from fleet.report.status.estimates import told_in
from fleet.report.status.scan import JournalScan
from fleet.report.status.standing import SearchStanding


def search_standing(scan: JournalScan) -> SearchStanding | None:
    """Tell how a run's search stands; None if the run has none, or it has not begun."""
    bounds = scan.bounds
    if bounds is None:
        return None
    trials = [job for job in scan.jobs.values() if job.begun]
    epochs = sum(event.end for job in trials if isinstance(event := told_in(job.search), events.Decided))
    standing = SearchStanding(bounds.metric, len(trials), bounds.trials, epochs, bounds.epochs, bounds.hours)
    sign = -1.0 if bounds.mode == "max" else 1.0
    results = [event for job in trials if isinstance(event := told_in(job.result), events.Result)]
    best = min(
        ((sign * event.value, event.trial, event) for event in results if event.value is not None),
        key=lambda each: each[:2],
        default=None,
    )
    if best is None:
        return standing
    _, trial, result = best
    begun = (event for job in trials if isinstance(event := told_in(job.begun), events.Decided))
    values = next(event.values for event in begun if event.trial == trial)
    return replace(
        standing, best=result.job, best_value=result.value, best_epochs=result.epoch, values=values,
        front=_front(bounds, results),
    )  # fmt: skip


def _front(bounds: events.Bounds, results: Sequence[events.Result]) -> tuple[str, ...]:
    """Jobs on the Pareto front, by their trials' numbers; none where the search has one metric."""
    if not bounds.further:
        return ()
    from fleet.search.search import front  # loads pydantic

    signs = [-1.0 if mode == "max" else 1.0 for mode in (bounds.mode, *(each.mode for each in bounds.further))]
    known = {one.trial: (one.job, [one.value, *one.further]) for one in results if one.value is not None}
    found = front({trial: [sign * v for sign, v in zip(signs, some)] for trial, (_, some) in known.items()})
    return tuple(known[trial][0] for trial in found)
