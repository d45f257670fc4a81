"""The table that stands on the terminal when a run has ended."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from fleet.report import wording
from fleet.report.live import STATUS_STYLES
from fleet.report.records import RunHistory
from fleet.report.results import JobResult, best_network, job_results, metric_names

_MOST_METRICS = 4


def result_table(history: RunHistory) -> Table:
    """One row a network: status, epochs, metrics, device-seconds, why it stopped; the best network is bold."""
    results = job_results(history)
    best = best_network(results)
    metrics = metric_names(results)[:_MOST_METRICS]
    table = Table(caption=_caption(history, results), caption_justify="left", header_style="dim")
    table.add_column("network", overflow="fold")
    table.add_column("status", no_wrap=True)
    for title in ("epochs", *(wording.metric_title(name).lower() for name in metrics), "device-seconds"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("why it stopped", overflow="fold")
    for result in results:
        is_best = best is not None and best.job == result.job.name
        table.add_row(*_cells(result, metrics), style="bold" if is_best else "")
    return table


def _cells(result: JobResult, metrics: tuple[str, ...]) -> tuple[Text, ...]:
    limit = f"/{result.job.max_epochs}" if result.job.max_epochs else ""
    return (
        Text(wording.printable(result.job.name)),
        Text(result.status, style=STATUS_STYLES.get(result.status, "")),
        Text(f"{result.epochs}{limit}"),
        *(Text(wording.metric(name, result.metrics.get(name))) for name in metrics),
        Text(f"{result.device_seconds:,.1f}"),
        Text(wording.printable(wording.WHY.get(result.why, result.why)) or "-"),
    )


def _caption(history: RunHistory, results: tuple[JobResult, ...]) -> Text:
    done = sum(result.status == "done" for result in results)
    failed = sum(result.status == "failed" for result in results)
    parts = [f"{done} of {wording.plural(len(results), 'network')} done"]
    parts += [f"{failed} failed"] if failed else []
    parts += [f"{wording.duration(history.wall)} on {wording.plural(len(history.devices), 'device')}"]
    return Text(", ".join(parts))
