"""Steps, logarithmic whole numbers and conditions of what a search varies, for every sampler."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from fleet.search import Record
from fleet.search.population import Explorer
from fleet.search.samplers import sampler_of
from fleet.search.space import answers_of, check_values, parameters, value_columns, value_row, values_of
from fleet.session.search.first_trials import fresh_search
from fleet.spec import EnsembleSpec, SpecError, check, loads, trial_job
from fleet.spec.distributions import Enumerated, corners, drawn
from fleet.spec.plugins import BadPart
from tests.search.support.sections import spec_of

SAMPLERS = ("random", "qmc", "tpe", "gp", "cmaes", "nsga2")
SPACE: dict[str, Any] = {
    "width": {"integer": [16, 120], "step": 16},
    "drop": {"uniform": [0.0, 0.5], "step": 0.1},
    "units": {"log_integer": [2, 1024]},
    "name": {"choice": ["SGD", "Adam"]},
    "momentum": {"uniform": [0.0, 0.9], "when": {"name": "SGD"}},
    "nesterov": {"choice": [True, False], "when": {"name": "SGD", "width": [16, 32, 48]}},
    "lr": {"cases": [{"log_uniform": [0.1, 1.0], "when": {"name": "SGD"}}, {"log_uniform": [0.001, 0.01]}]},
}


def section(over: Mapping[str, Any], **search: Any) -> Any:
    found = spec_of(over=over, **search).search
    assert found is not None
    return found


def fits(values: Mapping[str, Any]) -> None:
    """Check values by hand against SPACE."""
    sgd = values["name"] == "SGD"
    assert type(values["width"]) is int and values["width"] in range(16, 121, 16)
    assert values["drop"] in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
    assert type(values["units"]) is int and 2 <= values["units"] <= 1024
    assert ("momentum" in values) == sgd
    assert ("nesterov" in values) == (sgd and values["width"] <= 48)
    low, high = (0.1, 1.0) if sgd else (0.001, 0.01)
    assert low <= values["lr"] <= high


@pytest.mark.parametrize("name", SAMPLERS)
def test_every_sampler_gives_what_fits_and_takes_it_back(name: str) -> None:
    asked = section(SPACE, sampler=name, prefetch=0)
    model, records = sampler_of(asked, 3), list[Record]()
    for trial in range(24):
        values = model.suggest(trial, records)
        fits(values)
        assert list(values) == [path for path in SPACE if path in values]
        answers = answers_of(asked.over, values)
        same = values_of(asked.over, answers.__getitem__)
        assert same == {path: pytest.approx(v, rel=1e-11) if type(v) is float else v for path, v in values.items()}
        check_values(asked.over, same)
        row = value_row(asked.over, values)
        assert set(row) <= set(value_columns(asked.over)) and len(row) == len(values)
        records.append(Record(trial, values, {1: abs(values["width"] - 64) + values["lr"]}, "done"))
    again = sampler_of(asked, 3)
    assert [dict(again.suggest(n, records[:n])) for n in range(24)] == [dict(record.values) for record in records]
    assert len({record.values["name"] for record in records}) == 2


def test_what_was_drawn_before_there_were_steps_is_drawn_still() -> None:
    """Digests and draws of older specs stay what they were."""
    over = {"a": {"integer": [1, 9]}, "b": {"log_uniform": [0.001, 1.0]}, "c": {"choice": [1, 2]}}
    asked = section(over)
    told = asked.over["a"].model_dump(mode="json")
    assert told == {
        "choice": None, "uniform": None, "log_uniform": None, "integer": [1, 9], "blocks": None, "elements": None
    }  # fmt: skip
    assert drawn(asked.over, 1, 0) == {"a": 4, "b": 0.00442336726261, "c": 1}


def test_logarithmic_whole_numbers_are_spread_by_their_logarithms() -> None:
    asked = section({"n": {"log_int": [1, 1024]}})
    found = [drawn(asked.over, 0, index)["n"] for index in range(4000)]
    assert min(found) == 1 and max(found) > 900
    shares = Counter(value.bit_length() for value in found)
    assert all(250 < shares[bits] < 650 for bits in range(2, 11)), "each doubling has about as many"
    ((parameter, always),) = parameters(asked.over)
    assert always and all(parameter.at(parameter.part(value)) == value for value in range(1, 1025))


def test_steps_are_the_numbers_that_people_would_write() -> None:
    asked = section({"x": {"uniform": [0.1, 0.75], "step": 0.2}})
    ((parameter, _),) = parameters(asked.over)
    assert {parameter.at(part / 50) for part in range(50)} == {0.1, 0.3, 0.5, 0.7}
    assert parameter.high == 0.7 and parameter.rounded(0.42) == 0.5 and parameter.rounded(9.0) == 0.7


def test_a_grid_has_each_combination_that_there_is_once() -> None:
    over = {
        "momentum": {"choice": [0.0, 0.9], "when": {"name": "SGD"}},
        "name": {"choice": ["SGD", "Adam", "Lion"]},
        "width": {"integer": [1, 3]},
        "deep": {"uniform": [0.0, 1.0], "step": 0.5, "when": {"width": [2, 3]}},
    }
    asked = section(over, sampler="grid", trials=None)
    assert asked.combinations == asked.most_trials == (2 + 1 + 1) * (1 + 3 + 3)
    grid = sampler_of(asked, 0)
    found = [dict(grid.suggest(trial, ())) for trial in range(28)]
    assert len({json.dumps(values, sort_keys=True) for values in found}) == 28
    assert all(("momentum" in values) == (values["name"] == "SGD") for values in found)
    with pytest.raises(IndexError):
        grid.suggest(28, ())
    assert Enumerated(section(SPACE).over).count() is None


def test_corners_come_with_what_their_conditions_ask_for() -> None:
    found = corners(section(SPACE).over)
    for values in found:
        fits(values)
    assert {values.get("momentum") for values in found} == {None, 0.0, 0.9}
    assert {values["lr"] for values in found} >= {0.1, 1.0, 0.001, 0.01}


def test_true_and_one_are_two_choices() -> None:
    over = section({"x": {"choice": [True, 1, False, 0, None]}}).over
    for place, value in enumerate([True, 1, False, 0, None]):
        (answer,) = answers_of(over, {"x": value}).values()
        assert answer == place


def test_a_population_moves_by_steps() -> None:
    over = section({"x": {"integer": [10, 100], "step": 30}, "y": {"log_integer": [1, 64]}}).over
    found = [Explorer(over, 0, 0.1, (0.8, 1.2)).explored({"x": 40, "y": 8}, trial, 1) for trial in range(40)]
    assert {values["x"] for values in found} <= {10, 40, 70, 100} and len({values["x"] for values in found}) > 1
    assert all(1 <= values["y"] <= 64 for values in found)


@pytest.mark.parametrize(
    ("over", "told"),
    [
        ({"x": {"integer": [16, 128, 16]}}, "write {integer: [16, 128], step: 16}"),
        ({"x": {"log_uniform": [1.0, 9.0], "step": 2.0}}, "step stands beside integer or uniform"),
        ({"x": {"integer": [1, 9], "step": 0.5}}, "write a whole number"),
        ({"x": {"integer": [1, 9], "step": 20}}, "more than the whole range"),
        ({"x": {"normal": [0.0, 1.0]}}, "write uniform: [low, high]"),
        ({"x": {"lognormal": [0.0, 1.0]}}, "write log_uniform: [low, high]"),
        ({"x": {"choice": [1], "when": {"y": 2}}}, "y does not vary"),
        ({"x": {"choice": [1], "when": {"names": "a"}}, "optimizer.name": {"choice": ["a"]}}, "optimizer.name"),
        ({"x": {"choice": [1], "when": {"y": "sgd"}}, "y": {"choice": ["SGD", "Adam"]}}, "which it never is"),
        ({"x": {"choice": [1], "when": {"y": 1}}, "y": {"choice": [1], "when": {"x": 1}}}, "go in a circle"),
        ({"x": {"elements": [{"choice": [1], "when": {"y": 1}}]}, "y": {"choice": [1]}}, "beside the list"),
        ({"x": {"choice": [{"lr": {"log_uniform": [0.1, 1]}}]}}, "vary the parts by themselves"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_the_nearest_right_form(over: Mapping[str, Any], told: str) -> None:
    with pytest.raises(SpecError) as error:
        spec_over(over)
    assert told in " ".join(str(error.value).split())


def test_a_population_has_no_conditions() -> None:
    over = {
        "optimizer.arguments.lr": {"uniform": [0.1, 1.0], "when": {"optimizer.arguments.momentum": 0.5}},
        "optimizer.arguments.momentum": {"choice": [0.5]},
    }
    with pytest.raises(ValueError, match="a population changes values while its members train"):
        spec_of(over=over, stopping={"name": "population", "interval": 1}, trials=4)


def test_cmaes_says_what_it_lacks_where_all_numbers_have_conditions() -> None:
    over = {name: {"uniform": [0.0, 1.0], "when": {"z": 1}} for name in "xy"} | {"z": {"choice": [1, 2]}}
    with pytest.raises(BadPart, match="two numbers or more that are always there"):
        sampler_of(section(over, sampler="cmaes"), 0)


TRAINED = """
name: s
data: {d: {train: "preprocess:DrawnDigits", held_out: "preprocess:DrawnDigits"}}
defaults:
  data: d
  model: {name: "trainers.zoo:MLP", arguments: {inputs: 784, widths: [4], classes: 10}}
  stop: {epochs: 1}
search:
  name: "t-{trial}"
  job: {optimizer: {name: SGD, arguments: {lr: 0.1}}}
  over: OVER
  metric: loss
  width: 2
  trials: 8
"""


def spec_over(over: Mapping[str, Any]) -> EnsembleSpec:
    return loads(TRAINED.replace("OVER", json.dumps(over)))


def test_a_condition_lets_an_argument_be_set_where_it_is_taken_alone() -> None:
    name: dict[str, Any] = {"optimizer.name": {"choice": ["SGD", "Adam"]}}
    momentum = {"uniform": [0.0, 0.9]}
    (problem, *_) = check(spec_over(name | {"optimizer.arguments.momentum": momentum}))
    assert "Adam has no argument 'momentum'" in problem.rule and "when: {optimizer.name: SGD}" in problem.mend
    spec = spec_over(name | {"optimizer.arguments.momentum": {**momentum, "when": {"optimizer.name": "SGD"}}})
    assert not check(spec)
    search = fresh_search(spec)
    for segment in search.needed():
        values = search.values(segment.trial)
        job = trial_job(spec, segment.trial, values)
        assert job.optimizer is not None
        assert ("momentum" in job.optimizer.arguments) == (job.optimizer.name == "SGD")
    with pytest.raises(ValueError, match="the search varies"):
        trial_job(spec, 0, {"optimizer.name": "Adam", "optimizer.arguments.momentum": 0.5})


def test_what_takes_a_whole_number_is_told_so() -> None:
    problems = check(spec_over({"model.arguments.inputs": {"log_uniform": [2, 1024]}}))
    assert any("{log_integer: [2, 1024]}" in problem.mend for problem in problems)


def test_jobs_of_a_sample_have_conditions_too() -> None:
    text = TRAINED[: TRAINED.index("search:")] + (
        "jobs:\n  - sample:\n      name: 's-{index}'\n      count: 12\n      optimizer: {name: SGD}\n      over:\n"
        "        optimizer.name: {choice: [SGD, Adam]}\n"
        "        optimizer.arguments.momentum: {choice: [0.9], when: {optimizer.name: SGD}}\n"
    )
    spec = loads(text)
    kinds = {(job.optimizer.name, dict(job.optimizer.arguments).get("momentum")) for job in spec.jobs if job.optimizer}
    assert kinds == {("SGD", 0.9), ("Adam", None)}
