"""What became of every job, as comma-separated text: one line a job and case."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fleet.simulator.comparing.cases import Case
from fleet.simulator.outcome import SimulationOutcome

COLUMNS = (
    "policy", "seed", "job", "arrival", "begin", "end", "jct", "deadline", "in_time", "admitted", "dropped", "restarts",
    "gpu_seconds", "fairness",
)  # fmt: skip
LINE_END = "\r\n"  # RFC 4180
ROWS_AT_ONCE = 20_000


def job_lines(cases: Sequence[Case], outcomes: Sequence[SimulationOutcome]) -> Iterator[str]:
    """The text, some thousand lines at a time. Seconds since the first arrival; empty where it never came to that."""
    yield ",".join(COLUMNS) + LINE_END
    for case, outcome in zip(cases, outcomes, strict=True):
        for start in range(0, len(outcome.names), ROWS_AT_ONCE):
            part = io.StringIO()
            rows = _rows(case, outcome, slice(start, start + ROWS_AT_ONCE))
            csv.writer(part, lineterminator=LINE_END).writerows(rows)
            yield part.getvalue()


def _rows(case: Case, outcome: SimulationOutcome, part: slice) -> Iterator[tuple[Any, ...]]:
    having = np.isfinite(outcome.deadline[part])
    in_time = ["" if not has else _yes(met) for has, met in zip(having, outcome.in_time[part])]
    names = outcome.names[part]
    return zip(
        [case.label] * len(names), [case.seed] * len(names), names,
        *(_cells(values[part]) for values in (outcome.arrival, outcome.begin, outcome.end)),
        _cells(outcome.end[part] - outcome.arrival[part]), _cells(outcome.deadline[part]), in_time,
        map(_yes, outcome.admitted[part]), map(_yes, outcome.dropped[part]), outcome.restarts[part].tolist(),
        _cells(outcome.service[part]), _cells(outcome.fairness[part]),
    )  # fmt: skip


def _cells(values: Any) -> list[Any]:
    """Numbers as the shortest text that gives them back; nothing for those that are not finite."""
    return ["" if not finite else value for value, finite in zip(values.tolist(), np.isfinite(values).tolist())]


def _yes(flag: object) -> str:
    return "yes" if flag else "no"
