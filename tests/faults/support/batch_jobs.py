"""Batch scripts, run as a scheduler runs them, with ranks that end as a test says and signals at chosen commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

import yaml

from fleet.cluster.batch_script import BatchScript, NodeShape, Site, WallTime, script_text
from tests.submit.support.programs import lay_out

JOB_IDS = {"slurm": "SLURM_JOB_ID", "lsf": "LSB_JOBID", "pbs": "PBS_JOBID", "flux": "FLUX_JOB_ID"}
LIMIT_SECONDS = 30.0
IGNORES = "trap '' USR1 TERM"  # from here on a script hears no signal

# WORD: the exit code that rank 0 leaves; "none": none; "bad": the launcher ends with 2 and nobody was up;
# "asked": 75, when it is told to stop. SAVES: a name of a checkpoint.
RANKS = """#!/bin/sh
says() { echo "$1" > "$FLEET_CODE_FILE"; echo "$1" >> "$SAID"; exit 0; }
trap 'exit 143' TERM
[ "$WORD" = bad ] && exit 2
trap 'says 75' USR1
: > "$FLEET_CODE_FILE.up"
[ -z "$SAVES" ] || { mkdir -p "$OUT/checkpoints/job"; : > "$OUT/checkpoints/job/$SAVES.h5"; }
while [ "$WORD" = asked ]; do sleep 0.02; done
while [ -n "$GATE" ] && [ ! -e "$GATE" ]; do sleep 0.02; done
[ "$WORD" = none ] && exit 1
says "$WORD"
"""

# Bash reads it before a script: notes each command, and sends SIGNAL to the script before the one with number AT.
INJECTION = """unset BASH_ENV
set -o functrace
__n=0
trap '__n=$((__n + 1)); echo "$BASH_COMMAND" >> "$TRACE"; if [ "$__n" = "$AT" ]; then kill -s "$SIGNAL" $$; fi' DEBUG
"""


@dataclass(frozen=True)
class JobEnd:
    """What came of one job.

    Attributes:
        code: of the script.
        word: the last exit code that rank 0 left; empty if it left none.
        submitted: whether the script was submitted again, and for which chain.
        commands: that bash ran, as far as they were noted.
    """

    code: int
    word: str
    submitted: bool
    chain: str
    commands: tuple[str, ...]
    output: str


@dataclass
class BatchSite:
    """A folder with the script of one scheduler; its path is an odd one.

    Args:
        scheduler: slurm, lsf, pbs or flux.
        place: where to put everything.
    """

    scheduler: str
    place: Path
    jobs: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.folder = self.place / "my runs, 100% 'good' $HOME"
        self.folder.mkdir()
        lay_out(self.place / "bin")
        (self.place / "injection.sh").write_text(INJECTION)
        (self.place / "ranks.sh").write_text(RANKS)
        self.script = self.folder / "x.sh"
        known = yaml.safe_load((files("batch_scripts") / "sites.yaml").read_text())
        site, shape = Site.model_validate(known[self.scheduler]), NodeShape(1, 0, 1, 1, 1)
        out = self.folder / "out"
        command = ["fleet", "run", str(self.folder / "x.yaml"), "--out", str(out)]
        made = BatchScript(site, shape, WallTime(3600), "x", command, self.folder, out, self.script, setup=(":",))
        self.script.write_text(script_text(made))

    @contextmanager
    def started(self, word: str, job: str = "", **more: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
        """A job whose ranks end so; yields the script's process and the place where the job's own files are."""
        self.jobs += 1
        own = self.place / f"job-{self.jobs}"
        own.mkdir()
        environment = {**os.environ, **self._variables(own), JOB_IDS[self.scheduler]: job or str(self.jobs)}
        environment |= {"WORD": word, "SAVES": "", "GATE": "", **more}
        output = subprocess.PIPE, subprocess.STDOUT
        process = subprocess.Popen(
            ["bash", str(self.script)], env=environment, cwd=self.place, stdin=subprocess.DEVNULL, stdout=output[0],
            stderr=output[1], text=True, start_new_session=True,
        )  # fmt: skip
        try:
            yield process, own
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()

    def run(self, word: str, job: str = "", **more: str) -> JobEnd:
        """A job from its begin to its end."""
        with self.started(word, job, **more) as (process, own):
            return self.finish(process, own)

    def signalled(self, word: str, name: str, at: int) -> JobEnd:
        """A job that gets a signal before its command of that number, from 1; 0: none."""
        return self.run(word, BASH_ENV=str(self.place / "injection.sh"), AT=str(at), SIGNAL=name)

    def finish(self, process: subprocess.Popen[str], own: Path) -> JobEnd:
        """The end of a job."""
        output, _ = process.communicate(timeout=LIMIT_SECONDS)
        calls = [json.loads(line) for line in _lines(own / "calls.jsonl")]
        again = [call["chain"] for call in calls if "submitted" in call]
        assert len(again) <= 1, f"submitted {len(again)} times: {output}"
        texts = [call["submitted"] for call in calls if call.get("submitted")]
        assert texts in ([], [self.script.read_text()]), "another script was submitted"
        word = (_lines(own / "said") or [""])[-1]
        return JobEnd(process.returncode, word, bool(again), "".join(again), tuple(_lines(own / "trace")), output)

    def _variables(self, own: Path) -> Mapping[str, str]:
        return {
            "PATH": f"{self.place / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "STAND_IN_NODE": "0,40",
            "STAND_IN_NODES": "1",
            "STAND_IN_QUEUE": "held",
            "STAND_IN_MPIEXEC": f"sh {self.place / 'ranks.sh'}",
            "STAND_IN_LOG": str(own / "calls.jsonl"),
            "SAID": str(own / "said"),
            "TRACE": str(own / "trace"),
            "OUT": str(self.folder / "out"),
        }


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def wait_until_there(path: Path) -> None:
    """Poll until there is such a file."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not path.exists():
        assert time.monotonic() < deadline, f"waited {LIMIT_SECONDS:.0f} s for {path}"
        time.sleep(0.02)
