"""Faults at random moments: runs end, nothing that was saved is lost, and no bit tells of it.

Most are `kill -9` of any rank: of those after whose loss the others go on in place, and of those after which all are
started again. Two fifths of the kills are aimed: at ranks that start, at groups that form, at checkpoints that are
being written. Others are full disks, ranks that are paused for longer than the watchdog's time, hosts that lose their
network, and clocks that jump by an hour; half as many of these as kills.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.bars import bar
from benchmarks.chaos_run import DONE, STOPPED, Run
from benchmarks.chaos_scenes import KILLS, OTHERS, TIMEOUT_SECONDS, Kind, Scene
from benchmarks.written_spec import write_spec
from fleet.machine.launch.launched import FAILED, LOST

MOST_KILLS = 200
OF_ONE_KIND = 8  # kills for each fault of another kind
GOOD_CODES = (DONE, STOPPED)
TOLD_CODES = (*GOOD_CODES, LOST, FAILED)  # where a disk is full, or a host is gone, a start may end with these
EPOCHS = {"early": 16, "middle": 32, "late": 48}
"""Networks that end one after the other, so that groups are formed anew."""


@dataclass(frozen=True)
class Left:
    """What a run left.

    Attributes:
        bad: how it ended, if it ended badly.
        difference: from the bits of the run that nobody disturbed.
    """

    kind: str
    struck: tuple[str, ...]
    hung: bool
    bad: str
    lost: tuple[str, ...]
    difference: str


def main(kills: int = 0) -> dict[str, Any]:
    """Kill so many ranks, and let other faults happen; returns the bars."""
    wanted = kills or MOST_KILLS
    with tempfile.TemporaryDirectory(prefix="fleet-chaos-") as name:
        folder = Path(name)
        calm = Run(_write_spec(folder), Scene(folder, folder / "calm"))
        seconds = calm.played((), random.Random(0), 0.0)
        if not calm.done:
            raise RuntimeError(f"the run that nobody disturbs ended with {calm.codes}:\n{calm.output}")
        left = _disturbed("kills", KILLS, folder, wanted, seconds)
        counts, skipped = {"kills": wanted}, {}
        for kind, others in OTHERS.items():
            if reason := others.why_not():
                skipped[kind] = reason
            else:
                counts[kind] = -(-wanted // OF_ONE_KIND)
                left += _disturbed(kind, others, folder, counts[kind], seconds)
    return _judged(left, counts, skipped, seconds)


def _disturbed(name: str, kind: Kind, folder: Path, wanted: int, seconds: float) -> list[Left]:
    """Runs with some faults each, until there were as many as wanted; seed path ("chaos", kind, run)."""
    found: list[Left] = []
    while (left := wanted - sum(len(run.struck) for run in found)) > 0 and len(found) <= 3 * wanted:
        index = len(found)
        own = folder / f"{name.replace(' ', '-')}-{index}"
        own.mkdir()
        spec = _write_spec(own, TIMEOUT_SECONDS if kind.timeout else None)
        with kind.scene(own) as scene:
            run = Run(spec, scene)
            moments = kind.moments[index % len(kind.moments)][:left]
            run.played(moments, random.Random(f"chaos/{name}/{index}"), seconds)
            good = TOLD_CODES if scene.ends_the_run or kind.timeout else GOOD_CODES
            found.append(_left(name, run, folder / "calm", good))
        struck, lost = ", ".join(run.struck) or "not hit", found[-1].lost or "nothing"
        _say(f"{name}, run {index}: codes {run.codes}, {struck}; lost {lost}")
    return found


def _left(kind: str, run: Run, calm: Path, good: tuple[int, ...]) -> Left:
    bad = "" if run.done and all(code in good for code in run.codes) else f"{run.codes}:\n{run.output[-3000:]}"
    if "Traceback (most recent call last)" in run.output and run.codes[-1] != DONE:
        bad = bad or f"a traceback:\n{run.output[-3000:]}"
    difference = run.difference(calm) if run.done else ""
    return Left(kind, tuple(run.struck), run.hung, bad, tuple(run.lost), difference)


def _judged(runs: list[Left], wanted: dict[str, int], skipped: dict[str, str], seconds: float) -> dict[str, Any]:
    struck = Counter(run.kind for run in runs for _ in run.struck)
    hung = sum(run.hung for run in runs)
    badly = [run for run in runs if run.bad]
    differences = [run.difference for run in runs if run.difference]
    lost = sum(len(run.lost) for run in runs)
    moments = Counter((run.kind, moment) for run in runs for moment in run.struck)
    notes = [f"undisturbed, a run takes {seconds:.1f} s, with 3 networks on 3 trainers and 2 preprocessors"]
    notes += [f"skipped: {kind}, {reason}" for kind, reason in skipped.items()]
    notes += differences
    notes += [f"{run.kind}, ended with {run.bad}" for run in badly]
    bars = [bar("ranks killed", struck["kills"], str(wanted["kills"]), struck["kills"] == wanted["kills"])]
    bars += [
        bar(kind, struck[kind], str(count), struck[kind] >= count) for kind, count in wanted.items() if kind != "kills"
    ]
    return {
        "bars": [
            *bars,
            bar("faults", struck.total(), str(sum(wanted.values())), struck.total() >= sum(wanted.values())),
            bar("runs that hang", hung, "0", hung == 0),
            bar("runs that do not end done", len(badly), "0", not badly),
            bar("runs with other final bits", len(differences), "0", not differences),
            bar("acknowledged checkpoints lost", lost, "0", lost == 0),
        ],
        "tables": [
            {
                "title": f"faults in {len(runs)} runs",
                "columns": ["kind", "moment", "faults"],
                "rows": [[*key, count] for key, count in sorted(moments.items())],
            }
        ],
        "notes": notes,
    }


def _write_spec(folder: Path, timeout: float | None = None) -> Path:
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
        "resources": {"trainers": 3, "preprocessors": 2, "device": "cpu"} | ({"timeout": timeout} if timeout else {}),
    }
    return write_spec(folder, spec, rates)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
