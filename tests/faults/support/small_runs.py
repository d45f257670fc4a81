"""Short runs in one process each, and what has to hold of the directories that they leave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.faults.support import one_rank
from tests.journals import read_lines
from tests.live.support.bits import difference
from tests.live.support.ensembles import Ensemble
from tests.live.support.processes import FLEET, Ended, run
from trainers import latest_good

CODES = (0, 1, 2, 70, 75)
HANGS_SECONDS = 60.0
JOBS = ("mlp", "cnn")
Standing = tuple[int, int]  # epochs, and steps of the next
Start = Callable[[Path, Mapping[str, str]], Ended]
Judge = Callable[[Path], list[str]]
"""Says what is wrong with a directory whose run is said to be done."""


@contextmanager
def quick_disk() -> Iterator[Path]:
    """A folder in which syncs cost nothing, where there is one."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="fleet-disk-", dir=memory if memory.is_dir() else None) as name:
        yield Path(name).resolve()


@dataclass(frozen=True)
class OneRankRuns:
    """Starts runs of an ensemble, each in one process; variables: of all their processes."""

    ensemble: Ensemble
    variables: Mapping[str, str]

    def __call__(self, out: Path, more: Mapping[str, str]) -> Ended:
        """Start a run, or go on with it, and see it to its end; one that takes too long has no code of the table."""
        command = [sys.executable, one_rank.__file__, str(self.ensemble.spec), str(out)]
        known = {key: value for key, value in os.environ.items() if not key.startswith(("OMPI_", "PMIX_", "PRTE_"))}
        environment = {**known, "OMP_NUM_THREADS": "1", **self.variables, **more}
        with subprocess.Popen(
            command, env=environment, cwd=self.ensemble.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, errors="replace",
        ) as process:  # fmt: skip
            try:
                output, _ = process.communicate(timeout=HANGS_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                return Ended(-1, f"no end within {HANGS_SECONDS:g} s; {process.communicate()[0]}")
        return Ended(process.returncode, output)


@dataclass(frozen=True)
class RealRuns:
    """The same with the real command, and a rank for each part."""

    ensemble: Ensemble
    variables: Mapping[str, str]

    def __call__(self, out: Path, more: Mapping[str, str]) -> Ended:
        return run(self.ensemble.plain(str(out)), self.ensemble.folder, **self.variables, **more)


def ends_well(ended: Ended, said: str = "") -> list[str]:
    """What is wrong with how a start ended on which something went wrong of which the system says `said`."""
    wrong = [] if ended.code in CODES else [f"it ended with {ended.code}"]
    if "Traceback (most recent call last)" in ended.output:
        wrong.append("it ended with a traceback")
    if ended.code and said not in ended.output:
        wrong.append(f"it ended with {ended.code} and did not say {said!r}")
    return [f"{text}:\n{ended.output}" for text in wrong[:1]]


def standing_of(out: Path) -> dict[str, Standing]:
    """How far each job had come by its whole checkpoints."""
    found = {job: latest_good(out / "checkpoints" / job)[0] for job in JOBS}
    return {job: (saved.epoch, saved.step) for job, saved in found.items() if saved is not None}


def acknowledged(out: Path) -> dict[str, Standing]:
    """How far each job had come that its run had told."""
    found: dict[str, Standing] = {}
    for event in read_lines(out / "journal.jsonl"):
        if event["event"] == "checkpoint":
            found[event["job"]] = max(found.get(event["job"], (0, 0)), (event["epoch"], event["step"]))
    return found


def has_the_bits(out: Path, wanted: Mapping[str, Path]) -> list[str]:
    """What is wrong with a run that is said to be done: with its bits, and with what is written of it."""
    wrong, told = all_done(out, wanted)
    for job, checkpoint in told.items():
        if not (mine := out / "checkpoints" / job / checkpoint).exists():
            wrong.append(f"{job} has no {mine.name}, which run.json names")
        elif differing := difference(mine, wanted[job]):
            wrong.append(f"{job} differs in {differing}")
    return wrong


def has_the_bits_of_its_history(out: Path, jobs: Iterable[str]) -> list[str]:
    """The same of a run whose bits hang on when what happened: each job is trained again alone, by the journal."""
    wrong, told = all_done(out, jobs)
    for job in told:
        ended = run([*FLEET, "replay", str(out), job, "--trainers", "1"], out.parent)
        if ended.code or "equal: every bit" not in ended.output:
            wrong.append(f"a replay of {job} ended with {ended.code}: {ended.output}")
    return wrong


def all_done(out: Path, jobs: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """What is wrong with run.json, and the last checkpoint of each job that it says is done."""
    try:
        summary = json.loads((out / "run.json").read_text())
    except (OSError, ValueError) as error:
        return [f"run.json cannot be read: {error}"], {}
    wrong = [] if summary["status"] == "done" else [f"run.json says {summary['status']}"]
    told = {job: summary["jobs"][job] for job in jobs}
    wrong += [f"{job} is {known['status']}" for job, known in told.items() if known["status"] != "done"]
    return wrong, {job: Path(known["checkpoint"]).name for job, known in told.items() if known["status"] == "done"}


def trained_again(out: Path, known: Mapping[str, Standing]) -> list[str]:
    """What the last session of a run trained again though it was known to be on the disk."""
    events = list(read_lines(out / "journal.jsonl"))
    last = max((number for number, event in enumerate(events) if event["event"] == "session"), default=0)
    begun = [event for event in events[last:] if event["event"] == "started" and event["job"] in known]
    return [
        f"{event['job']} went on from {(event['epoch'], event['step'])}, {known[event['job']]} was told"
        for event in begun
        if (event["epoch"], event["step"]) < known[event["job"]]
    ]


def goes_on(start: Start, out: Path, wrong_with: Judge, known: Mapping[str, Standing]) -> list[str]:
    """What is wrong with a second start, on which nothing goes wrong."""
    ended = start(out, {})
    wrong = ends_well(ended)
    if not wrong and ended.code != 0:
        wrong = [f"the next start ended with {ended.code}:\n{ended.output}"]
    return wrong or [*trained_again(out, known), *wrong_with(out)]
