"""Ranks that rehearse one run after another: `mpiexec -n RANKS python -m benchmarks.rehearsed_ranks RUNS.json`.

Starting a rank costs seconds of processor time, most of them for importing torch; ranks that stay up cost it once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

PREPROCESSORS = 1


@dataclass(frozen=True)
class RehearsedRun:
    """A run to rehearse: the files of its spec and of its run directory, and the policy."""

    spec: str
    out: str
    policy: str


def rehearse(runs: Sequence[RehearsedRun], nodes: Sequence[int], folder: Path, seconds: float) -> None:
    """Rehearse the runs one after another, in ranks that are started once.

    Args:
        nodes: devices of each pretend node.
        folder: where the list of runs and what the ranks print are written.
        seconds: what all of it may take.

    Raises:
        RuntimeError: a run did not end well.
    """
    from fleet.machine.launch.local_launch import find_mpiexec

    listed, printed = folder / "runs.json", folder / "printed.txt"
    listed.write_text(json.dumps({"nodes": list(nodes), "runs": [asdict(run) for run in runs]}))
    launcher = find_mpiexec()
    program = [sys.executable, "-m", "benchmarks.rehearsed_ranks", str(listed)]
    command = launcher.command(sum(nodes) + PREPROCESSORS, program)
    variables = {**os.environ, **launcher.environment(), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    with printed.open("w") as file:
        done = subprocess.run(command, stdout=file, stderr=file, env=variables, timeout=seconds)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{printed.read_text()[-4000:]}")


def _take_part(listed: Path) -> None:
    """Take part in all runs, each as `fleet run --rehearse` has it.

    Raises:
        RuntimeError: on every rank, if a run did not end well.
    """
    from fleet.machine.launch.launched import StopFlag
    from fleet.session.main import run_rank
    from fleet.session.options import RunOptions

    stop = StopFlag()
    stop.install()
    task = json.loads(listed.read_text())
    nodes = tuple(task["nodes"])
    settled = (f"resources.trainers={sum(nodes)}", f"resources.preprocessors={PREPROCESSORS}")
    for run in (RehearsedRun(**run) for run in task["runs"]):
        overrides = (*settled, f"policy={run.policy}")
        options = RunOptions(Path(run.spec), overrides, Path(run.out), rehearse=True, pretend=nodes)
        if code := run_rank(options, stop):
            raise RuntimeError(f"{run.out}: its rehearsal under {run.policy} ended with {code}")


if __name__ == "__main__":
    _take_part(Path(sys.argv[1]))
