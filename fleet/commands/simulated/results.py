"""The results of a comparison as plain data, and as files of a folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fleet.commands.simulated.page import comparison_page
from fleet.simulator.comparing.comparison import Comparison, device_lines, job_lines, timeline_lines
from fleet.simulator.outcome import SimulationOutcome
from preprocess.files.writing import make_folder, write_parts, write_whole

PAGE, FIGURES, JOBS, TIMELINE, DEVICES = "report.html", "simulation.json", "jobs.csv", "timeline.csv", "devices.csv"


def comparison_json(comparison: Comparison, outcomes: Sequence[SimulationOutcome]) -> dict[str, Any]:
    """One object for one simulation, {"runs": [...]} for several."""
    runs = [
        outcome.summary() | {"seed": case.seed, "parameters": dict(case.parameters)}
        for case, outcome in zip(comparison.cases, outcomes, strict=True)
    ]
    return runs[0] if len(runs) == 1 else {"runs": runs}


def write_jobs(path: Path, comparison: Comparison, outcomes: Sequence[SimulationOutcome]) -> None:
    """Write one line a job and simulation, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    write_parts(path, job_lines(comparison.cases, outcomes))


def write_folder(
    folder: Path, comparison: Comparison, outcomes: Sequence[SimulationOutcome], notes: Sequence[str]
) -> None:
    """Write everything, each file whole or not at all; the page comes last.

    Raises:
        OSError: a file cannot be written.
    """
    make_folder(folder)
    cases = comparison.cases
    write_whole(folder / FIGURES, json.dumps(comparison_json(comparison, outcomes), indent=1) + "\n")
    write_jobs(folder / JOBS, comparison, outcomes)
    write_parts(folder / TIMELINE, timeline_lines(cases, outcomes))
    write_parts(folder / DEVICES, device_lines(cases, outcomes, comparison.cluster))
    write_whole(folder / PAGE, comparison_page(comparison, outcomes, notes))
