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
from fleet.journal.state import FINISHED, JobState, RunState
from fleet.report import wording
from fleet.report.colours import colour_of
from fleet.report.messages import epochs_text, message
from fleet.report.terminal import plain_table

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
