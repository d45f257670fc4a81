"""What the networks of a run came to, as rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet.report.history import build_history
from fleet.report.records import RunHistory
from fleet.run.program_errors import RunError
from fleet.run_directory.journal import JournalLine, read_journal
from fleet.run_directory.near_runs import no_run
from fleet.run_directory.search_wishes import OwnTrial, SearchWishes

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
        metric: of the run's search; "": there is none.
        maximise: whether more of it is better.
    """

    rows: list[Row]
    histories: Mapping[str, list[Mapping[str, float]]]
    metric: str = ""
    maximise: bool = False

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

    def best(self, metric: str | None = None) -> Row:
        """The row whose metric is best (of equal ones the first).

        Args:
            metric: its name; None: that of the search, else accuracy, else the held-out loss, else the loss.

        Raises:
            RunError: no network has it.
        """
        wanted = metric or self.metric or next((key for key in ("accuracy", "test_loss", "loss") if self._has(key)), "")
        found = [row for row in self.rows if row.get(wanted) is not None and row["status"] != "failed"]
        if not found:
            raise RunError(f"no network has a metric {wanted!r}; the columns are {', '.join(self.to_dict())}")
        sign = -1.0 if self._maximises(wanted) else 1.0
        return min(found, key=lambda row: sign * float(row[wanted]))

    def _has(self, metric: str) -> bool:
        return any(row.get(metric) is not None for row in self.rows)

    def _maximises(self, metric: str) -> bool:
        if metric == self.metric:
            return self.maximise
        from trainers.convergence.convergence import lower_is_better  # loads torch

        return not lower_is_better(metric)


def read_results(directory: Path) -> Results:
    """Read what a run's networks came to; nothing is written, and it may go on meanwhile.

    Raises:
        RunError: the directory holds no run.
    """
    lines = list(read_journal(directory / "journal.jsonl"))
    if not lines:
        raise RunError(no_run(directory))
    history, bounds = build_history(lines), [line for line in lines if line["event"] == "bounds"]
    metric = str(bounds[-1].get("metric", "")) if bounds else ""
    histories: dict[str, list[Mapping[str, float]]] = {name: [] for name in history.jobs}
    for epoch in sorted(history.epochs, key=lambda each: each.epoch):
        histories[epoch.job].append(epoch.metrics)
    rows = [*_rows(history, histories, lines)]
    rows += [_own_row(trial, metric) for trial in SearchWishes(directory).trials()]
    return Results(_even(rows), histories, metric, bool(bounds) and bounds[-1].get("mode") == "max")


def _rows(
    history: RunHistory, histories: Mapping[str, list[Mapping[str, float]]], lines: Iterable[JournalLine]
) -> Iterator[Row]:
    """A row for each network, without the keys that it has no values for."""
    starts = {line["job"]: line for line in lines if line["event"] == "search" and line["kind"] == "start"}
    checkpoints = {each.job: each.path for each in history.checkpoints}
    errors = {each.job: each.error for each in history.failures}
    seconds: dict[str, float] = {}
    for span in history.spans:
        seconds[span.job] = seconds.get(span.job, 0.0) + span.seconds
    for name, job in history.jobs.items():
        outcome, epochs, start = history.outcomes.get(name), histories[name], starts.get(name)
        yield {
            "name": name,
            "status": "pending" if outcome is None else outcome.status,
            **({} if start is None else {"trial": start["trial"]}),
            "epochs": len(epochs),
            **(epochs[-1] if epochs else {}),
            **({} if start is None else start["values"]),
            "parameters": job.parameters,
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
