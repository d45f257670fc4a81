"""Promises under real compute: twelve networks with deadlines on three trainers, at rates that the run measures.

Four things are held: no promised network is late; where one turns slow in its middle, the others keep their promises
and its own is told to be broken within an epoch; likewise where a rank is lost; and `fleet add` promises what can be
kept, and refuses nothing else. The judge sees what came of it: a promised network trains; one that was refused is
added again with all the time it wants, and was refused rightly if it then ends past its deadline, or less than a tenth
before.
"""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.bars import Bar, bar
from benchmarks.rank_processes import end, ranks
from benchmarks.written_spec import write_spec
from fleet.journal.directory import RunDirectory
from fleet.journal.events import Admitted, Done, Epoch, Event, Failed, Job, Late
from fleet.journal.journal import read_journal

TRAINERS, NETWORKS, ADDED = 3, 12, 20
FIRST, BETWEEN = 20.0, 2.5
"""Seconds until the first network comes, in which all are measured, and mean seconds between arrivals."""
EPOCHS = (4, 10)
SLACK = (1.2, 8.0)
"""A deadline in multiples of the time on one device, as far as that is known before anything is measured."""
EPOCH_SECONDS, SLOW_SECONDS = 0.6, 0.15
PATIENCE, POLL = 900.0, 0.05
BORDER, SEEN = 0.1, 3
ADDED_SAMPLES = 2560
"""Of an epoch of those that are added: so a tenth of what they take is longer than a slot of the policy."""
POLICY = {"name": "elasticflow", "parameters": {"slot": 0.25}}


@dataclass
class Kept:
    """What became of a run's promises.

    Attributes:
        promised: networks, in the order in which they were.
        missed: those that were late.
        told: network -> when it was told that its promise cannot be kept, s.
        events: of the journal.
    """

    promised: list[str]
    missed: list[str]
    told: dict[str, float]
    events: Sequence[Event] = field(repr=False)


def main(repetitions: int = 0) -> dict[str, Any]:
    """Run the three ensembles, then add `repetitions` networks to a fourth run.

    Returns:
        {"bars": [...], "tables": [...]}.
    """
    with tempfile.TemporaryDirectory(prefix="fleet-deadlines-") as name:
        folder = Path(name)
        calm = _ensemble(folder / "calm", lambda run: None)
        slowed, slow, since = _slowed(folder / "slowed")
        lost = _ensemble(folder / "lost", _lose_a_rank)
        added = _added(folder / "added", repetitions or ADDED)
    right = sum(case.right for case in added)
    bars = [
        *_promise_bars(calm, slowed, slow, since, lost),
        bar("fleet add is right", right, str(len(added)), right == len(added)),
    ]
    return {"bars": bars, "tables": [_table(calm, slowed, slow, lost), _added_table(added)]}


@dataclass
class _Run:
    """A run under way."""

    out: Path
    process: subprocess.Popen[Any]

    def events(self) -> list[Event]:
        path = RunDirectory(self.out).journal
        return list(read_journal(path)) if path.exists() else []

    def wait_for(self, what: Callable[[list[Event]], Any]) -> Any:
        """Wait until something holds of the journal; returns it.

        RuntimeError if the run ends before.
        """
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if found := what(self.events()):
                return found
            if self.process.poll() is not None:
                break
            time.sleep(POLL)
        raise RuntimeError(f"{self.out}: what was waited for did not happen")

    @property
    def now(self) -> float:
        """Seconds of the run, by its newest line."""
        last = self.events()[-1]
        return last.t + time.time() - last.unix


def _ensemble(folder: Path, meanwhile: Callable[[_Run], Any]) -> Kept:
    """Train the networks; something may happen meanwhile. Seed path ("deadlines-live")."""
    folder.mkdir()
    draw, arrival, jobs = random.Random("deadlines-live"), FIRST, []
    for number in range(NETWORKS):
        epochs, workers = draw.randint(*EPOCHS), draw.choice((1, 2, 2, 4))
        name, due = f"net-{number:02}", epochs * workers * EPOCH_SECONDS * draw.uniform(*SLACK)
        arguments = {"samples": 640 * workers, "flag": str(folder / name), "seconds": SLOW_SECONDS}
        task = {"name": "benchmarks.timed_tasks:Steady", "arguments": arguments}
        jobs.append(_job(name, task, workers, epochs, arrival, due))
        arrival += draw.expovariate(1 / BETWEEN)
    run = _started(folder, jobs)
    try:
        meanwhile(run)
        run.process.wait(PATIENCE)
    finally:
        end(run.process)
    return _kept(run.out)


def _job(
    name: str, task: dict[str, Any], workers: int, epochs: int, arrival: float, due: float | None
) -> dict[str, Any]:
    deadline = {} if due is None else {"deadline": round(due, 2)}
    own = {"name": name, "task": task, "virtual_workers": workers, "batch_size": 16, "stop": {"epochs": epochs}}
    return {**own, "arrival": round(arrival, 2), **deadline}


def _started(folder: Path, jobs: list[dict[str, Any]]) -> _Run:
    resources = {"trainers": TRAINERS, "preprocessors": 1, "device": "cpu"}
    spec = {"name": "deadlines", "jobs": jobs, "resources": resources, "policy": POLICY}
    command = [sys.executable, "-m", "fleet", "run", str(write_spec(folder, spec)), "--out", str(folder / "out")]
    process = subprocess.Popen(command, stdout=sys.stderr, stderr=sys.stderr)
    return _Run(folder / "out", process)


def _kept(out: Path) -> Kept:
    events = list(read_journal(RunDirectory(out).journal))
    jobs = json.loads((out / "run.json").read_text())["jobs"]
    promised = list(dict.fromkeys(event.job for event in events if isinstance(event, Admitted)))
    missed = [name for name in promised if jobs[name]["promise"]["status"] != "kept"]
    told: dict[str, float] = {}
    for event in events:
        if isinstance(event, Late):
            told.setdefault(event.job, event.t)
    return Kept(promised, missed, told, events)


def _slowed(folder: Path) -> tuple[Kept, str, float]:
    """The same, with one promised network that turns slow while it trains; returns which, and when."""
    slow: list[tuple[str, float]] = []

    def slow_down(run: _Run) -> None:
        name = run.wait_for(_promised_that_trains)
        (folder / name).touch()
        slow.append((name, run.now))

    kept = _ensemble(folder, slow_down)
    return kept, *slow[0]


def _promised_that_trains(events: Sequence[Event]) -> str:
    """The first promised network that has trained two epochs and has two to go at least; empty if there is none."""
    epochs = {event.job: event.max_epochs or 0 for event in events if isinstance(event, Job)}
    promised = {event.job for event in events if isinstance(event, Admitted)}
    at_work = (e for e in events if isinstance(e, Epoch) and e.job in promised)
    return next((e.job for e in at_work if 2 <= e.epoch <= epochs[e.job] - 2), "")


def _lose_a_rank(run: _Run) -> None:
    """Kill a trainer once a promised network trains."""
    run.wait_for(_promised_that_trains)
    ranks(run.process)[-1].kill()


def _promise_bars(calm: Kept, slowed: Kept, slow: str, since: float, lost: Kept) -> list[Bar]:
    others = [name for name in slowed.missed if name != slow]
    ends = [e.t for e in slowed.events if isinstance(e, Epoch) and e.job == slow and e.t > since]
    told = slowed.told.get(slow, math.inf)
    within = slow not in slowed.missed or told <= (ends[1] if len(ends) > 1 else math.inf)  # the first slow epoch's end
    untold = [name for name in lost.missed if name not in lost.told]
    return [
        bar("networks promised", len(calm.promised), ">= 4", len(calm.promised) >= 4),
        bar("promised networks that were late", len(calm.missed), "0", not calm.missed),
        bar("one network slowed: others that were late", len(others), "0", not others),
        bar("its promise kept, or told to be broken within an epoch", float(within), "1", within),
        bar("a rank lost: promises that were broken without a word", len(untold), "0", not untold),
    ]


@dataclass(frozen=True)
class _Added:
    """A network that was offered to a run.

    Attributes:
        due: s after it came.
        promised: the verdict.
        seconds: when it ended, s after it came; of one that was refused, when the same network did that came right
            after, and had all the time it wanted.
    """

    due: float
    promised: bool
    seconds: float

    @property
    def right(self) -> bool:
        """A promise was kept; a refusal was of what could not have been kept, or by less than a tenth."""
        return self.seconds <= self.due if self.promised else self.due < (1 + BORDER) * self.seconds


def _added(folder: Path, count: int) -> list[_Added]:
    """Add networks to a run, one after another; deadlines lie a tenth away from what such ones took first, or more."""
    folder.mkdir()
    task = {"name": "benchmarks.timed_tasks:Steady", "arguments": {"samples": ADDED_SAMPLES}}
    others = [_job(f"other-{number}", task, 2, 5000, 0.0, None) for number in range(2)]
    run, draw, found = _started(folder, others), random.Random("deadlines-live/added"), list[_Added]()
    try:
        run.wait_for(lambda events: [event for event in events if isinstance(event, Epoch)])
        border = {epochs: median(_free(run, folder, task, epochs, str(n)) for n in range(SEEN)) for epochs in (6, 12)}
        print(f"ends with time enough {border}", file=sys.stderr, flush=True)
        for number in range(count):
            epochs = draw.choice(sorted(border))
            factor = draw.choice((draw.uniform(0.3, 1 - BORDER), draw.uniform(1 + BORDER, 2.5)))
            due, name = factor * border[epochs], f"added-{number:02}"
            promised = _add(run, folder, _job(name, task, 1, epochs, 0.0, due))
            seconds = _seconds(run, name) if promised else _free(run, folder, task, epochs, name)
            found.append(_Added(due, promised, seconds))
            print(f"{name}: {found[-1]}", file=sys.stderr, flush=True)
    finally:
        end(run.process)
    return found


def _free(run: _Run, folder: Path, task: dict[str, Any], epochs: int, like: str) -> float:
    """From when such a network is taken in to its end, s, where it has all the time it wants."""
    name = f"free-{epochs}-{like}"
    if not _add(run, folder, _job(name, task, 1, epochs, 0.0, PATIENCE)):
        raise RuntimeError(f"{name} was not promised {PATIENCE} s")
    return _seconds(run, name)


def _seconds(run: _Run, name: str) -> float:
    """From when a network was taken in to its end, s."""
    (end_,) = run.wait_for(partial(_ends, job=name))
    came = next(event.t for event in run.events() if isinstance(event, Job) and event.job == name)
    return float(end_ - came)


def _ends(events: list[Event], job: str) -> list[float]:
    return [event.t for event in events if isinstance(event, (Done, Failed)) and event.job == job]


def _add(run: _Run, folder: Path, job: dict[str, Any]) -> bool:
    """Offer it to the run; returns the verdict."""
    path = folder / f"{job['name']}.json"
    path.write_text(json.dumps(job))
    command = [sys.executable, "-m", "fleet", "add", str(run.out), str(path)]
    return subprocess.run(command, stdout=sys.stderr, stderr=sys.stderr, timeout=PATIENCE).returncode == 0


def _table(calm: Kept, slowed: Kept, slow: str, lost: Kept) -> dict[str, Any]:
    rows = [
        [name, len(kept.promised), len(kept.missed), ", ".join(f"{job} at {t:.1f} s" for job, t in kept.told.items())]
        for name, kept in {"nothing happens": calm, f"{slow} turns slow": slowed, "a rank is lost": lost}.items()
    ]
    columns = ["run", "promised, of 12", "late", "told that it will be late"]
    return {"title": f"{NETWORKS} networks on {TRAINERS} trainers", "columns": columns, "rows": rows}


def _added_table(added: list[_Added]) -> dict[str, Any]:
    rows = [[round(case.due, 2), case.promised, round(case.seconds, 2), case.right] for case in added]
    columns = ["deadline, s", "promised", "its end, or that of the same one with time enough, s", "right"]
    return {"title": "fleet add", "columns": columns, "rows": rows}
