"""The policies `sia` and `gavel` in our simulator beside the authors' own."""

from __future__ import annotations

import numpy as np

from benchmarks.heterogeneous.cbc_program import available
from benchmarks.heterogeneous.their_runs import solved_alike, their_ends
from benchmarks.heterogeneous.workloads import ABSENT, WORKLOADS, differences, folder, hours, played, theirs
from benchmarks.simulated.part import Part

WITHIN = {"sia": 0.05, "gavel": 0.07}
"""Part of theirs by which a figure may differ."""
BY_JOB = 0.05
"""By how much a job's completion time may differ in the median."""
FIGURES = ("mean JCT", "p99 JCT", "makespan")


def measure(part: Part, repetitions: int) -> None:
    """Mean, 99th percentile and makespan of each workload, and the median difference job by job."""
    if folder() is None:
        part.note(ABSENT)
        return
    for name, within in WITHIN.items():
        rows = []
        for workload in WORKLOADS:
            outcome, reference = played(name, workload), theirs(name, workload)
            ours = hours(outcome)
            for what, own, their in zip(FIGURES, ours, (reference.mean, reference.p99, reference.makespan)):
                off = own / their - 1
                part.bar(f"{name} {workload}: {what} off theirs", off, f"-{within:g} to {within:g}", abs(off) <= within)
            median = float(np.median(differences(outcome, reference)))
            alike = _by_job(part, workload, median) if name == "sia" else "-"
            theirs_told = f"{reference.mean:.3f} / {reference.p99:.2f} / {reference.makespan:.1f}"
            ours_told = " / ".join(f"{value:.3f}" for value in ours)
            rows.append([workload, theirs_told, ours_told, f"{median:.1%}", alike, f"{outcome.seconds:.0f}"])
        columns = [
            "workload",
            "theirs: mean / p99 / makespan, h",
            "ours",
            "median off by job",
            "both with CBC; jobs that end at another second",
            "seconds",
        ]
        part.table(f"{name} in their simulator and in ours", columns, rows)


def _by_job(part: Part, workload: str, with_highs: float) -> str:
    """Each job's end beside theirs, with the solver of their code; where that is not installed, with HiGHS."""
    if not available():
        part.bar(f"sia {workload}: median off by job, HiGHS", with_highs, f"<= {BY_JOB:g}", with_highs <= BY_JOB)
        part.note(f"cylp is not installed: {workload} has HiGHS here and CBC there, which break ties in other ways")
        return "not played"
    outcome, ends = solved_alike(workload), their_ends(workload)
    told = np.array([ends[name] for name in outcome.names])
    median = float(np.median(np.abs((outcome.end - told) / (told - outcome.arrival))))
    part.bar(f"sia {workload}: median off by job, both with CBC", median, f"<= {BY_JOB:g}", median <= BY_JOB)
    others = np.count_nonzero(np.round(outcome.end) != told)
    return f"{median:.1%}; {others} of {len(told)}"
