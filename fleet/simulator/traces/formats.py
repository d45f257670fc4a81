"""Traces in the formats of ElasticFlow, EasyScale, Pollux and Philly, and in fleet's own."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fleet.scheduling.model.arrays import Flags
from fleet.simulator.traces.table import GROWTH, MOST_BYTES, TraceError, TraceProblem, TraceTable, as_date
from fleet.simulator.traces.trace import FLAGS, MEASURES, TEXTS, WHOLE, JobColumns, Trace
from preprocess.files.memory import check_claim
from preprocess.files.reading import read_json
from preprocess.files.writing import write_parts

ELASTICFLOW = "elasticflow"
ELASTICFLOW_COLUMNS = (
    "job_id",
    "submission_time",
    "num_iteration",
    "model_name",
    "deadline",
    "batch_size",
    "num_gpu",
    "duration",
)
SHORT_COLUMNS = ("job_id", "submit_time", "iteration", "model_name", "ddl", "batch_size", "num_gpu", "duration")


def read_elasticflow(table: TraceTable) -> Trace:
    """Read ELASTICFLOW_COLUMNS or SHORT_COLUMNS; times are seconds, `batch_size` is the whole job's.

    A job without a deadline is best effort.

    Raises:
        TraceError: with every cell that is wrong.
    """
    names = SHORT_COLUMNS if table.has("submit_time") or table.has("ddl") else ELASTICFLOW_COLUMNS
    table.require(names, ELASTICFLOW)
    job, submitted, iterations, model, due, batch, devices, duration = names
    arrival = table.numbers(submitted, least=0)
    deadline = table.numbers(due, optional=True)
    table.check(~(deadline < arrival), due, "the deadline lies before the arrival", "correct one of the two")
    work = table.numbers(iterations, least=0, above=True)
    batch_size = table.numbers(batch, least=1, whole=True)
    columns: dict[str, Any] = {
        "name": table.names(job),
        "model": table.texts(model),
        "devices": table.numbers(devices, least=1, whole=True),
        "duration": table.numbers(duration, least=0, above=True),
    }
    table.finish()
    jobs = JobColumns.of(
        **columns,
        arrival=arrival,
        deadline=deadline,
        work=work,
        batch_size=batch_size,
        samples=work * batch_size,
        line=table.lines,
    )
    return Trace.of(jobs, table.file, ELASTICFLOW)


EASYSCALE = "easyscale"
AS_SIMULATED = "easyscale-as-simulated"
MIXED = "enable_heterogeneous_deterministic"
EASYSCALE_COLUMNS = ("name", "time", "application", "max_parallelism", "batch_size", "epochs", MIXED, "preferred_gpu")
EPOCH_SAMPLES = {
    "resnet50": 12_800.0,
    "vgg19": 12_800.0,
    "shufflenetv2": 12_800.0,
    "swintransformer": 12_800.0,
    "yolov3": 165.51,
    "bert": 886.41,
    "electra": 886.41,
    "ncf": 49_708.45,
}
"""Samples of an epoch in the artifact's simulator: a hundredth of each data set."""


def read_easyscale(table: TraceTable, format: str = EASYSCALE) -> Trace:
    """Read columns named as EASYSCALE_COLUMNS; `batch_size` is one virtual worker's, `max_parallelism` their number N.

    The artifact's file has a last column without a name. Where a row was not copied and edited it is a tenth of the
    epochs; the artifact's simulator never reads it, and nor does this.

    Names repeat in that file. All its rows are jobs here, and the later ones of a name are numbered. In the artifact's
    simulator a later row takes the place of an earlier one of its name: that is format AS_SIMULATED.

    Raises:
        TraceError: with every cell that is wrong.
    """
    table.require(EASYSCALE_COLUMNS, format)
    names, models = table.texts("name"), table.texts("application")
    arrival = table.numbers("time", least=0)
    workers = table.numbers("max_parallelism", least=1, whole=True)
    batch = table.numbers("batch_size", least=1, whole=True) * workers
    epochs = table.numbers("epochs", least=0, above=True)
    mixed = table.numbers(MIXED, least=0, whole=True) > 0  # one row says 40; the artifact takes it for a yes
    kinds = table.texts("preferred_gpu")
    table.finish()
    samples = epochs * np.array([EPOCH_SAMPLES.get(model.lower(), np.nan) for model in models])
    jobs = JobColumns.of(
        name=_numbered(names),
        arrival=arrival,
        model=[model.lower() for model in models],
        devices=workers,
        batch_size=batch,
        work=samples / batch,
        samples=samples,
        limit=workers,
        workers=workers,
        epochs=epochs,
        kind=[kind.lower() for kind in kinds],
        mixed=mixed,
        line=table.lines,
    )
    return _trace(table, names, jobs, format)


def read_easyscale_as_simulated(table: TraceTable) -> Trace:
    """The jobs that the artifact's simulator runs: the last of the rows with one name, where the first stood."""
    return read_easyscale(table, AS_SIMULATED)


def _trace(table: TraceTable, names: list[str], jobs: JobColumns, format: str) -> Trace:
    repeated = len(names) - len(set(names))
    if not repeated:
        return Trace.of(jobs, table.file, format)
    if format == EASYSCALE:
        note = f"{repeated} rows repeat a name; they were numbered: NAME#2, NAME#3"
        return Trace.of(jobs, table.file, format, (note,))
    last = {name: row for row, name in enumerate(names)}  # a dict keeps the place of the first
    kept = jobs.take(np.array(list(last.values())))
    note = f"{repeated} rows were replaced by later ones of their name, as the artifact's simulator does"
    return Trace.of(kept.renamed(last), table.file, format, (note,))


def _numbered(names: list[str]) -> list[str]:
    seen = dict.fromkeys(names, 0)
    told = []
    for name in names:
        seen[name] += 1
        told.append(name if seen[name] == 1 else _unused(name, seen))
    return told


def _unused(name: str, seen: dict[str, int]) -> str:
    while (numbered := f"{name}#{seen[name]}") in seen:
        seen[name] += 1
    return numbered


POLLUX = "pollux"
POLLUX_COLUMNS = ("name", "time", "application", "num_replicas", "batch_size")


def read_pollux(table: TraceTable) -> Trace:
    """Read columns named as POLLUX_COLUMNS; `batch_size` is the whole job's.

    The amount of work is not in the file: a job ends when its application's last epoch does
    (`benchmarks.papers.pollux_machine.PolluxRates.work`).

    Raises:
        TraceError: with every cell that is wrong.
    """
    table.require(POLLUX_COLUMNS, POLLUX)
    columns: dict[str, Any] = {
        "name": table.names("name"),
        "arrival": table.numbers("time", least=0),
        "model": table.texts("application"),
        "devices": table.numbers("num_replicas", least=1, whole=True),
        "batch_size": table.numbers("batch_size", least=1, whole=True),
    }
    table.finish()
    return Trace.of(JobColumns.of(**columns, line=table.lines), table.file, POLLUX)


PHILLY = "philly"
PHILLY_LOG = "philly-log"
PHILLY_NAMES = ("jobid", "job_id", "job", "name")
PHILLY_TIMES = ("submitted_time", "submission_time", "submit_time", "timestamp")
PHILLY_DEVICES = ("num_gpus", "gpus", "num_gpu")
PHILLY_TENANTS = ("vc", "cluster", "user")
PHILLY_MODELS = ("model", "model_name", "application")
PHILLY_STATUS = ("status",)
PHILLY_LOG_COLUMNS = ("jobid", "submitted_time", "attempts")


def read_philly(table: TraceTable) -> Trace:
    """Read a plain file of arrival (seconds or dates), devices and duration (seconds).

    The columns are the first that is there of PHILLY_TIMES, of PHILLY_DEVICES, and `duration`; where they are there,
    PHILLY_NAMES, PHILLY_TENANTS, PHILLY_MODELS and PHILLY_STATUS. Jobs without a name are numbered by their line.

    Raises:
        TraceError: with every cell that is wrong.
    """
    name, model, tenant, status = (
        _first(table, names) for names in (PHILLY_NAMES, PHILLY_MODELS, PHILLY_TENANTS, PHILLY_STATUS)
    )
    submitted, devices = (
        _first(table, PHILLY_TIMES) or PHILLY_TIMES[0],
        _first(table, PHILLY_DEVICES) or PHILLY_DEVICES[0],
    )
    table.require((submitted, devices, "duration"), PHILLY)
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
    return Trace.of(JobColumns.of(**columns, line=table.lines), table.file, PHILLY)


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
    return Trace.of(jobs, str(path), PHILLY_LOG, notes)


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
        blame("jobid", entry, "it must be an object with " + ", ".join(PHILLY_LOG_COLUMNS))
        return None
    for key in (key for key in PHILLY_LOG_COLUMNS if key not in entry):
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


NATIVE = "fleet"
NATIVE_COLUMNS = ("name", "arrival", "devices")
NATIVE_OTHERS = (*TEXTS[1:], *WHOLE, *MEASURES, "priority", *FLAGS)
_ROWS_AT_ONCE = 50_000
_LINE_END = "\r\n"  # RFC 4180; the csv module quotes a lone CR in a name only where lines end so


def read_native(table: TraceTable) -> Trace:
    """Read the columns name, arrival and devices, and whatever else `TraceJob` has; other columns are passed over.

    `samples` is work x batch_size where it is not given, and `work` likewise.

    Raises:
        TraceError: with every cell that is wrong.
    """
    table.require(NATIVE_COLUMNS, NATIVE)
    columns: dict[str, Any] = {"name": table.names("name"), "arrival": table.numbers("arrival", least=0)}
    columns["devices"] = table.numbers("devices", least=1, whole=True)
    columns |= {column: table.texts(column, "") for column in TEXTS[1:]}
    columns |= {column: table.numbers(column, least=1, whole=True, optional=True) for column in WHOLE}
    columns |= {column: table.numbers(column, 0, above=True, optional=True) for column in MEASURES}
    columns["priority"] = np.nan_to_num(table.numbers("priority", whole=True, optional=True))
    columns |= {"mixed": _flags(table, "mixed", "yes"), "soft": _flags(table, "soft", "no")}
    early = columns["deadline"] < columns["arrival"]
    table.check(~early, "deadline", "the deadline lies before the arrival", "correct one of the two")
    few = columns["minimum_devices"] > columns["devices"]
    table.check(
        ~few, "minimum_devices", "they are more than the devices that the job asks for", "correct one of the two"
    )
    alone = np.isnan(columns["service_devices"]) != np.isnan(columns["service_window"])
    table.check(~alone, "service_devices", "it goes with service_window", "give both, or none")
    table.finish()
    _complete(columns)
    return Trace.of(JobColumns.of(**columns, line=table.lines), table.file, NATIVE)


def write_trace(trace: Trace, path: Path) -> None:
    """Write a trace in fleet's own format: the columns that say something, whole or not at all. Times count from 0.

    Raises:
        OSError: it cannot be written; an earlier file of that name then stays as it was.
    """
    write_parts(path, _parts(trace.jobs))


def _parts(jobs: JobColumns) -> Iterator[str]:
    """The text of the file, some ten thousand jobs at a time."""
    columns = [*NATIVE_COLUMNS, *(column for column in NATIVE_OTHERS if _says_something(jobs, column))]
    yield ",".join(columns) + _LINE_END
    for start in range(0, len(jobs), _ROWS_AT_ONCE):
        part = io.StringIO()
        cells = (_cells(getattr(jobs, column)[start : start + _ROWS_AT_ONCE]) for column in columns)
        csv.writer(part, lineterminator=_LINE_END).writerows(zip(*cells))
        yield part.getvalue()


def _says_something(jobs: JobColumns, column: str) -> bool:
    values = getattr(jobs, column)
    if column in TEXTS:
        return any(values)
    if column == "mixed":
        return not values.all()
    return bool(values.any() if column in ("priority", "soft") else (~np.isnan(values)).any())


def _cells(values: Any) -> Sequence[Any]:
    """Numbers as the shortest text that gives them back, and nothing for NaN."""
    if isinstance(values, tuple):
        return values
    if values.dtype == np.bool_:
        return ["yes" if value else "no" for value in values.tolist()]
    if values.dtype == np.int64:
        return list(values.tolist())
    if (values == np.floor(values)).all():
        return list(values.astype(np.int64).tolist())
    return ["" if value != value else int(value) if value.is_integer() else value for value in values.tolist()]


def _flags(table: TraceTable, column: str, empty: str) -> Flags:
    """A column of yes and no; empty: what an empty cell stands for."""
    said = [cell.strip().lower() or empty for cell in table.texts(column, empty)]
    known = np.array([text in ("yes", "no") for text in said], dtype=np.bool_)
    table.check(known, column, "it must be yes or no", "write one of these")
    return np.array([text == "yes" for text in said], dtype=np.bool_)


def _complete(columns: dict[str, Any]) -> None:
    """Fill in whichever of work and samples is missing from the other."""
    work, samples, batch = columns["work"], columns["samples"], columns["batch_size"]
    columns["samples"] = np.where(np.isnan(samples), work * batch, samples)
    columns["work"] = np.where(np.isnan(work), samples / batch, work)
