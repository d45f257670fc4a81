"""What a run's networks came to, read without torch: a laptop that has none may attach to a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleet.journal.directory import no_run
from fleet.journal.events import Decided, Event
from fleet.journal.journal import read_journal
from fleet.journal.metric_order import Comparing, MetricOrder, Undeclared
from fleet.journal.run_requests import OwnTrial, SearchRequests
from fleet.models.errors import RunError
from fleet.report.run_history import RunHistory, build_history

Row = dict[str, Any]
_FIRST = ("name", "status", "trial", "epochs")


@dataclass(frozen=True)
class Results:
    """A run's networks.

    Attributes:
        rows: for each network `name`, `status`, `epochs`, the metrics of its last epoch, the values that its search
            gave it, by their paths, `parameters`, `device_seconds`, `checkpoint` (the path of the newest one) and
            `error`; `trial` is its number in the search. All rows have the same keys; what is not known is None. Trials
            that people train have the status `suggested`, `done` or `failed`, and names that begin with `own-`.
        histories: network -> the metrics of each of its epochs, in order.
        comparing: how networks are compared.
    """

    rows: list[Row]
    histories: Mapping[str, list[Mapping[str, float]]]
    comparing: Comparing = field(default_factory=Comparing)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def to_dict(self) -> dict[str, list[Any]]:
        """Column -> its values, as `pandas.DataFrame` takes them."""
        return {key: [row[key] for row in self.rows] for key in (self.rows[0] if self.rows else ())}

    def table(self) -> Any:
        """A pandas DataFrame, a row for each network.

        Raises:
            RunError: pandas is not installed; `to_dict()` needs nothing.
        """
        try:
            import pandas
        except ImportError as error:
            raise RunError(
                f"a table needs the package pandas ({error}): pip install pandas; to_dict() does not"
            ) from None
        return pandas.DataFrame(self.to_dict())

    def best(self, metric: str | None = None, better: str | None = None) -> Row:
        """The row of the best network (of equal ones the first), as `fleet best` has it.

        Args:
            metric: its name; None: that of the search, else that by which the run compares its networks, else accuracy,
                else the held-out loss, else the loss.
            better: `higher` or `lower`, where nobody declares whether more or less of it is better.

        Raises:
            RunError: no network has it, or nobody declares its direction.
        """
        measured = [key for key in self.to_dict() if any(row[key] is not None for row in self.rows)]
        wanted = metric or self.comparing.metric(measured)
        try:
            order = self.comparing.order(wanted, better) if wanted in measured else None
        except Undeclared as error:
            raise RunError(str(error)) from error
        usable = [row for row in self.rows if row["status"] != "failed"]
        found = [] if order is None else order.ranked(usable, lambda row: self._counts(row, order))
        if not found:
            raise RunError(f"no network has a metric {wanted!r}; the columns are {', '.join(self.to_dict())}")
        return found[0]

    def _counts(self, row: Row, order: MetricOrder) -> float | None:
        """By which value a network counts."""
        history = self.histories.get(row["name"]) or [row]
        found = order.value([epoch.get(order.metric) for epoch in history])
        return None if found is None else found[0]


def read_results(directory: Path) -> Results:
    """Read what a run's networks came to; nothing is written, and it may go on meanwhile.

    Raises:
        RunError: the directory holds no run.
    """
    told = list(read_journal(directory / "journal.jsonl"))
    if not told:
        raise RunError(no_run(directory))
    history = build_history(told)
    comparing = history.comparing
    metric = "" if comparing.searched is None else comparing.searched[0]
    histories: dict[str, list[Mapping[str, float]]] = {name: [] for name in history.jobs}
    for epoch in sorted(history.epochs, key=lambda each: each.epoch):
        histories[epoch.job].append(epoch.metrics)
    rows = [*_rows(history, histories, told)]
    rows += [_own_row(trial, metric) for trial in SearchRequests(directory).trials()]
    return Results(_even(rows), histories, comparing)


def _rows(
    history: RunHistory, histories: Mapping[str, list[Mapping[str, float]]], told: Iterable[Event]
) -> Iterator[Row]:
    """A row for each network, without the keys that it has no values for."""
    starts = {event.job: event for event in told if isinstance(event, Decided) and event.kind == "start"}
    checkpoints = {each.job: each.path for each in history.checkpoints}
    errors = {each.job: each.error for each in history.failures}
    seconds: dict[str, float] = {}
    for span in history.spans:
        seconds[span.job] = seconds.get(span.job, 0.0) + span.seconds
    for name, job in history.jobs.items():
        epochs, start = histories[name], starts.get(name)
        yield {
            "name": name,
            "status": job.status,
            **({} if start is None else {"trial": start.trial}),
            "epochs": len(epochs),
            **(epochs[-1] if epochs else {}),
            **({} if start is None else start.values),
            "parameters": job.told.parameters,
            "device_seconds": seconds.get(name, 0.0),
            "checkpoint": checkpoints.get(name),
            "error": errors.get(name),
        }


def _own_row(trial: OwnTrial, metric: str) -> Row:
    return {"name": f"own-{trial.number}", "status": trial.status, metric or "value": trial.value, **trial.values}


def _even(rows: list[Row]) -> list[Row]:
    """The rows with all keys that any of them has, in one order."""
    keys = dict.fromkeys([*_FIRST[:2], *(key for row in rows for key in row)])
    return [{key: row.get(key) for key in keys} for row in rows]
