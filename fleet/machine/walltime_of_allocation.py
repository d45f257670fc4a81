"""When the allocation ends in which this run is, as its scheduler says; it is never guessed.

Slurm: SLURM_JOB_END_TIME, else `squeue`. LSF: `bjobs`. PBS: `qstat`. Flux: `flux job timeleft`.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

_PATIENCE_SECONDS = 20.0
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]

Ask = Callable[[Sequence[str]], str]


@dataclass(frozen=True)
class BatchAllocation:
    """The job of a scheduler.

    Attributes:
        scheduler: its name, for people.
        job: the scheduler's name of the job.
        end: seconds since 1970; None where it has no end, or nobody says when.
        problem: why nobody says; "" otherwise.
    """

    scheduler: str
    job: str
    end: float | None
    problem: str = ""


def find_allocation(
    environment: Mapping[str, str] = os.environ, ask: Ask | None = None, now: Callable[[], float] = time.time
) -> BatchAllocation | None:
    """The allocation that this process is in; None outside of all.

    Args:
        ask: runs a command and returns what it prints; OSError, ValueError or subprocess.SubprocessError if it cannot.
    """
    for scheduler, (variable, end_of) in _SCHEDULERS.items():
        job = environment.get(variable)
        if not job:
            continue
        try:
            return BatchAllocation(scheduler, job, end_of(environment, ask or _asked, now()))
        except (OSError, ValueError, LookupError, subprocess.SubprocessError) as error:
            return BatchAllocation(scheduler, job, None, f"{type(error).__name__}: {error}")
    return None


def _asked(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_SECONDS, check=True).stdout


def _slurm(environment: Mapping[str, str], ask: Ask, now: float) -> float | None:
    told = environment.get("SLURM_JOB_END_TIME", "")
    if told.isdigit():
        return float(told)
    # Time left, not the end: the nodes' clocks and time zones may differ from the controller's.
    left = ask(["squeue", "--noheader", "--jobs", environment["SLURM_JOB_ID"], "--format", "%L"]).split()[0]
    return None if left == "UNLIMITED" else now + _seconds(left)


def _lsf(environment: Mapping[str, str], ask: Ask, now: float) -> float | None:
    left = ask(["bjobs", "-noheader", "-o", "time_left", environment["LSB_JOBID"]]).split()[0]
    return None if left == "-" else now + _seconds(f"{left}:00")


def _pbs(environment: Mapping[str, str], ask: Ask, now: float) -> float | None:
    said = ask(["qstat", "-f", environment["PBS_JOBID"]])  # its JSON breaks where a variable of the job holds odd text
    facts = dict(re.findall(r"^    (\S+) = (.+)$", said, re.M))
    begun, limit = _time_of(facts["stime"]), facts.get("Resource_List.walltime")
    return None if limit is None else begun + _seconds(limit)


def _time_of(text: str) -> float:
    """From C's form, such as `Mon Nov 23 05:15:50 2026`: its names are English whatever this process's language is."""
    _, month, day, clock, year = text.split()
    hours, minutes, seconds = map(int, clock.split(":"))
    return datetime(int(year), _MONTHS.index(month) + 1, int(day), hours, minutes, seconds).timestamp()


def _flux(environment: Mapping[str, str], ask: Ask, now: float) -> float | None:
    left = float(ask(["flux", "job", "timeleft"]))
    return None if left == float("inf") else now + left


def _seconds(text: str) -> float:
    """From [[D-]HH:]MM:SS; ValueError if it is none."""
    match = re.fullmatch(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)", text)
    if match is None:
        raise ValueError(f"{text!r} is no time")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


_SCHEDULERS: dict[str, tuple[str, Callable[[Mapping[str, str], Ask, float], float | None]]] = {
    "Slurm": ("SLURM_JOB_ID", _slurm),
    "LSF": ("LSB_JOBID", _lsf),
    "PBS": ("PBS_JOBID", _pbs),
    "Flux": ("FLUX_JOB_ID", _flux),
}
