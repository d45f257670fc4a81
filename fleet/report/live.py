"""The run as it goes: a live table on a terminal, plain lines elsewhere. Both take journal events and know no more."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fleet.journal.events import Event
from fleet.journal.state import FINISHED, EnergyTotals, JobState, RunState
from fleet.report import wording
from fleet.report.analysis import JobResult, RunCosts, best_network, job_results, metric_names, run_costs
from fleet.report.event_messages import epochs_text, message
from fleet.report.rendering import colour_of
from fleet.report.run_history import RunHistory
from fleet.report.terminal import plain_table, ruled_table

STATUS_STYLES = {
    "done": "green",
    "failed": "bold red",
    "running": "cyan",
    "stopped": "yellow",
    "paused": "blue",
    "pending": "dim",
}
_MESSAGES, _AROUND = 5, 9
_ORDER = ("running", "failed", "stopped", "done", "paused", "pending")


class PlainView:
    """One compact line for each event that a person wants; for logs and pipes."""

    def __init__(self, console: Console, total: int = 0) -> None:
        self._console = console
        self._state = RunState(total)

    def event(self, event: Event) -> None:
        """Take one journal event."""
        self._state.take(event)
        text = message(event, self._state)
        if text is not None:
            file = self._console.file  # its own printing takes a hundred times as long, and changes nothing here
            file.write(f"[{wording.duration(event.t):>9}] {text}\n")
            file.flush()

    def recall(self, results: Mapping[str, Mapping[str, Any]]) -> None:
        """As `RunState.recall`."""
        self._state.recall(results)

    def close(self) -> None:
        """Nothing is left to do."""


class LiveView:
    """A table that stays in place: networks, devices, flotilla, elapsed time, last messages.

    `total` is the number of networks where it is known before the journal names them; `clock` only moves the elapsed
    time between events. Networks that train are shown first; what does not fit on the screen is counted.
    """

    def __init__(self, console: Console, total: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._state = RunState(total)
        self._messages = deque[str](maxlen=_MESSAGES)
        self._heard = clock()
        self._lock = threading.Lock()  # the refreshing thread reads what events change
        self._live = Live(get_renderable=self._render, console=console, refresh_per_second=4, transient=True)
        self._live.start()

    def event(self, event: Event) -> None:
        """Take one journal event."""
        with self._lock:
            self._state.take(event)
            self._heard = self._clock()
            text = message(event, self._state)
            if text is not None:
                self._messages.append(f"{wording.duration(self._state.seconds):>9}  {text}")

    def recall(self, results: Mapping[str, Mapping[str, Any]]) -> None:
        """As `RunState.recall`."""
        with self._lock:
            self._state.recall(results)

    def close(self) -> None:
        """Take the table off the terminal; a second call does nothing."""
        self._live.stop()

    def _render(self) -> RenderableType:
        with self._lock:
            return Group(self._headline(), self._occupancy(), self._table(), self._last_messages())

    def _headline(self) -> Text:
        state = self._state
        elapsed = state.seconds + (0.0 if state.is_over else self._clock() - self._heard)
        flotilla = f"flotilla {state.round}" if state.round is not None else state.phase
        finished = f"{state.count('done')} of {state.total} done"
        failed = f", {state.count('failed')} failed" if state.count("failed") else ""
        return Text(f"{wording.duration(elapsed)}  {flotilla}  {finished}{failed}", style="bold")

    def _occupancy(self) -> Text:
        """One block a device, in its network's colour; as many as fit in a line."""
        state = self._state
        line = Text(f"devices {len(state.held)}/{state.devices_now} ", no_wrap=True, overflow="ellipsis")
        for device in range(state.devices_now):
            job = state.held.get(device)
            line.append("\u25a0" if job else "\u25a1", style=self._colour(state.jobs[job]) if job else "dim")
        return line

    def _table(self) -> Table:
        room = max(3, self._console.size.height - _MESSAGES - _AROUND)
        table = plain_table()
        table.add_column("network", overflow="ellipsis", no_wrap=True)
        table.add_column("status", no_wrap=True)
        for title in ("devices", "epoch", "accuracy", "loss", "samples/s"):
            table.add_column(title, justify="right", no_wrap=True)
        left = {}
        for status in _ORDER:
            networks = self._state.having(status, room)
            room, left[status] = room - len(networks), self._state.count(status) - len(networks)
            for network in networks:
                table.add_row(*_cells(network, self._colour(network)))
        if any(left.values()):
            table.add_row(Text(_rest(left), style="dim"))
        return table

    def _colour(self, network: JobState) -> str:
        return colour_of(network.place, len(self._state.jobs))

    def _last_messages(self) -> Text:
        lines = self._messages
        return Text("\n".join(("", *lines)), style="dim", overflow="ellipsis", no_wrap=True)


def view_for(console: Console, total: int = 0) -> LiveView | PlainView:
    """The live table where `console` is a terminal that can move its cursor, plain lines elsewhere."""
    capable = console.is_terminal and not console.is_dumb_terminal
    return LiveView(console, total) if capable else PlainView(console, total)


def _cells(network: JobState, colour: str) -> tuple[Text, ...]:
    loss = network.metrics.get("test_loss", network.metrics.get("loss"))
    return (
        Text(wording.printable(network.name), style=colour if network.status not in FINISHED else ""),
        Text(network.status, style=STATUS_STYLES.get(network.status, "")),
        Text(wording.devices(network.devices)),
        Text(epochs_text(network)),
        Text(wording.metric("accuracy", network.metrics.get("accuracy"))),
        Text(wording.metric("loss", loss)),
        Text(wording.rate(network.rate)),
    )


def _rest(counts: Mapping[str, int]) -> str:
    """... and 80 pending, 3 done."""
    return "... and " + ", ".join(f"{number} {status}" for status, number in counts.items() if number)


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
        table.add_row(*_result_cells(result, metrics, costs, history.energy), style="bold" if is_best else "")
    if history.ensemble:
        table.add_section()
        table.add_row(*_together(history.ensemble, metrics, len(further)), style="bold")
    return table


def _together(figures: Mapping[str, float], metrics: tuple[str, ...], further: int) -> tuple[str, ...]:
    """The row of all networks together."""
    own = (wording.metric(name, figures[name]) if name in figures else "" for name in metrics)
    return ("all together", "", "", *own, "", *[""] * further, wording.figures_together(figures, metrics))


def _result_cells(
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
