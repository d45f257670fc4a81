"""Where a run stands, folded from its events as they come; what the live views show."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any

from fleet.report.promises import Promises
from fleet.run_directory.journal import JournalLine

FINISHED = ("done", "failed")
_STATUS = {"halted": "stopped", "pruned": "stopped", "taken_up": "pending"}  # after a line of the journal


@dataclass
class NetworkProgress:
    """One network; `epochs` counts finished ones, and `place` the networks that were known before it."""

    name: str
    status: str = "pending"
    devices: tuple[int, ...] = ()
    epochs: int = 0
    max_epochs: int | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    rate: float | None = None
    place: int = 0


class RunProgress:
    """The state that the events so far add up to. `total`: how many networks the run has, as far as is known yet."""

    def __init__(self, total: int = 0) -> None:
        self.total = total
        self.networks: dict[str, NetworkProgress] = {}
        self._having: defaultdict[str, dict[str, NetworkProgress]] = defaultdict(dict)  # status -> those that have it
        self.devices = 0
        self.held: dict[int, str] = {}
        self.flotilla: int | None = None
        self.phase = "starting"
        self.ended = False
        self.seconds = 0.0
        self.promise_told = ""  # by the last event
        self._promises = Promises()
        self.messages: deque[str] = deque(maxlen=100)
        self._kinds = {
            "cluster": self._cluster,
            "job": self._job,
            "profile": self._profile,
            "planned": self._planned,
            "started": self._started,
            "epoch": self._epoch,
            **dict.fromkeys(("stopped", "paused", "pruned"), self._left),
            "halted": self._left,
            "taken_up": self._left,
            "done": self._left,
            "failed": self._left,
            "ended": self._ended,
        }

    def apply(self, event: JournalLine) -> None:
        """Take one event; unknown kinds are passed over."""
        self.seconds = max(self.seconds, float(event.get("t") or 0.0))
        self.promise_told = self._promises.told(event)
        kind = event.get("event")
        if kind in self._kinds:
            self._kinds[kind](event)

    def recall(self, results: Mapping[str, Mapping[str, Any]]) -> None:
        """Take over how networks stand after earlier sessions: their entries in run.json, by name."""
        for name, result in results.items():
            network = self.network({"job": name})
            self._become(network, str(result["status"]))
            network.epochs = int(result["epochs"])
            network.metrics.update(result["metrics"] or {})

    def network(self, event: JournalLine) -> NetworkProgress:
        """The event's network, made known if it was not."""
        name = str(event.get("job", ""))
        if name not in self.networks:
            network = self.networks[name] = NetworkProgress(name, place=len(self.networks))
            self._having[network.status][name] = network
            self.total = max(self.total, len(self.networks))
        return self.networks[name]

    def count(self, *statuses: str) -> int:
        """How many networks have one of `statuses`."""
        return sum(len(self._having[status]) for status in statuses)

    def having(self, status: str, most: int) -> list[NetworkProgress]:
        """The networks of a status, as they came, at most so many."""
        return nsmallest(most, self._having[status].values(), key=lambda network: network.place)

    def _cluster(self, event: JournalLine) -> None:
        self.devices = sum(int(devices) for devices in event.get("devices_per_node", ()))

    def _job(self, event: JournalLine) -> None:
        epochs = event.get("max_epochs")
        self.network(event).max_epochs = None if epochs is None else int(epochs)

    def _profile(self, event: JournalLine) -> None:
        self.network(event)
        self.phase = "profiling"

    def _planned(self, event: JournalLine) -> None:
        self.flotilla = int(event.get("round") or 0)
        self.phase = "training"

    def _started(self, event: JournalLine) -> None:
        network = self.network(event)
        self._release(network)
        self._become(network, "running")
        self.phase = "training"
        network.devices = tuple(int(device) for device in event.get("devices", ()))
        network.epochs = int(event.get("epoch") or 0)
        self.held.update(dict.fromkeys(network.devices, network.name))

    def _epoch(self, event: JournalLine) -> None:
        network = self.network(event)
        network.epochs += 1
        network.metrics.update(event.get("metrics") or {})
        network.rate = event.get("rate")

    def _left(self, event: JournalLine) -> None:
        network = self.network(event)
        self._release(network)
        kind = str(event["event"])
        self._become(network, _STATUS.get(kind, kind))
        network.rate = None
        network.metrics.update(event.get("metrics") or {})

    def _ended(self, event: JournalLine) -> None:
        self.phase, self.ended = str(event.get("status", "done")), True

    def _become(self, network: NetworkProgress, status: str) -> None:
        del self._having[network.status][network.name]
        network.status = status
        self._having[status][network.name] = network

    def _release(self, network: NetworkProgress) -> None:
        for device in network.devices:
            if self.held.get(device) == network.name:
                del self.held[device]
        network.devices = ()
