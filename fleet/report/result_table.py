"""The table that stands on the terminal when a run has ended."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table
from rich.text import Text

from fleet.journal.state import EnergyTotals
from fleet.report import wording
from fleet.report.costs import RunCosts, run_costs
from fleet.report.history import RunHistory
from fleet.report.live import STATUS_STYLES
from fleet.report.results import JobResult, best_network, job_results, metric_names
from fleet.report.terminal import ruled_table

_MOST_METRICS = 4


def result_table(history: RunHistory) -> Table:
    """One row a network: status, epochs, metrics, device-seconds, cost and energy where they are known, why it stopped.

    The best network is bold.
    """
    results, costs = job_results(history), run_costs(history)
    best = best_network(history)
    metrics = metric_names(results)[:_MOST_METRICS]
    table = ruled_table(caption=_caption(history, results, costs), header_style="dim")
    table.add_column("network", overflow="fold")
    table.add_column("status", no_wrap=True)
    further = [*(["cost"] if costs else []), *(["energy"] if history.energy else [])]
    titles = (*(wording.metric_title(name).lower() for name in metrics), "device-seconds", *further)
    for title in ("epochs", *titles):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("why it stopped", overflow="fold")
    for result in results:
        is_best = best is not None and best.job == result.job.name
        table.add_row(*_cells(result, metrics, costs, history.energy), style="bold" if is_best else "")
    if history.ensemble:
        table.add_section()
        table.add_row(*_together(history.ensemble, metrics, len(further)), style="bold")
    return table


def _together(figures: Mapping[str, float], metrics: tuple[str, ...], further: int) -> tuple[str, ...]:
    """The row of all networks together."""
    own = (wording.metric(name, figures[name]) if name in figures else "" for name in metrics)
    return ("all together", "", "", *own, "", *[""] * further, wording.figures_together(figures, metrics))


def _cells(
    result: JobResult, metrics: tuple[str, ...], costs: RunCosts | None, energy: EnergyTotals
) -> tuple[Text, ...]:
    limit = f"/{result.job.told.max_epochs}" if result.job.told.max_epochs else ""
    return (
        Text(wording.printable(result.job.name)),
        Text(result.status, style=STATUS_STYLES.get(result.status, "")),
        Text(f"{result.epochs}{limit}"),
        *(Text(wording.metric(name, result.metrics.get(name))) for name in metrics),
        Text(f"{result.device_seconds:,.1f}"),
        *([Text(wording.cost(costs.jobs[result.job.name]))] if costs else []),
        *([Text(wording.energy(energy.jobs.get(result.job.name)))] if energy else []),
        Text(wording.printable(wording.WHY.get(result.why, result.why)) or "-"),
    )


def _caption(history: RunHistory, results: tuple[JobResult, ...], costs: RunCosts | None) -> Text:
    done = sum(result.status == "done" for result in results)
    failed = sum(result.status == "failed" for result in results)
    parts = [f"{done} of {wording.plural(len(results), 'network')} done"]
    parts += [f"{failed} failed"] if failed else []
    parts += [f"{wording.duration(history.wall)} on {wording.plural(len(history.devices), 'device')}"]
    parts += [f"cost {wording.cost(costs.used)}, {wording.cost(costs.held)} with idle devices"] if costs else []
    if history.energy:
        parts += [f"{wording.energy(history.energy.used)}, {wording.energy(history.energy.idle)} more as devices idled"]
    return Text(", ".join(parts))
