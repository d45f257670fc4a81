"""Traces in the manner of Microsoft's Philly clusters (Jeon et al., ATC'19; github.com/msr-fiddle/philly-traces)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fleet.simulator.traces.columns import JobColumns
from fleet.simulator.traces.problem import TraceError, TraceProblem
from fleet.simulator.traces.table import GROWTH, MOST_BYTES, TraceTable, as_date
from fleet.simulator.traces.trace import Trace
from preprocess.files.memory import check_claim
from preprocess.files.reading import read_json

FORMAT = "philly"
LOG_FORMAT = "philly-log"
NAMES = ("jobid", "job_id", "job", "name")
TIMES = ("submitted_time", "submission_time", "submit_time", "timestamp")
DEVICES = ("num_gpus", "gpus", "num_gpu")
TENANTS = ("vc", "cluster", "user")
MODELS = ("model", "model_name", "application")
STATUS = ("status",)
LOG_COLUMNS = ("jobid", "submitted_time", "attempts")


def read_philly(table: TraceTable) -> Trace:
    """Read a plain file of arrival (seconds or dates), devices and duration (seconds).

    The columns are the first that is there of TIMES, of DEVICES, and `duration`; where they are there, NAMES, TENANTS,
    MODELS and STATUS. Jobs without a name are numbered by their line.

    Raises:
        TraceError: with every cell that is wrong.
    """
    name, model, tenant, status = (_first(table, names) for names in (NAMES, MODELS, TENANTS, STATUS))
    submitted, devices = _first(table, TIMES) or TIMES[0], _first(table, DEVICES) or DEVICES[0]
    table.require((submitted, devices, "duration"), FORMAT)
    columns: dict[str, Any] = {
        "name": table.names(name) if name else [f"job-{line}" for line in table.lines],
        "arrival": table.times(submitted),
        "devices": table.numbers(devices, least=1, whole=True),
        "duration": table.numbers("duration", least=0, above=True),
        "model": table.texts(model or "", ""),
        "tenant": table.texts(tenant or "", ""),
        "outcome": table.texts(status or "", ""),
    }
    table.finish()
    return Trace.of(JobColumns.of(**columns, line=table.lines), table.file, FORMAT)


def read_philly_log(path: Path) -> Trace:
    """Read cluster_job_log: a JSON list of `jobid`, `submitted_time`, `attempts`, `vc`, `status`.

    An attempt has `start_time`, `end_time` and `detail`, a list of machines with their `gpus`. A job asks for the most
    devices that an attempt of it held, and lasts as long as all its attempts together. Jobs without an attempt that
    both began and ended are left out, as the log's own notes say that there are such; `Trace.notes` tells how many.

    Raises:
        TraceError: the file is no such log, or entries of it are wrong.
    """
    entries = _entries(path)
    problems: list[TraceProblem] = []
    rows = [row for number, entry in enumerate(entries, 1) if (row := _row(str(path), number, entry, problems))]
    problems += _repeated(str(path), rows)
    if problems:
        raise TraceError(problems)
    if not rows:
        raise TraceError.of(
            path, "there is not one job with an attempt that began and ended", "name a log with such jobs"
        )
    keys = ("name", "arrival", "devices", "duration", "tenant", "outcome")
    jobs = JobColumns.of(**{key: [row[key] for row in rows] for key in keys})
    left = len(entries) - len(rows)
    notes = (f"{left} jobs without an attempt that began and ended were left out",) if left else ()
    return Trace.of(jobs, str(path), LOG_FORMAT, notes)


def _first(table: TraceTable, names: Iterable[str]) -> str | None:
    return next((name for name in names if table.has(name)), None)


def _entries(path: Path) -> list[Any]:
    try:
        check_claim(path, GROWTH * path.stat().st_size)
        entries = read_json(path, MOST_BYTES)
    except OSError as error:
        raise TraceError.of(path, f"it cannot be read: {error.strerror}", "name a file that can") from error
    except ValueError as error:
        raise TraceError.of(path, f"this is no JSON: {error}", "name a cluster_job_log, or a .csv file") from error
    if not isinstance(entries, list) or not entries:
        raise TraceError.of(path, "a cluster_job_log is a JSON list of jobs, and this is none", "name one")
    return entries


def _row(file: str, number: int, entry: Any, problems: list[TraceProblem]) -> dict[str, Any] | None:
    """One job, or None where it has no attempt to tell of, or something is wrong with it."""

    def blame(key: str, value: object, rule: str) -> None:
        text = f"job {number} of the list: {rule}"
        problems.append(TraceProblem(file, text, "correct it, or leave the job out", None, key, str(value)))

    if not isinstance(entry, Mapping):
        blame("jobid", entry, "it must be an object with " + ", ".join(LOG_COLUMNS))
        return None
    for key in (key for key in LOG_COLUMNS if key not in entry):
        blame(key, "", "there is no such key")
        return None
    lengths, devices = _attempts(entry["attempts"])
    if not lengths:
        return None
    arrival = as_date(str(entry["submitted_time"]))
    if arrival is None:
        blame("submitted_time", entry["submitted_time"], "this is no date such as 2017-10-07 01:12:09")
    if min(lengths) < 0 or not sum(lengths):
        blame("attempts", entry["attempts"], "an attempt must end after it began")
    if not devices:
        blame("attempts", entry["attempts"], "no attempt held a GPU")
    told = {"tenant": str(entry.get("vc") or ""), "outcome": str(entry.get("status") or "")}
    return {"name": str(entry["jobid"]), "arrival": arrival, "devices": devices, "duration": sum(lengths), **told}


def _attempts(attempts: Any) -> tuple[list[float], int]:
    """Seconds of each attempt that began and ended, and the most GPUs that one of these held."""
    lengths, most = [], 0
    for attempt in attempts if isinstance(attempts, list) else []:
        if not isinstance(attempt, Mapping):
            continue
        start, end = (as_date(str(attempt.get(key))) for key in ("start_time", "end_time"))
        if start is not None and end is not None:
            lengths.append(end - start)
            machines = [machine for machine in attempt.get("detail") or () if isinstance(machine, Mapping)]
            most = max(most, sum(len(machine.get("gpus") or ()) for machine in machines))
    return lengths, most


def _repeated(file: str, rows: list[dict[str, Any]]) -> list[TraceProblem]:
    counts = Counter(row["name"] for row in rows)
    return [
        TraceProblem(file, f"{times} jobs have this name; every job needs its own", "rename them", None, "jobid", name)
        for name, times in counts.items()
        if times > 1
    ]
