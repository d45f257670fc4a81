"""The traces of ElasticFlow (Gu et al., ASPLOS'23), under both headings that they come with."""

from __future__ import annotations

from typing import Any

from fleet.simulator.traces.columns import JobColumns
from fleet.simulator.traces.table import TraceTable
from fleet.simulator.traces.trace import Trace

FORMAT = "elasticflow"
COLUMNS = (
    "job_id", "submission_time", "num_iteration", "model_name", "deadline", "batch_size", "num_gpu", "duration",
)  # fmt: skip
SHORT_COLUMNS = ("job_id", "submit_time", "iteration", "model_name", "ddl", "batch_size", "num_gpu", "duration")


def read_elasticflow(table: TraceTable) -> Trace:
    """Read columns named as COLUMNS or as SHORT_COLUMNS; times are seconds, `batch_size` is the whole job's.

    A job without a deadline is best effort.

    Raises:
        TraceError: with every cell that is wrong.
    """
    names = SHORT_COLUMNS if table.has("submit_time") or table.has("ddl") else COLUMNS
    table.require(names, FORMAT)
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
    return Trace.of(jobs, table.file, FORMAT)
