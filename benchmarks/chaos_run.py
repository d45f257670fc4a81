"""One run of the ensemble of `benchmarks.chaos`, what is done to it, and what it left."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.chaos_scenes import Scene
from benchmarks.rank_processes import end, ranks
from fleet.journal.events import Checkpoint, Event, Started
from fleet.journal.journal import read_journal

ROOT = Path(__file__).resolve().parents[1]
SILENT_SECONDS = 150.0  # a run that gets no further for so long hangs; slow machines need minutes for the whole
POLL_SECONDS = 0.005
DONE, STOPPED = 0, 75
RESTARTS = 20  # kills while ranks start leave no checkpoint between them
STARTS = 4  # of the command, until the run is done: a full disk, or a host that is gone, ends it
PAUSE = 0.4  # most seconds between two faults, for each second of a run that nobody disturbs


@dataclass
class Run:
    """One run, and what was done to it.

    Attributes:
        scene: where it runs, and what happens to it there.
        codes: with which each start of the command ended; None: it hung.
        struck: the moments of the faults.
    """

    spec: Path
    scene: Scene
    codes: list[int | None] = field(default_factory=list)
    output: str = ""
    struck: list[str] = field(default_factory=list)
    _known: list[int] = field(default_factory=list)  # events of the journal at each fault

    @property
    def out(self) -> Path:
        return self.scene.out

    @property
    def hung(self) -> bool:
        return None in self.codes

    @property
    def done(self) -> bool:
        """Whether it came to its end, and each start before said how the next goes on."""
        return self.codes[-1:] == [DONE]

    def played(self, moments: Sequence[str], draw: random.Random, seconds: float) -> float:
        """Start the run, let the scene strike at these moments, see it to its end; returns the seconds that it took.

        Where a fault ends the run, the same command is started again, and meets the faults that are left.
        """
        begin, left = time.monotonic(), list(moments)
        while len(self.codes) < STARTS and not self.done and not self.hung:
            self.codes.append(self._start(left, draw, seconds))
        return time.monotonic() - begin

    def _start(self, left: list[str], draw: random.Random, seconds: float) -> int | None:
        """Start the command; returns its exit code, None if it hangs. Moments at which it was struck leave `left`."""
        command = [sys.executable, "-m", "fleet", "run", str(self.spec), "--out", str(self.out)]
        command = [*self.scene.launch, *command, "--restarts", str(RESTARTS)]
        with open(self.scene.folder / "output.log", "a+") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT, env=self.scene.environment
            )
            try:
                while left and process.poll() is None:
                    if not self._strike(process, left[0], draw, seconds):
                        break
                    left.pop(0)
                    if self.scene.ends_the_run:
                        break
                return self._end_of(process)
            finally:
                end(process)
                self.scene.mended()
                log.seek(0)
                self.output = log.read()

    @property
    def lost(self) -> list[str]:
        """Jobs that did not go on from a checkpoint of which the journal had told before a fault."""
        events, found = list(self._journal()), []
        for known in self._known:
            saved = _saved(events[:known])
            starts = _first_starts(events[known:])
            found += [job for job, place in starts.items() if place < saved.get(job, (0, 0))]
        return found

    def difference(self, other: Path) -> str:
        """What `fleet compare` says of the jobs' states and another run's; empty if they are the same."""
        command = [sys.executable, "-m", "fleet", "compare", str(self.out), str(other)]
        done = subprocess.run(command, capture_output=True, timeout=120, text=True)
        return "" if done.returncode == 0 else f"{self.out}: {done.stdout[-1500:]}{done.stderr[-1500:]}"

    def _end_of(self, process: subprocess.Popen[bytes]) -> int | None:
        """Wait for the run's end; None if it falls silent before."""
        events, since = self._events(), time.monotonic()
        while time.monotonic() - since < SILENT_SECONDS:
            with suppress(subprocess.TimeoutExpired):
                return process.wait(timeout=1.0)
            if (now := self._events()) > events:
                events, since = now, time.monotonic()
        return None

    def _strike(self, process: subprocess.Popen[bytes], moment: str, draw: random.Random, seconds: float) -> bool:
        """Wait for the moment, and let the scene strike; False if the run ends before, or there is nobody to hit."""
        before = self._events()
        if not self._await(process, moment, before, draw.uniform(0, PAUSE * seconds)):
            return False
        known = self._events()
        if not self.scene.strike(process, draw):
            return False
        self.struck.append(moment)
        self._known.append(known)
        return True

    def _await(self, process: subprocess.Popen[bytes], moment: str, before: int, pause: float) -> bool:
        """Wait for a moment; False if the run ends before it."""
        until, late = time.monotonic() + pause, time.monotonic() + SILENT_SECONDS
        while process.poll() is None and time.monotonic() < late:  # a run that hangs is found out at its end
            if moment == "any" and time.monotonic() > until and self._said("started", 0):
                return True
            if moment == "start" and time.monotonic() > until - pause / 2 and ranks(process):
                return True
            if moment == "forming" and self._said("started", before):
                return True
            if moment == "checkpoint" and (self._said("epoch", before) or any(self.out.glob("checkpoints/*/.*"))):
                return True
            time.sleep(POLL_SECONDS)
        return False

    def _said(self, kind: str, before: int) -> bool:
        return any(event.event == kind for event in list(self._journal())[before:])

    def _events(self) -> int:
        return len(list(self._journal()))

    def _journal(self) -> Iterator[Event]:
        return read_journal(self.out / "journal.jsonl")


def _saved(events: list[Event]) -> dict[str, tuple[int, int]]:
    """The newest checkpoint of each job that the journal tells of: epoch, and step in it."""
    return {event.job: (event.epoch, event.step) for event in events if isinstance(event, Checkpoint)}


def _first_starts(events: list[Event]) -> dict[str, tuple[int, int]]:
    """Job -> epoch and step from which it first went on."""
    starts: dict[str, tuple[int, int]] = {}
    for event in events:
        if isinstance(event, Started):
            starts.setdefault(event.job, (event.epoch, event.step))
    return starts
