"""kill -9 of random ranks at random moments: runs end, nothing that was saved is lost, and no bit tells of it.

Any rank is hit: those after whose loss the others go on in place, and those after which all are started again. Two
fifths of the kills are aimed: at ranks that start, at groups that form, at checkpoints that are being written.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.bars import bar
from benchmarks.rank_processes import end, ranks
from benchmarks.written_spec import write_spec
from fleet.run_directory.journal import read_journal

ROOT = Path(__file__).resolve().parents[1]
KILLS = 200
MOMENTS = (
    ("start", "any", "any", "any"),
    ("any", "forming", "any", "forming"),
    ("any", "checkpoint", "any", "checkpoint"),
)
"""When ranks of a run are killed, one kind of run after the other."""
SILENT_SECONDS = 150.0  # a run that gets no further for so long hangs; slow machines need minutes for the whole
POLL_SECONDS = 0.005
DONE, STOPPED = 0, 75
RESTARTS = 20  # kills while ranks start leave no checkpoint between them

PAUSE = 0.4  # most seconds between two kills, for each second of a run that nobody disturbs
EPOCHS = {"early": 16, "middle": 32, "late": 48}
"""Networks that end one after the other, so that groups are formed anew."""


def main(kills: int = 0) -> dict[str, Any]:
    """Kill so many ranks; returns the bars."""
    wanted = kills or KILLS
    with tempfile.TemporaryDirectory(prefix="fleet-chaos-") as name:
        folder = Path(name)
        spec = _write_spec(folder)
        calm = _Run(spec, folder / "calm")
        seconds = calm.played((), random.Random(0), 0.0)
        if calm.code != DONE:
            raise RuntimeError(f"the run that nobody disturbs ended with {calm.code}:\n{calm.output}")
        runs = _disturbed(spec, folder, wanted, seconds)
        return _judged(runs, calm, seconds, wanted)


def _disturbed(spec: Path, folder: Path, kills: int, seconds: float) -> list[_Run]:
    """Runs with some kills each, until there were as many as wanted; seed path ("chaos", run)."""
    runs: list[_Run] = []
    while (left := kills - sum(len(run.killed) for run in runs)) > 0:
        index = len(runs)
        run = _Run(spec, folder / f"run-{index}")
        run.played(MOMENTS[index % len(MOMENTS)][:left], random.Random(f"chaos/{index}"), seconds)
        _say(f"run {index}: code {run.code}, killed {', '.join(run.killed) or 'nobody'}; lost {run.lost or 'nothing'}")
        runs.append(run)
        if index > 3 * kills:
            break  # every run ends before it is hit: the bar of kills says so
    return runs


def _judged(runs: list[_Run], calm: _Run, seconds: float, wanted: int) -> dict[str, Any]:
    hung = sum(run.hung for run in runs)
    badly = [run for run in runs if run.code not in (DONE, STOPPED)]
    differences = [found for run in runs if run.code == DONE and (found := run.difference(calm))]
    lost = sum(len(run.lost) for run in runs)
    moments = Counter(kill for run in runs for kill in run.killed)
    rows = [[moment, count] for moment, count in sorted(moments.items())]
    notes = [f"undisturbed, a run takes {seconds:.1f} s, with 3 networks on 3 trainers and 2 preprocessors"]
    notes += differences
    notes += [f"ended with {run.code}:\n{run.output[-3000:]}" for run in badly]
    return {
        "bars": [
            bar("ranks killed", sum(moments.values()), str(wanted), sum(moments.values()) == wanted),
            bar("runs that hang", hung, "0", hung == 0),
            bar("runs that end neither done nor with 75", len(badly), "0", not badly),
            bar("runs with other final bits", len(differences), "0", not differences),
            bar("acknowledged checkpoints lost", lost, "0", lost == 0),
        ],
        "tables": [{"title": f"kills in {len(runs)} runs", "columns": ["moment", "kills"], "rows": rows}],
        "notes": notes,
    }


@dataclass
class _Run:
    """One run of the ensemble, and what was done to it.

    Attributes:
        killed: the moments at which a rank was killed.
    """

    spec: Path
    out: Path
    code: int | None = None
    output: str = ""
    killed: list[str] = field(default_factory=list)
    hung: bool = False
    _known: list[int] = field(default_factory=list)  # events of the journal at each kill

    def played(self, moments: Sequence[str], draw: random.Random, seconds: float) -> float:
        """Start the run, kill ranks at these moments, see it to its end; returns the seconds that it took."""
        command = [sys.executable, "-m", "fleet", "run", str(self.spec), "--out", str(self.out)]
        begin = time.monotonic()
        with open(self.out.with_suffix(".log"), "w+") as log:
            process = subprocess.Popen(
                [*command, "--restarts", str(RESTARTS)], stdout=log, stderr=subprocess.STDOUT, cwd=ROOT
            )
            try:
                for moment in moments:
                    self._strike(process, moment, draw, seconds)
                self.code = self._end_of(process)
            finally:
                self.hung = self.code is None
                end(process)
            log.seek(0)
            self.output = log.read()
        return time.monotonic() - begin

    @property
    def lost(self) -> list[str]:
        """Jobs that did not go on from a checkpoint of which the journal had told before a kill."""
        events, found = list(self._journal()), []
        for known in self._known:
            saved = _saved(events[:known])
            starts = _first_starts(events[known:])
            found += [job for job, place in starts.items() if place < saved.get(job, (0, 0))]
        return found

    def difference(self, other: _Run) -> str:
        """What `fleet compare` says of the jobs' states; empty if they are the same."""
        command = [sys.executable, "-m", "fleet", "compare", str(self.out), str(other.out)]
        done = subprocess.run(command, capture_output=True, timeout=120, text=True)
        return "" if done.returncode == 0 else f"{self.out.name}: {done.stdout[-1500:]}{done.stderr[-1500:]}"

    def _end_of(self, process: subprocess.Popen[bytes]) -> int | None:
        """Wait for the run's end; None if it falls silent before."""
        events, since = self._events(), time.monotonic()
        while time.monotonic() - since < SILENT_SECONDS:
            with suppress(subprocess.TimeoutExpired):
                return process.wait(timeout=1.0)
            if (now := self._events()) > events:
                events, since = now, time.monotonic()
        return None

    def _strike(self, process: subprocess.Popen[bytes], moment: str, draw: random.Random, seconds: float) -> None:
        """Wait for the moment, and kill one of the ranks that live then; nobody, if the run ends before."""
        before = self._events()
        if not self._await(process, moment, before, draw.uniform(0, PAUSE * seconds)):
            return
        alive = ranks(process)
        if not alive:
            return
        known = self._events()
        with suppress(psutil.NoSuchProcess):
            draw.choice(alive).kill()
            self.killed.append(moment)
            self._known.append(known)

    def _await(self, process: subprocess.Popen[bytes], moment: str, before: int, pause: float) -> bool:
        """Wait for a moment; False if the run ends before it."""
        until, late = time.monotonic() + pause, time.monotonic() + SILENT_SECONDS
        while process.poll() is None and time.monotonic() < late:  # a run that hangs is found out at its end
            if moment == "any" and time.monotonic() > until:
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
        return any(event["event"] == kind for event in list(self._journal())[before:])

    def _events(self) -> int:
        return len(list(self._journal()))

    def _journal(self) -> Iterator[dict[str, Any]]:
        path = self.out / "journal.jsonl"
        return iter(read_journal(path)) if path.exists() else iter(())  # type: ignore[arg-type]


def _saved(events: list[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    """The newest checkpoint of each job that the journal tells of: epoch, and step in it."""
    return {event["job"]: (event["epoch"], event["step"]) for event in events if event["event"] == "checkpoint"}


def _first_starts(events: list[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    """Job -> epoch and step from which it first went on."""
    starts: dict[str, tuple[int, int]] = {}
    for event in events:
        if event["event"] == "started":
            starts.setdefault(event["job"], (event["epoch"], event["step"]))
    return starts


def _write_spec(folder: Path) -> Path:
    rates = {name: {1: 4e5, 2: 7.6e5, 3: 1.1e6} for name in EPOCHS}  # so high that both preprocessors are used
    spec = {
        "name": "chaos",
        "data": {"clouds": {"train": {"source": "benchmarks.clouds:Clouds", "arguments": {"count": 480}}}},
        "defaults": {
            "data": "clouds",
            "model": {"name": "trainers.zoo:MLP", "arguments": {"inputs": 16, "widths": [64], "classes": 3}},
            "optimizer": {"name": "AdamW", "arguments": {"lr": 0.01}},
            "loss": "cross_entropy",
            "virtual_workers": 3,
            "batch_size": 4,
        },
        "jobs": [{"name": name, "stop": {"epochs": epochs}} for name, epochs in EPOCHS.items()],
        "resources": {"trainers": 3, "preprocessors": 2, "device": "cpu"},
    }
    return write_spec(folder, spec, rates)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
