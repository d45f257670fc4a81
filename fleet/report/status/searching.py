"""How a run's search stands, by the lines that a scan kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fleet.report.status.scan import JournalScan
from fleet.report.status.standing import SearchStanding
from fleet.run_directory.journal_lines import event_of

Event = Mapping[str, Any]


def search_standing(scan: JournalScan) -> SearchStanding | None:
    """Tell how a run's search stands; None if the run has none, or it has not begun."""
    if scan.bounds is None:
        return None
    trials = [job for job in scan.jobs.values() if job.begun]
    epochs = sum(int(event["end"]) for event in _events(job.search for job in trials))
    most = [scan.bounds.get(key) for key in ("trials", "epochs", "hours")]
    metric = str(scan.bounds.get("metric", ""))
    standing = SearchStanding(metric, len(trials), most[0], epochs, most[1], most[2])
    sign = -1.0 if scan.bounds.get("mode") == "max" else 1.0
    results = [event for event in _events(job.result for job in trials) if event["value"] is not None]
    best = min(results, key=lambda event: (sign * event["value"], event["trial"]), default=None)
    if best is None:
        return standing
    begun = next(event for event in _events(job.begun for job in trials) if event["trial"] == best["trial"])
    return replace(
        standing, best=str(best["job"]), best_value=best["value"], best_epochs=best["epoch"], values=begun["values"],
        front=_front(scan, results),
    )  # fmt: skip


def _front(scan: JournalScan, results: Sequence[Event]) -> tuple[str, ...]:
    """Jobs on the Pareto front, by their trials' numbers; none where the search has one metric."""
    further = (scan.bounds or {}).get("further")
    if not further:
        return ()
    from fleet.search.pareto import front  # loads pydantic

    signs = [-1.0 if one.get("mode") == "max" else 1.0 for one in (scan.bounds or {}, *further)]
    known = {one["trial"]: (str(one["job"]), [one["value"], *one["further"]]) for one in results}
    found = front({trial: [sign * v for sign, v in zip(signs, some)] for trial, (_, some) in known.items()})
    return tuple(known[trial][0] for trial in found)


def _events(lines: Iterator[bytes]) -> Iterator[Event]:
    """The lines that are as they were written, taken apart."""
    return (event for line in lines if line and (event := event_of(line)) is not None)
