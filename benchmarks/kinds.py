"""Virtual workers dealt by speed against even blocks, on two trainers of which one has half of a core; and their bits.

The speeds truly differ: a neighbour's process computes on the core of the slow trainer. Both ways train the same
network, in runs that take turns; all of it is `fleet run` as a user starts it. Rank 0, which makes the samples, is on
the slow trainer's core, too.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from benchmarks.bars import Bar, bar, median_bar
from benchmarks.started_ranks import environment, on_cores
from benchmarks.unlike_tasks import Large, Small
from benchmarks.written_spec import write_spec
from fleet.journal.directory import RunDirectory
from fleet.journal.events import Epoch, Event, Started
from fleet.journal.journal import read_journal
from fleet.machine.launch.launched import DONE
from fleet.scheduling.easyscale.kind_curves import deal, turns

WORKERS = 4  # dealt 3 and 1 to devices of speeds 2 and 1: 3 turns instead of 4
REPETITIONS, EPOCHS, WARM_UP = 3, 10, 3
PATIENCE = 600.0
KINDS = {"whole": "0", "half": "1"}
SMALL = 12
LEAST_GAIN, LEAST_OF_IDEAL = 1.25, 0.97
BUSY = "while True: pass"


@dataclass(frozen=True)
class Trained:
    """What a run showed.

    Attributes:
        rate: samples/s, the median of its last epochs.
        shares: virtual workers of the fast and of the slow trainer in these.
        turn_seconds: of a virtual worker on each.
    """

    rate: float
    shares: tuple[int, ...]
    turn_seconds: tuple[float, float]

    @property
    def ratio(self) -> float:
        """How many times as fast the fast trainer is."""
        return self.turn_seconds[1] / self.turn_seconds[0]


def main(repetitions: int = 0) -> dict[str, Any]:
    """Measure and compare; `repetitions` of each way.

    Returns:
        {"bars": [...], "tables": [...]}.
    """
    with tempfile.TemporaryDirectory(prefix="fleet-kinds-") as folder:
        pairs = [_pair(Path(folder), number) for number in range(repetitions or REPETITIONS)]
        equal = _equal(Path(folder))
    return {"bars": [*speed_bars(pairs), *_bit_bars(equal)], "tables": [_table(pairs)]}


def speed_bars(pairs: list[tuple[Trained, Trained]]) -> list[Bar]:
    """The bars of pairs of runs, dealt by speed and even."""
    gains = [dealt.rate / even.rate for dealt, even in pairs]
    parts = [dealt.rate / best_rate(dealt) for dealt, _ in pairs]
    return [
        median_bar("throughput, of even blocks", gains, f">= {LEAST_GAIN}", median(gains) >= LEAST_GAIN),
        median_bar("throughput, of the best split's", parts, f">= {LEAST_OF_IDEAL}", median(parts) >= LEAST_OF_IDEAL),
    ]


def best_rate(run: Trained) -> float:
    """Samples/s of the best split by whole workers, if sums and updates cost nothing."""
    speeds = [1 / seconds for seconds in run.turn_seconds]
    return WORKERS * Large.batch_size / turns(deal(WORKERS, speeds), speeds)


def _pair(folder: Path, number: int) -> tuple[Trained, Trained]:
    """A run of each way; who goes first alternates."""
    ways = {"dealt": KINDS, "even": {}}
    found = {}
    with _busy(1):
        for way in sorted(ways, reverse=bool(number % 2)):
            found[way] = _speed(folder / f"{way}-{number}", ways[way])
    print(f"dealt {found['dealt']}, even {found['even']}", file=sys.stderr, flush=True)
    return found["dealt"], found["even"]


def _speed(folder: Path, kinds: Mapping[str, str]) -> Trained:
    """Train the large network on both trainers."""
    folder.mkdir()
    job = {"name": "large", "task": {"name": "benchmarks.unlike_tasks:Large"}, "stop": {"epochs": EPOCHS}}
    rates = None if kinds else {"large": {1: 100.0, 2: 190.0}}  # else one of the two would be left out
    spec = write_spec(folder, {**_ensemble("large", kinds), "jobs": [job]}, rates)
    _run(spec, folder / "run")
    return trained(list(read_journal(RunDirectory(folder / "run").journal)))


def trained(events: list[Event]) -> Trained:
    """What a journal tells of the last epochs of its only job."""
    epochs = [event for event in events if isinstance(event, Epoch)][WARM_UP:]
    shares = [event.shares or (WORKERS // 2,) * 2 for event in events if isinstance(event, Started)][-1]
    steps = Large.samples // (Large.batch_size * WORKERS)
    computed = [[float(seconds) for _, seconds in sorted(event.computed.items())] for event in epochs]
    fast, slow = (median(each[i] for each in computed) / steps / shares[i] for i in range(2))
    return Trained(median(event.rate or 0.0 for event in epochs), shares, (fast, slow))


def _equal(folder: Path) -> list[bool]:
    """Train the small networks together on both kinds, and each under stock DDP: whose bits are equal."""
    own = {"virtual_workers": 3, "batch_size": Small.batch_size, "stop": {"epochs": 3}}
    names = [f"small-{number}" for number in range(SMALL)]
    task = {"name": "benchmarks.unlike_tasks:Small"}
    jobs = [
        {"name": name, "task": {**task, "arguments": {"width": 4 + number}}, "seed": number, **own}
        for number, name in enumerate(names)
    ]
    spec = write_spec(folder, {**_ensemble("small", KINDS), "jobs": jobs})
    with _busy(1):
        _run(spec, folder / "small")
    return [_has_ddps_bits(folder, name) for name in names]


def _has_ddps_bits(folder: Path, name: str) -> bool:
    """Train one of them again under stock DDP, and compare."""
    words = ["replay", str(folder / "small"), name, "--ddp"]
    done = subprocess.run([sys.executable, "-m", "fleet", *words], timeout=PATIENCE, stdout=sys.stderr)
    return done.returncode == DONE


def _ensemble(name: str, kinds: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": name,
        "determinism": "D2",
        "policy": {"name": "easyscale"},
        "defaults": {"virtual_workers": WORKERS, "batch_size": Large.batch_size},
        "resources": {"trainers": 2, "device": "cpu", "kinds": dict(kinds)},
    }


def _run(spec: Path, out: Path) -> None:
    """Run it on three ranks, each on one core."""
    program = ["-m", "fleet", "run", str(spec), "--out", str(out)]
    subprocess.run(on_cores((1, 0, 1), program), check=True, env=environment(), timeout=PATIENCE, stdout=sys.stderr)


@contextmanager
def _busy(core: int) -> Iterator[None]:
    """A neighbour who computes on that core."""
    neighbour = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        psutil.Process(neighbour.pid).cpu_affinity([core])
        yield
    finally:
        neighbour.kill()
        neighbour.wait()


def _bit_bars(equal: list[bool]) -> list[Bar]:
    return [bar("networks with stock DDP's bits, of 12", sum(equal), "12", all(equal) and len(equal) == SMALL)]


def _table(pairs: list[tuple[Trained, Trained]]) -> dict[str, Any]:
    rows = [
        [number, way, *run.shares, round(run.rate, 1), round(run.ratio, 2)]
        for number, pair in enumerate(pairs)
        for way, run in zip(("dealt by speed", "even"), pair)
    ]
    columns = ["pair", "way", "workers of the fast", "of the slow", "samples/s", "fast : slow"]
    return {"title": "steps on a whole core and half of one", "columns": columns, "rows": rows}
