"""A run goes on with its own spec alone; jobs that were added later are no difference."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.journal.directory import RunDirectory
from fleet.journal.run_requests import AddedJobs
from fleet.session.opened import keep_to_spec
from fleet.workers.agreement import BadInput
from fleet.workers.runtime import Rehearsal, Runtime

Runtimes = Callable[..., Runtime]


@pytest.fixture
def begun(runtime: Runtimes, tmp_path: Path) -> RunDirectory:
    """The directory of a run with one job, that has a journal."""
    directory = RunDirectory(tmp_path)
    keep_to_spec(directory, runtime({"name": "a"}))
    directory.journal.touch()
    return directory


def test_the_same_spec_goes_on(begun: RunDirectory, runtime: Runtimes) -> None:
    written = begun.spec.read_text()
    keep_to_spec(begun, runtime({"name": "a"}))
    assert begun.spec.read_text() == written


@pytest.mark.parametrize("change", [{"seed": 9}, {"batch_size": 5}, {"stop": {"epochs": 4}}])
def test_another_is_refused_by_what_differs(begun: RunDirectory, runtime: Runtimes, change: dict[str, object]) -> None:
    with pytest.raises(BadInput, match=f"holds a run of another spec:\n.*{next(iter(change))}") as error:
        keep_to_spec(begun, runtime({"name": "a", **change}))
    assert "take the change back to go on" in str(error.value)


def test_how_float32_is_multiplied_stays_but_in_runs_from_before_there_was_a_choice(
    begun: RunDirectory, runtime: Runtimes
) -> None:
    whole = {"convolutions": "ieee"}
    with pytest.raises(BadInput, match=r"determinism\.convolutions: 'tf32' -> 'ieee'"):
        keep_to_spec(begun, runtime({"name": "a"}, determinism=whole))
    old = json.loads(begun.spec.read_text())
    del old["determinism"]
    begun.spec.write_text(json.dumps(old))
    keep_to_spec(begun, runtime({"name": "a"}, determinism=whole))
    with pytest.raises(BadInput, match=r"determinism\.convolutions: 'ieee' -> 'tf32'"):
        keep_to_spec(begun, runtime({"name": "a"}))


def test_what_changes_no_result_may_change(begun: RunDirectory, runtime: Runtimes) -> None:
    keep_to_spec(begun, runtime({"name": "a"}, resources={"timeout": 7.0}, checkpoints={"keep": 9}))


def test_a_rehearsal_does_not_go_on_as_a_run(begun: RunDirectory, runtime: Runtimes) -> None:
    with pytest.raises(BadInput, match="rehearsal"):
        keep_to_spec(begun, replace(runtime({"name": "a"}), rehearsal=Rehearsal(1.0)))


def test_a_job_that_was_added_is_no_change(begun: RunDirectory, runtime: Runtimes) -> None:
    with_late = runtime({"name": "a"}, {"name": "late"})
    AddedJobs(begun.path).take(with_late.job("late").model_dump(mode="json"))
    before = begun.spec.read_text()
    keep_to_spec(begun, with_late)
    assert begun.spec.read_text() == before


def test_a_directory_that_was_left_before_anything_began_takes_any_spec(runtime: Runtimes, tmp_path: Path) -> None:
    directory = RunDirectory(tmp_path)
    keep_to_spec(directory, runtime({"name": "a"}))
    keep_to_spec(directory, runtime({"name": "b"}))
    assert '"name": "b"' in directory.spec.read_text()
