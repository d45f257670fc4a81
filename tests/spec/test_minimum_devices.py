"""`minimum_devices` of a job: what it may be, and which policies and machines can give it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from fleet.spec import EnsembleSpec, SpecError, spec_hash
from fleet.spec.semantics import _minimum_problems


def spec(small: dict[str, Any], least: Any, workers: Any = 4, **sections: Any) -> EnsembleSpec:
    values = copy.deepcopy(small) | sections
    values["jobs"][0] |= {"virtual_workers": workers, "minimum_devices": least}
    return EnsembleSpec.from_mapping(values)


def test_it_says_when_a_job_trains_and_not_what_comes_out(small: dict[str, Any]) -> None:
    assert spec_hash(spec(small, 3)) == spec_hash(spec(small, 1))


@pytest.mark.parametrize("least", [0, -1, "2", 1.5, True])
def test_it_is_a_number_of_devices(small: dict[str, Any], least: Any) -> None:
    with pytest.raises(SpecError) as caught:
        spec(small, least)
    assert [problem.path for problem in caught.value.problems] == ["jobs[0].minimum_devices"]


def test_it_is_no_more_than_the_job_can_use(small: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match="minimum_devices is 5, more than the 4 of virtual_workers"):
        spec(small, 5)


def test_workers_that_are_chosen_are_enough_for_it(small: dict[str, Any]) -> None:
    (job,) = spec(small, 3, "auto").jobs
    assert job.auto_workers and job.virtual_workers == 3
    with pytest.raises(SpecError, match="must be at least 1"):
        spec(small, 0, "auto")


def test_policies_that_do_not_keep_it_are_told_with_the_mend(small: dict[str, Any]) -> None:
    (problem,) = _minimum_problems(spec(small, 3, policy="flotilla"))
    assert problem.path == "jobs[0].minimum_devices" and "policy flotilla gives a job any number" in problem.rule
    assert "take minimum_devices away" in problem.mend
    assert not list(_minimum_problems(spec(small, 3, policy="fifo")))
    assert not list(_minimum_problems(spec(small, 1, policy="flotilla")))
