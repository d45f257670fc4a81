"""A chain of short Slurm jobs: each stops by itself before its limit, the next goes on, and no bit tells of it.

A real Slurm of two nodes gives two minutes at a time to the script of `fleet submit`. Samples come slowly there, so
that the work takes a dozen jobs; the run that it is held against, alone on this machine, gets them at once.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.bars import bar
from benchmarks.virtual_hosts import LOGIN
from benchmarks.virtual_slurm import SlurmError, VirtualSlurm, install, virtual_slurm, why_not
from benchmarks.written_spec import write_spec
from fleet.journal.events import Allocation, Done, Ended, Event, Session, Started, Stopped, Warned
from fleet.journal.journal import read_journal

ROOT = Path(__file__).resolve().parents[1]
JOBS = 12
LIMIT_SECONDS = 120
MARGIN_SECONDS = 35  # Slurm's own warning may come 31 s before it is due: the run shall not need it
ALONE_SECONDS = 300.0
POLL_SECONDS = 1.0
FLEET = [sys.executable, "-m", "fleet"]

SAMPLES, BATCH = 480, 12
COUNTS = {"train": SAMPLES, "held_out": 60}
STEPS = SAMPLES // BATCH  # of an epoch
SAMPLE_SECONDS = 0.04
EPOCHS_A_JOB = {"early": 2.0, "middle": 3.0, "late": 4.0}
"""Networks that end one after the other, so that groups are formed anew; about what a job of the chain trains."""
VARIABLES = {
    "OMPI_MCA_osc": "^ucx",
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "self,sm,tcp",
    "PYTHONPATH": str(ROOT),
    "SAMPLE_SECONDS": str(SAMPLE_SECONDS),
}


def main(jobs: int = 0) -> dict[str, Any]:
    """A chain of at least so many jobs; returns the bars."""
    reason = install() or why_not()
    if reason is not None:
        raise RuntimeError(reason)
    wanted = jobs or JOBS
    with tempfile.TemporaryDirectory(prefix="fleet-chain-") as name, virtual_slurm(2) as slurm:
        folder = Path(name)
        spec, alone, out = _write_spec(folder, wanted), folder / "alone", folder / "chained"
        begin = time.monotonic()
        _run([*FLEET, "run", str(spec), "--out", str(alone)], ROOT, os.environ)
        seconds = time.monotonic() - begin
        job = _submit(slurm, spec, out)
        _follow(slurm, job, out, wanted)
        same = subprocess.run([*FLEET, "compare", str(out), str(alone)], capture_output=True, text=True)
        return _judged(list(read_journal(out / "journal.jsonl")), wanted, slurm.restarts(job), seconds, same)


def _follow(slurm: VirtualSlurm, job: str, out: Path, jobs: int) -> None:
    """See the chain to its end; what its jobs wrote is shown if that is a bad one."""
    try:
        slurm.wait(job, "COMPLETED", seconds=3.0 * jobs * LIMIT_SECONDS, poll=POLL_SECONDS)
    except SlurmError:
        for log in out.parent.glob(f"*-{job}.out"):
            print(log.read_text(), file=sys.stderr, flush=True)
        raise


@dataclass(frozen=True)
class _Session:
    """One job of the chain, as the journal tells of it.

    Attributes:
        began: when Slurm started it, seconds since 1970.
        first: when a group was first told to form, seconds since then.
        ended: when the run had ended, seconds since then; None if it was killed.
        by_itself: whether it stopped because it had read when its allocation ends, or was done.
        steps: how many were trained in it, by job.
    """

    began: float
    first: float
    ended: float | None
    by_itself: bool
    steps: dict[str, int]


def _sessions(events: Sequence[Event]) -> list[_Session]:
    starts = [index for index, event in enumerate(events) if isinstance(event, Session)]
    return [_session(events[a:b]) for a, b in zip(starts, [*starts[1:], len(events)])]


def _session(events: Sequence[Event]) -> _Session:
    (known,) = (event for event in events if isinstance(event, Allocation))
    began = known.unix - (LIMIT_SECONDS - (known.left or 0.0))
    ended = [event for event in events if isinstance(event, Ended)]
    told = any("the allocation ends in" in event.text for event in events if isinstance(event, Warned))
    done = any(event.status == "done" for event in ended)
    first = min((event.unix - began for event in events if isinstance(event, Started)), default=float("nan"))
    return _Session(began, first, ended[0].unix - began if ended else None, told or done, _steps(events))


def _steps(events: Sequence[Event]) -> dict[str, int]:
    """Steps by job that groups trained from where they started to where they said that they stopped."""
    trained: dict[str, int] = {}
    began: dict[str, int] = {}
    for event in events:
        if isinstance(event, Started):
            began[event.job] = _place(event)
        elif isinstance(event, (Stopped, Done)) and event.job in began:
            trained[event.job] = trained.get(event.job, 0) + _place(event) - began.pop(event.job)
    return trained


def _place(event: Started | Stopped | Done) -> int:
    """Steps since the job began."""
    return event.epoch * STEPS + (0 if isinstance(event, Done) else event.step)


def _judged(
    events: Sequence[Event], wanted: int, restarts: int, alone: float, same: subprocess.CompletedProcess[str]
) -> dict[str, Any]:
    sessions = _sessions(events)
    asked = sum(_epochs(wanted).values()) * STEPS
    trained = sum(sum(session.steps.values()) for session in sessions)
    late = [session for session in sessions if session.ended is None or session.ended > LIMIT_SECONDS]
    forced = sum(not session.by_itself for session in sessions)
    rows = [
        [number, round(session.first, 1), session.ended and round(session.ended, 1), sum(session.steps.values())]
        for number, session in enumerate(sessions)
    ]
    whole = sessions[-1].began + (sessions[-1].ended or 0.0) - sessions[0].began
    return {
        "bars": [
            bar("jobs of the chain", len(sessions), f">= {wanted}", len(sessions) >= wanted),
            bar("jobs that were not over in time", len(late), "0", not late),
            bar("jobs that did not stop by themselves", forced, "0", forced == 0),
            bar("steps trained", trained, f"{asked}, each once", trained == asked),
            bar("runs with other final bits", int(same.returncode != 0), "0", same.returncode == 0),
        ],
        "tables": [
            {
                "title": f"jobs of {LIMIT_SECONDS} s; requeued {restarts} times",
                "columns": ["job", "first group after s", "over after s", "steps trained"],
                "rows": rows,
            }
        ],
        "notes": [
            f"the chain took {whole:.0f} s; alone, with samples that come at once, the run takes {alone:.0f} s",
            f"fleet compare: {(same.stdout + same.stderr).strip()}",
        ],
    }


def _submit(slurm: VirtualSlurm, spec: Path, out: Path) -> str:
    """Hand the run in as a user does; returns the job's id."""
    words = ["--site", "slurm", "--nodes", "2", "--gpus-per-node", "0", "--cores-per-rank", "1"]
    words += ["--time", f"{LIMIT_SECONDS}s", "--warn", "1s", "--out", str(out), "--script", f"{out}.sh"]
    words += [word for name, value in VARIABLES.items() for word in ("--env", f"{name}={value}")]
    command = [*slurm.hosts.on(LOGIN), *FLEET, "submit", str(spec), *words]
    said = _run(command, spec.parent, {**slurm.environment(), "PYTHONPATH": str(ROOT)})
    found = re.search(r"submitted: job (\d+)", said)
    if found is None:
        raise RuntimeError(said)
    return found.group(1)


def _run(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=ALONE_SECONDS,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"`{' '.join(command[:6])} ...` ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def _epochs(jobs: int) -> dict[str, int]:
    return {name: round(epochs * jobs) for name, epochs in EPOCHS_A_JOB.items()}


def _write_spec(folder: Path, jobs: int) -> Path:
    model = {"name": "trainers.zoo:MLP", "arguments": {"inputs": 16, "widths": [64], "classes": 3, "dropout": 0.2}}
    clouds = "benchmarks.clouds:Clouds"
    parts = {name: {"source": clouds, "arguments": {"count": count}} for name, count in COUNTS.items()}
    spec = {
        "name": "chain",
        "data": {"clouds": parts},
        "defaults": {
            "data": "clouds",
            "model": model,
            "optimizer": {"name": "AdamW", "arguments": {"lr": 0.01}},
            "schedule": {"name": "CosineAnnealingLR", "arguments": {"T_max": 1000}},
            "loss": "cross_entropy",
            "virtual_workers": 3,
            "batch_size": BATCH // 3,
        },
        "jobs": [{"name": name, "stop": {"epochs": epochs}} for name, epochs in _epochs(jobs).items()],
        "checkpoints": {"margin": MARGIN_SECONDS},
        "resources": {"trainers": 2, "device": "cpu"},
    }
    return write_spec(folder, spec, {name: {1: 4000.0, 2: 7600.0} for name in EPOCHS_A_JOB})
