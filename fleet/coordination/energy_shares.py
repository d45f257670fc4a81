"""Shares what hosts' counters of energy say out to the jobs that held their devices in that time."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from fleet.coordination.protocol import EnergyRead
from fleet.journal import events

PACE_SECONDS = 2.0  # between two readings of a host, at least
READINGS_A_SECOND = 50  # that rank 0 hears at most, of all hosts together
WRITE_SECONDS = 10.0  # between two lines of the journal, at least
NETWORKS_A_SECOND = 4  # that lines tell of at most: a day's are less than 10 MB


class EnergyBooks(Protocol):
    """What is told of energy."""

    def record(self, event: events.Event) -> None: ...


class EnergyShares:
    """A counter's joules between two readings belong to each job by the part of its devices' time that the job held.

    Args:
        readers: the ranks that read their hosts' counters.
        ask: asks the keepers of these ranks for a reading.
        books: write events of the journal.
        clock: seconds.
    """

    def __init__(
        self, readers: Iterable[int], ask: Callable[[Iterable[int]], object], books: EnergyBooks,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._ask, self._books, self._clock = ask, books, clock
        self._readers = set(readers)
        self._pace = max(PACE_SECONDS, len(self._readers) / READINGS_A_SECOND)
        self._asked: frozenset[int] = frozenset()
        self._holders: dict[int, tuple[str, float]] = {}  # device -> the job that holds it, since when
        self._held: dict[int, dict[str, float]] = defaultdict(dict)  # device -> job -> seconds since its last reading
        self._jobs: dict[str, float] = defaultdict(float)  # joules that no line tells yet
        self._idle = 0.0
        self._sources: set[str] = set()
        self._next = self._written = clock()

    @property
    def awaited(self) -> frozenset[int]:
        """Ranks that were asked and have not answered."""
        return self._asked

    def began(self, job: str, devices: Sequence[int]) -> None:
        """A group holds these devices from now on."""
        now = self._clock()
        self._holders.update(dict.fromkeys(devices, (job, now)))

    def ended(self, job: str, devices: Sequence[int]) -> None:
        """It has left them."""
        for device in devices:
            if self._holders.get(device, ("", 0.0))[0] == job:
                self._settle(device, self._clock())
                del self._holders[device]

    def ask_if_due(self) -> None:
        """Ask the hosts that have answered the last time, if that was long enough ago."""
        if self._clock() >= self._next:
            self.ask()

    def ask(self) -> None:
        """Ask them now; one that has not answered yet is not asked again: its driver may be stuck."""
        asked = self._readers - self._asked
        self._next = self._clock() + self._pace
        if asked:
            self._asked |= asked
            self._ask(sorted(asked))

    def take(self, word: EnergyRead) -> None:
        """A host has answered."""
        self._asked -= {word.rank}
        if word.gone:
            text = (
                f"energy of {word.host} by {', '.join(word.gone)} cannot be read any more: figures miss it from now on"
            )
            self._books.record(events.Warned(text=text))
        if not word.sources:
            self._readers.discard(word.rank)
        self._sources.update(word.sources)
        now = self._clock()
        counted = {device for devices in word.devices for device in devices}
        for device in counted:
            self._settle(device, now)
        for devices, joules in zip(word.devices, word.joules):
            self._share(devices, joules, word.seconds)
        for device in counted:
            self._held.pop(device, None)
        if now >= self._written + max(WRITE_SECONDS, len(self._jobs) / NETWORKS_A_SECOND):
            self.write()

    def write(self) -> None:
        """Tell the journal what it does not know yet."""
        self._written = self._clock()
        if self._sources and (self._jobs or self._idle):
            jobs = {job: round(joules, 3) for job, joules in self._jobs.items()}
            self._books.record(
                events.Energy(jobs=jobs, idle=round(self._idle, 3), sources=tuple(sorted(self._sources)))
            )
            self._jobs.clear()
            self._idle = 0.0

    def _settle(self, device: int, now: float) -> None:
        """Count the time until now to the job that holds a device."""
        if device in self._holders:
            job, since = self._holders[device]
            held = self._held[device]
            held[job] = held.get(job, 0.0) + now - since
            self._holders[device] = (job, now)

    def _share(self, devices: Sequence[int], joules: float, seconds: float) -> None:
        parts: dict[str, float] = defaultdict(float)
        for device in devices:
            for job, held in self._held.get(device, {}).items():
                parts[job] += held
        whole = max(len(devices) * seconds, sum(parts.values()))  # clocks of hosts and messages differ a little
        for job, part in parts.items():
            self._jobs[job] += joules * part / whole
        self._idle += joules * (1 - sum(parts.values()) / whole) if whole > 0 else joules
