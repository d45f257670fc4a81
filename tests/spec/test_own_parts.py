"""Folds, bags and subsets in a spec: what they stand for, and everything that can be wrong with them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from fleet.spec import EnsembleSpec, Job, Problem, SpecError, check, spec_hash
from fleet.spec.subsets import part_in_words, part_of
from preprocess import Bag, Fold, Part

SOURCE = {"source": "examples.digits:Digits", "arguments": {"train": True}}
DEFAULTS = {
    "data": "digits",
    "model": {"name": "trainers.zoo:MLP", "arguments": {"inputs": 784}},
    "optimizer": {"name": "SGD", "arguments": {"lr": 0.1}},
    "batch_size": 2,
    "stop": {"epochs": 1},
}


def spec(*jobs: dict[str, Any], overrides: tuple[str, ...] = (), **data: Any) -> EnsembleSpec:
    values = {"name": "s", "data": {"digits": {"train": SOURCE, **data}}, "defaults": DEFAULTS, "jobs": list(jobs)}
    return EnsembleSpec.from_mapping(values, overrides)


def problems(*jobs: dict[str, Any], **data: Any) -> dict[str, Problem]:
    """Of a form that cannot be, by path."""
    with pytest.raises(SpecError) as caught:
        spec(*jobs, **data)
    return {problem.path: problem for problem in caught.value.problems}


def test_folds_stand_for_a_job_each() -> None:
    made = spec({"name": "a", "folds": 3}, {"name": "b"}, {"name": "c", "folds": 3, "fold": 1})
    assert [(job.name, job.folds, job.fold) for job in made.jobs] == [
        ("a-fold-0", 3, 0), ("a-fold-1", 3, 1), ("a-fold-2", 3, 2), ("b", None, None), ("c", 3, 1),
    ]  # fmt: skip


def test_folds_go_together_with_grids_samples_and_defaults() -> None:
    grid = {"name": "w-{widths}", "folds": 2, "over": {"model.arguments.widths": [[4], [8]]}}
    made = spec({"grid": grid}, {"sample": {"name": "s-{index}", "count": 1, "folds": 2, "over": {}}})
    assert [job.name for job in made.jobs] == [
        "w-4-fold-0", "w-4-fold-1", "w-8-fold-0", "w-8-fold-1", "s-0-fold-0", "s-0-fold-1",
    ]  # fmt: skip
    varied = spec({"grid": {"name": "k{folds}", "over": {"folds": [2, None]}}})
    assert [job.name for job in varied.jobs] == ["k2-fold-0", "k2-fold-1", "knone"]
    everywhere = EnsembleSpec.from_mapping(
        {
            "name": "s", "data": {"digits": {"train": SOURCE}}, "defaults": {**DEFAULTS, "folds": 2},
            "jobs": [{"name": "a"}, {"name": "b", "folds": None}],
        }
    )  # fmt: skip
    assert [job.name for job in everywhere.jobs] == ["a-fold-0", "a-fold-1", "b"]


def test_overrides_reach_one_fold_or_all() -> None:
    made = spec({"name": "a", "folds": 2}, overrides=("jobs.a.batch_size=4", "jobs.a-fold-1.stop.epochs=7"))
    assert [(job.batch_size, job.stop.epochs) for job in made.jobs] == [(4, 1), (4, 7)]


def test_a_spec_with_parts_is_written_and_read_again() -> None:
    made = spec({"name": "a", "folds": 2, "bag": 0.5}, {"name": "b", "subset": [5, 1]}, {"name": "c", "subset": 9})
    again = EnsembleSpec.from_mapping(made.to_mapping())
    assert again == made and again.job("b").subset == (1, 5) and again.job("c").subset == 9


def test_each_part_has_a_digest_of_its_own_and_none_has_the_old_one() -> None:
    whole = spec({"name": "a"})
    assert spec_hash(whole) == spec_hash(spec({"name": "a", "bag": None, "subset": None, "folds": None}))
    parts: list[dict[str, Any]] = [
        {"bag": 0.5},
        {"bag": 0.6},
        {"subset": 4},
        {"subset": [0, 1, 2, 3]},
        {"folds": 3, "fold": 0},
    ]
    digests = {spec_hash(spec({"name": "a", **part})) for part in [{}, *parts]}
    assert len(digests) == len(parts) + 1


def test_seeds_of_order_draw_folds_and_those_of_weights_bags() -> None:
    seed = {"weights": 7, "order": 3}
    job = spec({"name": "a", "seed": seed, "folds": 4, "fold": 2, "bag": 0.5, "subset": 30}).jobs[0]
    assert part_of(job) == Part(30, Fold(2, 4, 3), Bag(0.5, 7))
    assert part_in_words(job) == "the first 30, without fold 2 of 4, a bag of 0.5"
    assert part_of(spec({"name": "a"}).jobs[0]) is None is part_in_words(spec({"name": "a"}).jobs[0])


def test_all_that_is_wrong_with_the_form_is_told_at_once() -> None:
    found = problems(
        {"name": "a", "folds": 1},
        {"name": "b", "bag": 0.0},
        {"name": "c", "bag": 1.5},
        {"name": "d", "subset": [1, 2, 1]},
        {"name": "e", "subset": 0},
        {"name": "f", "subset": []},
        {"name": "g", "subset": [-1]},
        {"name": "h", "folds": 3, "fold": 3},
        {"name": "i", "fold": 0},
        {"name": "j", "folds": "five"},
        {"name": "k", "subset": "few"},
    )
    rules = {path: problem.rule for path, problem in found.items()}
    assert rules["jobs[0].folds"] == "must be at least 2"
    assert rules["jobs[1].bag"] == "must be more than 0" and rules["jobs[2].bag"] == "must be at most 1.0"
    assert rules["jobs[3].subset"] == "names sample 1 more than once"
    assert rules["jobs[4].subset"] == "must be at least 1"
    assert rules["jobs[5].subset"].startswith("must have at least 1 element")
    assert rules["jobs[6].subset[0]"] == "must be at least 0"
    assert "no fold 3" in rules["jobs[7]"] and found["jobs[7]"].mend == "set fold to at most 2"
    assert "no fold 0" in rules["jobs[8]"] and "add `folds`" in found["jobs[8]"].mend
    assert rules["jobs[9].folds"] == rules["jobs[10].subset"] == "must be a whole number"


def test_more_jobs_than_a_spec_can_have_are_not_made() -> None:
    sample = {"name": "s-{index}", "count": 200, "folds": 1000, "over": {}}
    (problem,) = problems({"sample": sample}).values()
    assert problem.path == "jobs[0].sample.folds" and "more than 100,000 jobs" in problem.rule


def test_jobs_that_are_put_together_by_hand_are_one_for_each_fold() -> None:
    job = Job.model_validate({**DEFAULTS, "name": "a", "folds": 2})
    with pytest.raises(ValidationError, match="stands for 2 jobs"):
        EnsembleSpec(name="s", jobs=(job,))


def test_all_that_the_data_cannot_give_is_told_at_once() -> None:
    made = spec(
        {"name": "a", "folds": 9},
        {"name": "b", "subset": 9},
        {"name": "c", "subset": [0, 8]},
        {"name": "d", "subset": 3, "folds": 4},
        {"name": "e", "bag": 0.2, "batch_size": 3},
        {"name": "f", "folds": 8, "bag": 0.2, "batch_size": 1},
    )
    rules = {(problem.path, problem.rule) for problem in check(made, {"digits": (8, None)})}
    assert {path for path, _ in rules} == {
        "jobs[0].folds", "jobs[1].subset", "jobs[2].subset", "jobs[3].folds", "jobs[4].batch_size",
    }  # fmt: skip
    said = dict(rules)
    assert said["jobs[0].folds"].startswith("more folds than the 8 samples")
    assert said["jobs[1].subset"] == "the data set has 8 training samples"
    assert said["jobs[2].subset"].startswith("there is no sample 8")
    assert said["jobs[3].folds"].startswith("more folds than the 3 samples")
    assert said["jobs[4].batch_size"].endswith("there are 2 samples")


def test_folds_and_held_out_samples_exclude_each_other() -> None:
    found = check(spec({"name": "a", "folds": 4}, {"name": "b"}, held_out=SOURCE))
    (problem,) = found
    assert problem.path == "jobs[0].folds" and "take held_out away from data.digits" in problem.mend


def test_a_fold_is_evaluated_and_so_has_metrics_to_stop_at() -> None:
    stop = {"epochs": 2, "target": {"accuracy": 0.9}}
    assert not check(spec({"name": "a", "folds": 2, "metrics": ["accuracy"], "stop": stop}))
    assert check(spec({"name": "a", "bag": 0.5, "metrics": ["accuracy"], "stop": stop}))
