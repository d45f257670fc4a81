"""A last batch that a network cannot take is told of before anything is trained."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.session.input_checks import BatchTrials, check_against_data
from fleet.spec import EnsembleSpec, SpecError
from fleet.workers.datasets import facts_of, open_datasets
from fleet.workers.runtime import Runtime
from trainers.task.task import drops_last

_MODULE = "benchmarks.numbered.written_tasks"


def _runtime(search: dict[str, Any] | None = None, **keys: Any) -> Runtime:
    job = {"model": f"{_MODULE}:Net", "data": "rows", "stop": {"epochs": 1}, "optimizer": "SGD", "batch_size": 8}
    job |= keys
    values: dict[str, Any] = {"name": "s", "data": {"rows": {"train": f"{_MODULE}:Rows"}}}
    if search is None:
        values["jobs"] = [{"name": "a", **job}]
    else:
        values |= {"defaults": job, "search": {"name": "b-{trial}", "job": {}, "metric": "loss", "width": 1, **search}}
    spec = EnsembleSpec.from_mapping(values)
    return Runtime(spec, facts_of(open_datasets(spec)))


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"virtual_workers": 2},
        {"batch_size": 20, "accumulate": 17},
        {"search": {"over": {"batch_size": {"choice": [20, 8]}}, "sampler": "grid"}},
    ],
)
def test_one_sample_before_batch_norm_is_refused_with_the_mend(keys: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=r"97 samples in batches.*more than 1 value per channel") as caught:
        check_against_data(_runtime(**keys), BatchTrials({}))
    assert "drop_last: true" in str(caught.value)


@pytest.mark.parametrize(
    "keys",
    [
        {"drop_last": True},
        {"drop_last": True, "virtual_workers": 2},
        {"batch_size": 16, "subset": 90},
        {"model": {"name": f"{_MODULE}:Net", "arguments": {"normalised": False}}},
        {"search": {"over": {"batch_size": {"choice": [20, 8]}}, "sampler": "grid"}, "drop_last": True},
    ],
)
def test_what_a_network_can_take_is_not_refused(keys: dict[str, Any]) -> None:
    check_against_data(_runtime(**keys), BatchTrials({}))


def test_an_epoch_counts_what_is_trained_on() -> None:
    runtime = _runtime(drop_last=True, virtual_workers=2)
    assert runtime.samples_of("a") == 97 and runtime.trained_in_epoch("a") == 96
    assert runtime.plan("a").steps_per_epoch == 6 and drops_last(runtime.task("a"))
    assert _runtime(virtual_workers=2, batch_size=49).trained_in_epoch("a") == 97


def test_a_task_class_says_whether_it_drops_and_a_job_says_otherwise() -> None:
    for said, expected in ((None, True), (False, False)):
        job = {"name": "a", "task": f"{_MODULE}:Dropping", "batch_size": 9, "stop": {"epochs": 1}, "drop_last": said}
        spec = EnsembleSpec.from_mapping({"name": "s", "jobs": [job]})
        runtime = Runtime(spec, facts_of(open_datasets(spec)))
        assert runtime.plan("a").drop_last is drops_last(runtime.task("a")) is expected


def test_a_batch_that_changes_is_not_dropped() -> None:
    with pytest.raises(SpecError, match="exclude each other"):
        _runtime(drop_last=True, batch={"range": [8, 16], "learning_rate": "keep", "change": "epochs"})


def test_weighed_samples_have_no_part() -> None:
    values = {
        "name": "s",
        "data": {"rows": {"train": f"{_MODULE}:Rows", "order": {"weights": "balanced"}}},
        "jobs": [
            {"name": "a", "model": f"{_MODULE}:Net", "data": "rows", "stop": {"epochs": 1}, "optimizer": "SGD",
             "subset": 50},
        ],
    }  # fmt: skip
    spec = EnsembleSpec.from_mapping(values)
    with pytest.raises(SpecError, match="never a part of them"):
        check_against_data(Runtime(spec, facts_of(open_datasets(spec))), BatchTrials({}))
