"""Ranks killed while batches change, and on devices of two kinds: every network has the bits of its own history.

Which batches a network had, and on what it trained, hangs on when ranks die; so no two runs are alike, and each network
is trained again alone by `fleet replay`, with the history that the run's journal holds.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.bars import bar
from benchmarks.chaos_run import DONE, STOPPED, Run
from benchmarks.chaos_scenes import KILLS
from benchmarks.written_spec import write_spec
from fleet.journal.events import Batch
from fleet.journal.journal import read_journal

MOST_KILLS = 40
GOOD_CODES = (DONE, STOPPED)
ARRIVALS = {"early": 0.0, "middle": 1.0, "late": 2.0}
"""Seconds: the first one has all devices for a while."""
EPOCHS = {"early": 60, "middle": 36, "late": 24}
WORKERS, BATCH = 6, 2
RANGE = (6, 48)
PATIENCE = 300.0


@dataclass(frozen=True)
class Left:
    """What a run left.

    Attributes:
        kind: of run.
        struck: ranks that were killed.
        hung: whether it did.
        bad: how it ended, if it ended badly.
        lost: jobs that lost a checkpoint.
        changes: of batches; or groups on both kinds.
        different: networks that a replay does not give again.
    """

    kind: str
    struck: int
    hung: bool
    bad: str
    lost: tuple[str, ...]
    changes: int
    different: tuple[str, ...]


def main(repetitions: int = 0) -> dict[str, Any]:
    """Kill `repetitions` ranks, half of them in each kind of run.

    Returns:
        {"bars": [...], "tables": [...], "notes": [...]}.
    """
    wanted = -(-(repetitions or MOST_KILLS) // 2)
    with tempfile.TemporaryDirectory(prefix="fleet-chaos-live-") as folder:
        left = [run for kind in SPECS for run in _disturbed(kind, Path(folder), wanted)]
    return _judged(left, 2 * wanted)


def _disturbed(kind: str, folder: Path, wanted: int) -> list[Left]:
    """Runs with some kills each, until there were as many as wanted; seed path ("chaos-live", kind, run)."""
    seconds, found = _calm_seconds(kind, folder), list[Left]()
    while (left := wanted - sum(run.struck for run in found)) > 0 and len(found) <= 3 * wanted:
        index = len(found)
        own = folder / f"{kind}-{index}"
        own.mkdir()
        with KILLS.scene(own) as scene:
            run = Run(_write(kind, own), scene)
            moments = KILLS.moments[index % len(KILLS.moments)][:left]
            run.played(moments, random.Random(f"chaos-live/{kind}/{index}"), seconds)
            found.append(_left(kind, run))
        told = f"{found[-1].changes} changes, other bits: {', '.join(found[-1].different) or 'none'}"
        print(f"{kind}, run {index}: codes {run.codes}, {', '.join(run.struck)}; {told}", file=sys.stderr, flush=True)
    return found


def _calm_seconds(kind: str, folder: Path) -> float:
    """What a run takes that nobody disturbs."""
    own = folder / f"{kind}-calm"
    own.mkdir()
    with KILLS.scene(own) as scene:
        return Run(_write(kind, own), scene).played((), random.Random(0), 0.0)


def _left(kind: str, run: Run) -> Left:
    bad = "" if run.done and all(code in GOOD_CODES for code in run.codes) else f"{run.codes}:\n{run.output[-3000:]}"
    events = list(read_journal(run.out / "journal.jsonl"))
    changes = sum(isinstance(event, Batch) or bool(getattr(event, "shares", ())) for event in events)
    different = tuple(job for job in EPOCHS if run.done and not _replays(run.out, job))
    return Left(kind, len(run.struck), run.hung, bad, tuple(run.lost), changes, different)


def _replays(out: Path, job: str) -> bool:
    """Whether a network that is trained again alone has the same bits."""
    command = [sys.executable, "-m", "fleet", "replay", str(out), job, "--trainers", "1"]
    done = subprocess.run(command, timeout=PATIENCE, capture_output=True, text=True)
    if done.returncode != DONE:
        print(f"{out}, {job}: {done.stdout[-1500:]}{done.stderr[-1500:]}", file=sys.stderr, flush=True)
    return done.returncode == DONE


def _judged(runs: list[Left], wanted: int) -> dict[str, Any]:
    struck, hung = sum(run.struck for run in runs), sum(run.hung for run in runs)
    badly, different = [run for run in runs if run.bad], [run for run in runs if run.different]
    lost = sum(len(run.lost) for run in runs)
    of_kinds = {kind: [run for run in runs if run.kind == kind] for kind in SPECS}
    changed = {kind: sum(run.changes for run in own) for kind, own in of_kinds.items()}
    rows = [[kind, len(own), sum(run.struck for run in own), changed[kind]] for kind, own in of_kinds.items()]
    changes = min(changed.values())
    return {
        "bars": [
            bar("ranks killed", struck, str(wanted), struck >= wanted),
            bar("runs that hang", hung, "0", hung == 0),
            bar("runs that do not end done", len(badly), "0", not badly),
            bar("runs with networks of other bits than their history's", len(different), "0", not different),
            bar("acknowledged checkpoints lost", lost, "0", lost == 0),
            bar("changes of batches, and groups on both kinds, at least", changes, ">= 10", changes >= 10),
        ],
        "tables": [
            {"title": "runs", "columns": ["kind", "runs", "kills", "changes, or groups on both kinds"], "rows": rows}
        ],
        "notes": [f"{run.kind}, ended with {run.bad}" for run in badly],
    }


def _jobs() -> list[dict[str, Any]]:
    return [{"name": name, "arrival": ARRIVALS[name], "stop": {"epochs": epochs}} for name, epochs in EPOCHS.items()]


def _batches() -> dict[str, Any]:
    """On one device small batches are best; on more a large one makes up for the time of summing."""
    batch = {"range": list(RANGE), "learning_rate": "square_root", "warm_up": 0.5}
    return {"jobs": [{**job, "batch": batch} for job in _jobs()], "policy": {"name": "throughput"}}


def _kinds() -> dict[str, Any]:
    kinds = {"one": "0", "other": "1-2"}
    return {"jobs": _jobs(), "policy": {"name": "easyscale"}, "determinism": "D2", "resources": {"kinds": kinds}}


SPECS: Mapping[str, Any] = {"batches": _batches, "kinds": _kinds}


def _write(kind: str, folder: Path) -> Path:
    own = SPECS[kind]()
    resources = {"trainers": 3, "preprocessors": 2, "device": "cpu", **own.pop("resources", {})}
    spec = {
        "name": f"chaos-{kind}",
        "data": {"clouds": {"train": {"source": "benchmarks.clouds:Clouds", "arguments": {"count": 480}}}},
        "defaults": {
            "data": "clouds",
            "model": {"name": "trainers.zoo:MLP", "arguments": {"inputs": 16, "widths": [64], "classes": 3}},
            "optimizer": {"name": "AdamW", "arguments": {"lr": 0.01}},
            "virtual_workers": WORKERS,
            "batch_size": BATCH,
        },
        **own,
        "resources": resources,
    }
    return write_spec(folder, spec, _rates(kind))


def _rates(kind: str) -> dict[str, dict[int, float]]:
    if kind == "kinds":
        speeds = {"one": 4e5, "other": 2e5}
        return {
            f"{job}, {name}": {1: rate, 2: 1.9 * rate, 3: 2.7 * rate} for job in EPOCHS for name, rate in speeds.items()
        }
    rates = {job: {1: 4e5, 2: 4.4e5, 3: 4.6e5} for job in EPOCHS}
    listed = {RANGE[0]: 4e5, RANGE[1]: 3.96e5}
    return rates | {f"{job}, batch {batch}": {1: rate} for job in EPOCHS for batch, rate in listed.items()}
