"""The benchmark of ElasticFlow's figures draws the authors' jobs, and plays them under the schedulers that it names."""

from __future__ import annotations

import inspect
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from benchmarks import elasticflow_figures
from benchmarks.figures import best_effort, efficiency, sizes
from benchmarks.figures.best_effort import free_completion
from benchmarks.figures.drawn_jobs import NETWORKS, Draw
from benchmarks.figures.efficiency import HOURS, early_efficiency
from benchmarks.figures.schedulers import OURS, SCHEDULERS, played
from benchmarks.simulated.part import Part
from fleet.simulator.machines.rate_tables import RateTable

RATES = RateTable({network: {1: 1.0, 2: 1.8, 4: 3.0, 8: 4.5, 16: 6.0} for network in NETWORKS})
FOLDER = Path(sizes.__file__).parent
LOGGED = {  # job -> when it came and its deadline, in the artifact's log of Figure 10
    0: (0, 5896), 1: (4686, 11932), 2: (9116, 10244), 3: (9203, 25437), 4: (9336, 11357), 5: (12043, 156466),
    6: (14041, 161534), 7: (15703, 17217), 8: (16255, 34298), 9: (17652, 29296), 10: (19052, 20174),
}  # fmt: skip


def test_the_jobs_of_figure_10_are_those_of_the_authors_log() -> None:
    jobs = efficiency.DRAW.trace(RATES).jobs
    assert len(jobs) == 100 and not np.isnan(jobs.deadline).any()
    assert {row: (jobs[row].arrival, jobs[row].deadline) for row in LOGGED} == LOGGED
    assert [jobs[row].devices for row in (5, 6, 7)] == [1, 8, 1]


def test_another_repetition_changes_deadlines_alone() -> None:
    first, again, other = (sizes.DRAW.trace(RATES, repetition).jobs for repetition in (0, 0, 1))
    assert (first.deadline == again.deadline).all() and (first.deadline != other.deadline).any()
    assert (first.arrival == other.arrival).all() and (first.work == other.work).all() and first.model == other.model
    tightness = (first.deadline - first.arrival) / first.duration
    assert 0.49 < tightness.min() < 0.55 and 1.45 < tightness.max() < 1.51


def test_as_many_jobs_as_asked_for_have_no_deadline() -> None:
    free = np.isnan(replace(Draw(1000, 900), best_effort=0.3).trace(RATES).jobs.deadline)
    assert 250 < free.sum() < 350


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_each_scheduler_plays_a_short_trace(scheduler: str) -> None:
    outcome = played(scheduler, Draw(20, 900, best_effort=0.5).trace(RATES), RATES, 2)
    assert outcome.finished[~np.isfinite(outcome.deadline)].all() and free_completion(outcome) > 0


def test_efficiency_is_that_of_the_first_hours_alone() -> None:
    short = played(OURS, Draw(4, 10.0, tightness=(1.5, 1.5)).trace(RATES), RATES, 1)
    assert short.makespan < HOURS * 3600
    assert early_efficiency(short) == pytest.approx(short.alone / (HOURS * 3600.0 * 8), rel=0.05)


def test_every_figure_is_called_as_parts_are_and_says_where_its_data_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    having = {path.stem for path in FOLDER.glob("[!_]*.py") if "\ndef measure(" in path.read_text()}
    assert having == {*elasticflow_figures.PARTS}
    for name in having:
        measure = import_module(f"benchmarks.figures.{name}").measure
        assert list(inspect.signature(measure).parameters) == ["part", "repetitions"]
    monkeypatch.setenv("FLEET_TRACES", str(tmp_path))
    for figure in (sizes, efficiency, best_effort):
        part = Part()
        figure.measure(part, 1)
        assert not part.bars and "FLEET_TRACES" in part.notes[0]
