"""The workloads of Pollux (Qiao et al., OSDI'21)."""

from __future__ import annotations

from typing import Any

from fleet.simulator.traces.columns import JobColumns
from fleet.simulator.traces.table import TraceTable
from fleet.simulator.traces.trace import Trace

FORMAT = "pollux"
COLUMNS = ("name", "time", "application", "num_replicas", "batch_size")


def read_pollux(table: TraceTable) -> Trace:
    """Read columns named as COLUMNS; `batch_size` is the whole job's.

    The amount of work is not in the file: a job ends when its application's last epoch does
    (`benchmarks.papers.pollux_machine.PolluxRates.work`).

    Raises:
        TraceError: with every cell that is wrong.
    """
    table.require(COLUMNS, FORMAT)
    columns: dict[str, Any] = {
        "name": table.names("name"),
        "arrival": table.numbers("time", least=0),
        "model": table.texts("application"),
        "devices": table.numbers("num_replicas", least=1, whole=True),
        "batch_size": table.numbers("batch_size", least=1, whole=True),
    }
    table.finish()
    return Trace.of(JobColumns.of(**columns, line=table.lines), table.file, FORMAT)
