"""The section `search`: its form, its trials as jobs, and what is wrong with it in one report."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from fleet.search.of_spec import search_of
from fleet.spec import EnsembleSpec, SpecError, check, loads, spec_hash, trial_job
from fleet.spec.distributions import Distribution, Enumerated, corners

TEXT = """\
name: searched
seed: 3
data: {toy: {train: "toys:Toy", held_out: "toys:Toy"}}
defaults: {data: toy, metrics: [accuracy], virtual_workers: 2, batch_size: 16}
search:
  name: "net-{trial:03d}-{width}"
  job: {model: "toys:Net", optimizer: SGD, stop: {epochs: 9}}
  over:
    model.arguments.width: {choice: [4, 8]}
    model.arguments.depths: {blocks: {count: [1, 3], each: {integer: [1, 2]}}}
    optimizer.arguments.lr: {log_uniform: [0.001, 0.1]}
  metric: accuracy
  sampler: tpe
  stopping: {name: halving, eta: 3, rungs: [1, 3, 9]}
  width: 4
  trials: 20
"""
VALUES = {"model.arguments.width": 8, "model.arguments.depths": [1, 2], "optimizer.arguments.lr": 0.01}


def problems(text: str) -> dict[str, tuple[str, str | None]]:
    """Path -> rule and nearest right answer."""
    with pytest.raises(SpecError) as found:
        loads(text)
    return {problem.path: (problem.rule, problem.suggestion) for problem in found.value.problems}


def changed(old: str, new: str) -> str:
    assert old in TEXT
    return TEXT.replace(old, new)


def test_a_search_needs_no_jobs_and_comes_back_from_its_mapping() -> None:
    spec = loads(TEXT)
    assert spec.jobs == () and spec.search is not None
    assert (spec.search.epochs, spec.search.rungs, spec.search.maximise) == (9, (1, 3, 9), True)
    again = EnsembleSpec.from_mapping(spec.to_mapping())
    assert again == spec and spec_hash(again) == spec_hash(spec)


def test_several_metrics_have_a_direction_each() -> None:
    several = changed("metric: accuracy", "metric: [accuracy, loss]").replace("sampler: tpe", "sampler: nsga2")
    search = loads(several).search
    assert search is not None and (search.metrics, search.maximises) == (("accuracy", "loss"), (True, False))
    search = loads(several.replace("loss]", "loss]\n  mode: [min, max]")).search
    assert search is not None and (search.maximise, search.maximises) == (False, (False, True))
    again = EnsembleSpec.from_mapping(loads(several).to_mapping())
    assert again == loads(several)


def test_a_trial_is_a_job_of_its_own() -> None:
    job = trial_job(loads(TEXT), 7, VALUES)
    assert (job.name, job.seed, job.virtual_workers, job.batch_size) == ("net-007-8", 3, 2, 16)
    assert job.model is not None and job.model.arguments == {"width": 8, "depths": [1, 2]}
    assert job.optimizer is not None and job.optimizer.arguments == {"lr": 0.01}


def test_trials_may_have_seeds_of_their_own() -> None:
    spec = loads(
        changed("model.arguments.width: {choice: [4, 8]}", "seed.weights: {integer: [5, 6]}").replace("-{width}", "")
    )
    values = {**VALUES, "seed.weights": 5}
    del values["model.arguments.width"]
    job = trial_job(spec, 0, values)
    assert (job.weights_seed, job.order_seed) == (5, 3)


def test_a_name_that_is_missing_is_one_problem() -> None:
    found = problems(changed('  name: "net-{trial:03d}-{width}"\n', ""))
    assert found == {"search.name": ("required key name is missing", None)}


def test_values_that_make_no_job_are_refused_where_they_are_varied() -> None:
    spec = loads(changed("model.arguments.width:", "batch_size:").replace("-{width}", ""))
    values = {"batch_size": 0, "model.arguments.depths": [1], "optimizer.arguments.lr": 0.1}
    with pytest.raises(SpecError, match=r"search.over.batch_size"):
        trial_job(spec, 0, values)
    with pytest.raises(ValueError, match="the search varies"):
        trial_job(spec, 0, {"batch_size": 4})
    with pytest.raises(ValueError, match="has no search"):
        trial_job(loads('{name: a, jobs: [{name: b, task: "a:B", stop: {epochs: 1}}]}'), 0, {})


@pytest.mark.parametrize(
    ("epochs", "eta", "rungs"), [(9, 3, (1, 3, 9)), (10, 3, (1, 3, 9, 10)), (1, 3, (1,)), (8, 2, (1, 2, 4, 8))]
)
def test_rungs_that_nobody_names(epochs: int, eta: int, rungs: tuple[int, ...]) -> None:
    spec = loads(changed("eta: 3, rungs: [1, 3, 9]", f"eta: {eta}").replace("epochs: 9", f"epochs: {epochs}"))
    assert spec.search is not None and spec.search.rungs == rungs


def test_the_last_rung_says_how_many_epochs_there_are_where_nobody_else_does() -> None:
    spec = loads(changed(", stop: {epochs: 9}", ""))
    assert trial_job(spec, 0, VALUES).stop.epochs == 9


def test_all_problems_at_once() -> None:
    text = (
        changed("-{width}", "-{widht}")
        .replace("optimizer: SGD", "optimzer: SGD")
        .replace("log_uniform", "loguniform")
        .replace("sampler: tpe", "sampler: tpes")
        .replace("eta: 3", "eta: 1")
        .replace("trials: 20", "trails: 20")
    )
    found = problems(text)
    assert {path: suggestion for path, (_, suggestion) in found.items()} == {
        "search.name": "{width}",
        "search.job.optimzer": "optimizer",
        'search.over["optimizer.arguments.lr"].loguniform': "log_uniform",
        "search.sampler": "tpe",
        "search.stopping.eta": "2",
        "search.trails": "trials",
    }
    assert found["search.sampler"][0] == "'tpes' is not a sampler; there are random, grid, qmc, tpe, cmaes, gp, nsga2"


@pytest.mark.parametrize(
    ("old", "new", "path", "rule", "suggestion"),
    [
        ("{trial:03d}", "x", "search.name", "so that trials would share one", "net-x-{width}-{trial}"),
        ("rungs: [1, 3, 9]", "rungs: [1, 3]", "search.stopping.rungs", "stop.epochs of its job is 9", "[1, 3, 9]"),
        ("rungs: [1, 3, 9]", "rungs: [3, 1, 9]", "search.stopping.rungs", "each more than the one before", "[1, 3, 9]"),
        ("halving", "median", "search.stopping", "median has no rungs", None),
        (
            "{name: halving, eta: 3, rungs: [1, 3, 9]}",
            "population",
            "search",
            "model.arguments.width cannot change",
            None,
        ),
        ("metric: accuracy", "metric: [accuracy, loss]", "search", "tpe learns from one metric", "nsga2"),
        ("metric: accuracy", "metric: []", "search.metric", "is the name of a metric, or a list", None),
        ("metric: accuracy", "metric: [loss, loss]", "search.metric", "loss stands there twice", None),
        ("metric: accuracy", "metric: loss\n  mode: mix", "search.mode", "is min or max", "min"),
        ("metric: accuracy", "metric: loss\n  mode: [min, max]", "search", "a direction for 2 of 1 metrics", None),
        ("sampler: tpe", "sampler: grid", "search", "optimizer.arguments.lr has any number of values", None),
        ("  trials: 20", "  # none", "search", "a search without an end", None),
        ("  trials: 20", "  budget: {}", "search.budget", "a budget of nothing", None),
        ("  trials: 20", "  budget: {hours: 0.0}", "search.budget.hours", "must be more than 0", None),
        ("batch_size: 16", "batch_size: largest", "defaults.batch_size", "must not depend on them", None),
        ("virtual_workers: 2", "folds: 3", "defaults.folds", "a trial is one network", None),
        ("optimizer: SGD", "batch: {range: [1, 64]}, optimizer: SGD", "search.job.batch", "depend on devices", None),
        ("model.arguments.width:", "stop.epochs:", "search.over", "all trials have the same epochs", None),
        ("optimizer.arguments.lr:", "optimiser.lr:", 'search.over["optimiser.lr"]', "unknown key", "optimizer"),
        ("width: 4", "costs: 0\n  width: 4", "search.costs", "a whole number of 1 or more", "operations"),
        ("width: 4", "width: 0", "search.width", "must be at least 1", "1"),
        ('model: "toys:Net", ', "", "search.job.model.name", "required key name is missing", None),
    ],
)
def test_what_is_wrong_with_a_search(old: str, new: str, path: str, rule: str, suggestion: str | None) -> None:
    found = problems(changed(old, new).replace("-{width}", "" if "width:" in old and "stop" in new else "-{width}"))
    assert rule in found[path][0]
    assert suggestion is None or found[path][1] == suggestion


def test_a_choice_that_makes_no_job_is_told_with_its_path() -> None:
    found = problems(
        changed("model.arguments.width: {choice: [4, 8]}", "batch_size: {choice: [4, 0]}").replace("-{width}", "")
    )
    assert found == {"search.over.batch_size": ("must be at least 1", "1")}


def test_synchronous_halving_says_how_many_trials_there_are() -> None:
    text = changed("rungs: [1, 3, 9]", "synchronous: true").replace("trials: 20", "budget: {epochs: 50}")
    assert "nobody says how many there are" in problems(text)["search"][0]


def test_the_clock_alone_may_bound_a_search() -> None:
    spec = loads(changed("  trials: 20", "  budget: {hours: 4}"))
    search = spec.search
    assert search is not None and (search.most_trials, search.most_epochs) == (None, None)
    assert search_of(spec, lambda trial, values: 1).needed()


def test_jobs_may_stand_beside_a_search_but_not_with_its_names() -> None:
    job = '{name: "NAME", model: "toys:Net", optimizer: SGD, stop: {epochs: 1}}'
    spec = loads(TEXT + "jobs: [" + job.replace("NAME", "alone") + "]\n")
    assert [each.name for each in spec.jobs] == ["alone"] and spec.search is not None
    found = problems(TEXT + "jobs: [" + job.replace("NAME", "net-003-4") + "]\n")
    assert "the job 'net-003-4' has a name that a trial may have" in found["search.name"][0]


def test_a_spec_without_jobs_and_search_is_refused() -> None:
    assert problems("name: x\nsearch: null\n")["jobs"][0] == "required key jobs is missing"


def test_a_grid_has_as_many_trials_as_combinations() -> None:
    grid = changed("sampler: tpe", "sampler: grid").replace("log_uniform: [0.001, 0.1]", "choice: [0.1, 0.01]")
    spec = loads(grid.replace("  trials: 20\n", ""))
    assert spec.search is not None and spec.search.most_trials == 2 * (2 + 4 + 8) * 2
    found = problems(grid.replace("trials: 20", "trials: 57"))
    assert found["search"][0] == "trials is 57, and the grid has 56 combinations"


def test_bounds_do_not_count_for_the_hash_and_all_else_does() -> None:
    same = spec_hash(loads(TEXT))
    assert spec_hash(loads(changed("trials: 20", "trials: 30").replace("width: 4", "width: 5"))) == same
    assert spec_hash(loads(changed("eta: 3", "eta: 2"))) != same
    assert spec_hash(loads(changed("choice: [4, 8]", "choice: [4, 9]"))) != same


def test_corners_hold_every_choice_and_both_ends() -> None:
    over = {
        "a": Distribution(choice=(1, 2, 3)),
        "b": Distribution.model_validate({"blocks": {"count": [1, 2], "each": {"uniform": [0.0, 1.0]}}}),
        "c": Distribution.model_validate({"elements": [{"integer": [5, 6]}, {"choice": ["x"]}]}),
    }
    found = corners(over)
    assert {each["a"] for each in found} == {1, 2, 3}
    assert {tuple(each["b"]) for each in found} == {(0.0,), (1.0,), (0.0, 0.0), (1.0, 1.0)}
    assert {tuple(each["c"]) for each in found} == {(5, "x"), (6, "x")}
    two = {path: over[path] for path in ("a", "c")}
    assert Enumerated(two).count() == 6 and Enumerated(over).count() is None


NET = """
    import torch

    class Toy:
        def __len__(self): return 64
        def __getitem__(self, index): return torch.zeros(3), 0

    class Net(torch.nn.Linear):
        def __init__(self, width, depths=(1,)):
            super().__init__(3, 2 if width < 9 else width // 0)

    constant = 5
"""


@pytest.fixture
def checked(module: Callable[[str, str], pathlib.Path], tmp_path: pathlib.Path) -> Callable[[str], dict[str, Any]]:
    module("toys", NET)
    return lambda text: {problem.path: problem.rule for problem in check(loads(text, folder=tmp_path))}


def test_trials_are_built_before_anything_is_trained(checked: Callable[[str], dict[str, Any]]) -> None:
    assert checked(TEXT) == {}
    found = checked(changed("choice: [4, 8]", "choice: [4, 8, 10]"))
    assert list(found) == ['search.over["model.arguments.width"]'] and "ZeroDivisionError" in str(found)


def test_what_is_measured_is_known(checked: Callable[[str], dict[str, Any]]) -> None:
    found = checked(changed("metric: accuracy", "metric: acuracy"))
    assert found == {"search.metric": "'acuracy' is not measured; trials measure loss, test_loss, accuracy"}
    found = checked(changed("metric: accuracy", "metric: [loss, acuracy]").replace("sampler: tpe", "sampler: random"))
    assert found == {"search.metric": "'acuracy' is not measured; trials measure loss, test_loss, accuracy"}


def test_costs_that_are_named_must_be_there(checked: Callable[[str], dict[str, Any]]) -> None:
    assert "toys has no 'Cost'" in checked(TEXT + '  costs: "toys:Cost"\n')["search.costs"]
    assert "cannot be called" in checked(TEXT + '  costs: "toys:constant"\n')["search.costs"]


def test_trainers_that_could_never_work_are_told(checked: Callable[[str], dict[str, Any]]) -> None:
    assert checked(TEXT + "resources: {trainers: 40}\n") == {}
    assert "more than the 40 virtual workers" in checked(TEXT + "resources: {trainers: 41}\n")["resources.trainers"]
