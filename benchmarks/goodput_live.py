"""`goodput` under real compute, beside `sia` and `easyscale`: twelve networks on two kinds of device, one of them slow.

Each device has a core. The kernels of one are limited to AVX2, those of the other to SSE4: so kinds differ truly, and
not by the same factor for each network. The networks are timed on both by `fleet profile`, then run under the policies
in turns; all of it is `fleet` as a user starts it. At D1 a network stays on the kind on which it begins.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks.bars import Bar, median_bar
from benchmarks.started_ranks import environment, launcher
from benchmarks.written_spec import write_spec
from fleet.journal.directory import RunDirectory
from fleet.journal.events import Done, Started
from fleet.journal.journal import read_journal
from trainers.repeatable.instruction_sets import INSTRUCTION_SETS

POLICIES: dict[str, dict[str, Any]] = {"goodput": {}, "sia": {"interval": 1.0}, "easyscale": {}}
"""Sia's minute is for jobs of hours; these last seconds."""
TURNS = ("goodput", "sia", "easyscale", "easyscale", "sia", "goodput")
REPETITIONS = 1
KINDS = {"avx2": "0", "sse4": "1"}
STEPS = {"CNN with BatchNorm": 48, "ResNet": 10, "DenseNet": 5, "VGG": 20, "ShuffleNetV2": 4, "detector": 64}
"""Of an epoch: about 0.8 s on the fast device."""
EPOCHS = {
    "CNN with BatchNorm": (2, 8), "ResNet": (2, 9), "DenseNet": (2, 6), "VGG": (3, 11), "ShuffleNetV2": (2, 7),
    "detector": (2, 8),
}  # fmt: skip
"""Of a short job and of a long one."""
BATCH = 32
FIRST, BETWEEN = 2.0, 1.5
"""Seconds until the first network comes, and mean seconds between arrivals."""
PATIENCE = 600.0
ROOT = Path(__file__).resolve().parents[1]
"""Where ranks find the networks."""


@dataclass(frozen=True)
class Ended:
    """How a run went.

    Attributes:
        completion: seconds from a network's arrival to its end, in the mean.
        whole: seconds from the first arrival to the last end.
        starts: groups formed, of all networks together.
    """

    completion: float
    whole: float
    starts: int


Turns = list[dict[str, Ended]]
"""Policy -> its run; one of each in a turn."""


def main(repetitions: int = 0) -> dict[str, Any]:
    """Time the networks, then run them twice under each policy, `repetitions` times.

    Returns:
        {"bars": [...], "tables": [...]}.
    """
    turns: Turns = []
    with tempfile.TemporaryDirectory(prefix="fleet-goodput-") as name:
        folder = Path(name)
        rates = _timed(folder)
        for number in range(2 * (repetitions or REPETITIONS)):
            order = TURNS[:3] if number % 2 == 0 else TURNS[3:]
            turns.append({policy: _run(folder / f"{policy}-{number}", policy, rates) for policy in order})
    return {"bars": bars(turns), "tables": [_table(turns)]}


def bars(turns: Turns) -> list[Bar]:
    """How many times as long networks, and all of them together, take under the others."""
    found = []
    for other in ("sia", "easyscale"):
        for what, field in (("completion time, mean", "completion"), ("end of the whole", "whole")):
            ratios = [getattr(turn[other], field) / getattr(turn["goodput"], field) for turn in turns]
            found.append(median_bar(f"{what}: {other} by goodput", ratios, "> 1", median(ratios) > 1))
    return found


def jobs() -> list[dict[str, Any]]:
    """The networks, in the order of their arrival. Seed path ("goodput-live")."""
    draw, found, arrival = random.Random("goodput-live"), [], FIRST
    lengths = [(network, epochs) for network, both in EPOCHS.items() for epochs in both]
    draw.shuffle(lengths)
    for number, (network, epochs) in enumerate(lengths):
        arguments = {"network": network, "samples": STEPS[network] * BATCH}
        task = {"name": "benchmarks.timed_tasks:Pictured", "arguments": arguments}
        own = {"task": task, "seed": number, "stop": {"epochs": epochs}, "arrival": round(arrival, 2)}
        found.append({"name": f"net-{number:02}", **own})
        arrival += draw.expovariate(1 / BETWEEN)
    return found


def _ensemble(policy: str) -> dict[str, Any]:
    return {
        "name": policy,
        "policy": {"name": policy, "parameters": POLICIES[policy]},
        "defaults": {"virtual_workers": 1, "batch_size": BATCH},
        "resources": {"trainers": 2, "device": "cpu", "kinds": KINDS, "timeout": PATIENCE},
        "profile": {"batches": 12, "timed": 6, "when": "before"},
        "jobs": jobs(),
    }


def _timed(folder: Path) -> Path:
    """Time each network on both kinds; returns the file of rates."""
    rates = folder / "rates.json"
    _fleet(folder, "profile", str(write_spec(folder, _ensemble("goodput"))), "--out", str(rates))
    return rates


def _run(folder: Path, policy: str, rates: Path) -> Ended:
    """Train all networks under a policy."""
    folder.mkdir()
    spec = write_spec(folder, {**_ensemble(policy), "profile": {"file": str(rates)}})
    _fleet(folder, "run", str(spec), "--out", str(folder / "out"))
    found = _ended(RunDirectory(folder / "out").journal)
    print(f"{policy}: {found}", file=sys.stderr, flush=True)
    return found


def _ended(journal: Path) -> Ended:
    events = list(read_journal(journal))
    arrivals = {job["name"]: job["arrival"] for job in jobs()}
    ends = {event.job: event.t for event in events if isinstance(event, Done)}
    if missing := arrivals.keys() - ends.keys():
        raise RuntimeError(f"{journal}: {', '.join(sorted(missing))} did not end")
    waits = [ends[job] - arrival for job, arrival in arrivals.items()]
    starts = sum(isinstance(event, Started) for event in events)
    return Ended(mean(waits), max(ends.values()) - min(arrivals.values()), starts)


def _fleet(folder: Path, *words: str) -> None:
    """Run a command of fleet on three ranks: one that leads and makes samples, and a trainer of each kind."""
    program = [sys.executable, "-m", "fleet", *words]
    command = [*launcher(), "-n", "1", *program]
    for core, kind in enumerate(KINDS):
        pins = [f"{name}={value}" for name, value in INSTRUCTION_SETS[kind].pins.items()]
        command += [":", "-n", "1", "taskset", "-c", str(core), "env", *pins, *program]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    given = {**environment(), "PYTHONPATH": path}
    subprocess.run(command, check=True, cwd=folder, env=given, timeout=PATIENCE, stdout=sys.stderr)


def _table(turns: Turns) -> dict[str, Any]:
    rows = [
        [number, policy, round(run.completion, 2), round(run.whole, 2), run.starts]
        for number, turn in enumerate(turns)
        for policy, run in turn.items()
    ]
    columns = ["turn", "policy", "completion time, mean, s", "whole, s", "starts"]
    return {"title": "12 networks on an AVX2 and an SSE4 device", "columns": columns, "rows": rows}
