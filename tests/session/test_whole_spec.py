"""The jobs that a run's ranks train: those of the file, those that were added, a part of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from fleet.journal.run_requests import AddedJobs
from fleet.session.options import ProfileOrder, RunOptions
from fleet.session.whole_spec import whole_spec
from fleet.spec import EnsembleSpec, SpecError
from fleet.workers.agreement import BadInput

JOB = {
    "model": "trainers.zoo:MLP",
    "optimizer": {"name": "SGD", "arguments": {"lr": 0.1}},
    "data": "numbers",
    "stop": {"epochs": 1},
}


@pytest.fixture
def options(tmp_path: Path) -> RunOptions:
    """A run of a spec with the jobs `a`, `b` and `c`."""
    spec = {
        "name": "some",
        "data": {"numbers": {"train": "nowhere:Numbers"}},
        "jobs": [{"name": name, **JOB} for name in "abc"],
    }
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    return RunOptions(tmp_path / "spec.yaml", out=tmp_path / "run")


def names(spec: EnsembleSpec) -> list[str]:
    return [job.name for job in spec.jobs]


def added(options: RunOptions) -> AddedJobs:
    assert options.out is not None
    return AddedJobs(options.out)


def job(options: RunOptions, name: str, **keys: Any) -> dict[str, Any]:
    spec = whole_spec(options)
    return {**spec.jobs[0].model_dump(mode="json"), "name": name, **keys}


def test_a_fresh_run_has_the_jobs_of_its_file(options: RunOptions) -> None:
    assert names(whole_spec(options)) == ["a", "b", "c"]


def test_jobs_that_were_taken_in_are_part_of_it(options: RunOptions) -> None:
    added(options).take(job(options, "late"))
    assert names(whole_spec(options)) == ["a", "b", "c", "late"]


def test_an_offer_arrives_so_long_after_the_start(options: RunOptions, tmp_path: Path) -> None:
    added(options).offer(job(options, "late", arrival=5.0))
    (tmp_path / "run" / "journal.jsonl").write_text('{"t": 100.0, "event": "ended", "overhead_seconds": {}}\n')
    assert whole_spec(options).jobs[-1].arrival == 105.0


@pytest.mark.parametrize("wrong", [{"name": "a"}, {"virtual_workers": 0}])
def test_an_offer_that_cannot_be_trained_is_left_to_those_who_refuse_it(
    options: RunOptions, wrong: dict[str, Any]
) -> None:
    added(options).offer(job(options, "late") | wrong)
    assert names(whole_spec(options)) == ["a", "b", "c"]


def test_a_job_of_the_file_that_was_added_under_its_name_is_refused(options: RunOptions) -> None:
    added(options).take(job(options, "b"))
    assert names(whole_spec(options)) == ["a", "b", "c"], "the same: the file has caught up with it"
    added(options).take(job(options, "b") | {"batch_size": 1})
    with pytest.raises(BadInput, match="names a job b, and so does one that was added.*give yours another name"):
        whole_spec(options)


def test_parts_share_the_jobs_out(options: RunOptions) -> None:
    parts = [
        names(whole_spec(RunOptions(options.spec, profile=ProfileOrder(options.spec.with_name("r.json"), (n, 2)))))
        for n in (1, 2)
    ]
    assert parts == [["a", "c"], ["b"]]


def test_there_are_no_more_parts_than_jobs(options: RunOptions) -> None:
    with pytest.raises(BadInput, match="--part 1/4: the spec has 3 jobs; make at most 3 parts"):
        whole_spec(RunOptions(options.spec, profile=ProfileOrder(options.spec.with_name("r.json"), (1, 4))))


def test_a_file_that_is_wrong_says_so(options: RunOptions) -> None:
    options.spec.write_text("jobs: []\n")
    with pytest.raises(SpecError):
        whole_spec(options)
