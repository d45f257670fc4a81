"""`fleet best`: which networks of a run are the best, and where their checkpoints are."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fleet.commands.arguments import AsJson, RunFolder
from fleet.commands.ending import mendable
from fleet.report.terminal import plain_table

if TYPE_CHECKING:
    from fleet.journal.metric_order import MetricOrder
    from fleet.models.members import Members

_SECONDS_IN_AN_HOUR = 3600.0
COLUMNS = ("job", "status", "metric", "value", "epoch", "parameters", "device_hours", "checkpoint", "checkpoint_epoch")

_Top = Annotated[int | None, typer.Option(min=1, help="how many networks to list; default: all", show_default=False)]
_Metric = Annotated[
    str | None,
    typer.Option(
        help="by which networks are compared; default: that of the search, else of checkpoints.best, else the one at "
        "which networks stop, else accuracy, else the held-out loss, else the loss",
        show_default=False,
    ),
]
_Better = Annotated[
    str | None,
    typer.Option(
        help="whether more or less of the metric is better, higher or lower, where nobody declares it; default: as the "
        "run's journal says",
        show_default=False,
    ),
]
_AsCsv = Annotated[bool, typer.Option("--csv", help="print comma-separated values, a line for each network")]


def best(
    directory: RunFolder, top: _Top = None, metric: _Metric = None, better: _Better = None, as_csv: _AsCsv = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """List a run's networks, the best first, each by the best value that a metric had after one of its epochs.

    By the metric of a search, each by its last value, as the search compares them.

    Reads only, also while the run goes on. Exit codes: 0, or 2 if there is nothing to list.
    """
    from fleet.journal.metric_order import HIGHER, LOWER
    from fleet.models.errors import HarvestError
    from fleet.models.members import read_members
    from fleet.spec import SpecError

    with mendable(HarvestError, SpecError):
        if better not in (None, HIGHER, LOWER):
            raise HarvestError(f"--better {better}: it is higher or lower")
        members = read_members(directory)
        rows = list(_rows(members, members.order(metric, better), top))
    if as_json:
        print(json.dumps(rows, indent=1))
    elif as_csv:
        writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    else:
        _print_table(rows)


def _rows(members: Members, order: MetricOrder, top: int | None) -> Iterator[dict[str, Any]]:
    """One row for each network, with all COLUMNS; what is not known is None."""
    from fleet.models.members import epoch_of, parameter_count

    for member, found in members.ranked(order)[:top]:
        path = member.checkpoint_of(found.epoch) or member.newest
        values = (
            member.name, member.status, order.metric, found.value, found.epoch, path and parameter_count(path),
            round(member.device_seconds / _SECONDS_IN_AN_HOUR, 6), path and str(path), path and epoch_of(path),
        )  # fmt: skip
        yield dict(zip(COLUMNS, values))


def _print_table(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.text import Text

    from fleet.report import wording

    table = plain_table()
    metric = rows[0]["metric"]
    for title in ("network", "status", wording.metric_title(metric).lower(), "epoch", "parameters", "device-hours"):
        table.add_column(title, justify="left" if title in ("network", "status") else "right", no_wrap=True)
    table.add_column("checkpoint", overflow="fold")
    for row in rows:
        parameters = "" if row["parameters"] is None else f"{row['parameters']:,}"
        table.add_row(
            Text(wording.printable(row["job"])), row["status"], wording.metric(metric, row["value"]), str(row["epoch"]),
            parameters, f"{row['device_hours']:.4f}", Text(_where(row)),
        )  # fmt: skip
    Console().print(table)


def _where(row: dict[str, Any]) -> str:
    """The checkpoint's path, and of which epoch it is where that is not the best one."""
    if row["checkpoint"] is None:
        return "none yet"
    other = row["checkpoint_epoch"] != row["epoch"]
    return row["checkpoint"] + (f" (of epoch {row['checkpoint_epoch']})" if other else "")
