"""What rank 0 prints: to a terminal that the process that started the ranks knows of, or to a log."""

from __future__ import annotations

import os
from pathlib import Path

from rich.console import Console
from rich.table import Table

from fleet.machine.binding import ranges
from fleet.machine.cluster_map import ClusterMap, Place
from fleet.machine.launch.launched import TERMINAL
from fleet.report.terminal import plain_table


def rank_console() -> Console:
    """A rank's standard output. Launchers may give ranks a pseudo-terminal that nobody sits at: only the process that
    started the ranks can say whether there is one, and how large.
    """
    size = os.environ.get(TERMINAL)
    if not size:
        return Console(force_terminal=False, width=120)
    columns, lines = (int(part) for part in size.split("x"))
    return Console(force_terminal=True, width=columns, height=lines)


def show_result(path: Path, skipped: int) -> None:
    """Print a run's result table, what became of its samples, and where the report is, which this writes."""
    from fleet.report.live import result_table
    from fleet.report.run_history import read_history
    from fleet.report.run_page import write_report
    from fleet.report.wording import per_read

    console = rank_console()
    history = read_history(path / "journal.jsonl")
    console.print(result_table(history))
    if told := per_read(history.samples):
        console.print(told, soft_wrap=True)
    if skipped:
        were = "sample was" if skipped == 1 else "samples were"
        console.print(f"{skipped:,} {were} skipped as corrupt; report and journal name them", soft_wrap=True)
    try:
        console.print(f"report: {write_report(path)}", soft_wrap=True)
    except OSError as error:  # it tells of the run and is no part of it
        what = f"{error.filename} cannot be written: {error.strerror}"
        console.print(f"{what}; `fleet report {path}` makes it", soft_wrap=True)


_MOST_ROWS = 2_000


def binding_table(cluster: ClusterMap) -> Table:
    """One row a rank: node, host, role, device, cores; of very many ranks the first."""
    shared = f": up to {cluster.members} trainers share a device" if cluster.members > 1 else ""
    table = plain_table(f"binding{shared}")
    for column in ("rank", "node", "host", "role", "device", "cores"):
        table.add_column(column, no_wrap=True)
    for place in cluster.places[:_MOST_ROWS]:
        table.add_row(*_row(cluster, place))
    if len(cluster.places) > _MOST_ROWS:
        table.caption = f"and {len(cluster.places) - _MOST_ROWS:,} ranks more"
    return table


def _row(cluster: ClusterMap, place: Place) -> tuple[str, ...]:
    known = ", ".join(word for word in (place.device_name, place.kind) if word)
    device = "-" if place.device is None else f"{place.device} ({known})"
    return str(place.rank), str(cluster.nodes.index(place.node)), place.host, place.role, device, ranges(place.cores)
