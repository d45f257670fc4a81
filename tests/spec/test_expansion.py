# ruff: noqa: E501  (tables of cases, one a line)
"""Grids, samples and defaults."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.spec import EnsembleSpec, SpecError
from fleet.spec.distributions import Distribution, draw, fraction
from fleet.spec.expansion import merged


def jobs_of(*entries: dict[str, Any], **rest: Any) -> tuple[Any, ...]:
    values = {"name": "x", "defaults": {"task": "m:T", "stop": {"epochs": 1}}, "jobs": list(entries), **rest}
    return EnsembleSpec.from_mapping(values).jobs


def test_a_grid_varies_the_last_path_fastest() -> None:
    over = {"task.arguments.a": [1, 2], "seed": [5, 6, 7]}
    jobs = jobs_of({"grid": {"name": "j-{a}-{seed}", "over": over, "batch_size": 4}})
    assert [job.name for job in jobs] == [f"j-{a}-{seed}" for a in (1, 2) for seed in (5, 6, 7)]
    assert [(job.task.arguments["a"], job.seed) for job in jobs] == list(itertools.product((1, 2), (5, 6, 7)))
    assert all(job.batch_size == 4 for job in jobs)


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("n-{index}", "n-0"),
        ("n{index:03d}", "n000"),
        ("n-{lr:.1e}", "n-3.1e-02"),
        ("n-{lr}", "n-0.03125"),
        ("n-{task.arguments.lr}", "n-0.03125"),
        ("n-{blocks}", "n-6-12"),
        ("n-{flag}-{none}", "n-true-none"),
        ("n-{loss}", "n-mse_loss"),
        ("n-{kind}", "n-Net"),
        ("n-{lr:d}", "n-0.03125"),
    ],
)
def test_templates_of_names(template: str, name: str) -> None:
    over = {
        "task.arguments.lr": [0.03125],
        "task.arguments.blocks": [[6, 12]],
        "task.arguments.flag": [True],
        "task.arguments.none": [None],
        "task.arguments.loss": [{"name": "mse_loss"}],
        "task.arguments.kind": ["a.b:Net"],
    }
    (job,) = jobs_of({"grid": {"name": template, "over": over}})
    assert job.name == name


def test_seeds_apart() -> None:
    over = {"seed.weights": [1, 2]}
    grid, single, same = {"name": "g-{weights}", "over": over}, {"weights": 3}, {"weights": 4, "order": 9}
    jobs = jobs_of({"grid": grid}, {"name": "a", "seed": single}, {"name": "b", "seed": same}, {"name": "c"}, seed=5)
    assert [(job.weights_seed, job.order_seed) for job in jobs] == [(1, 5), (2, 5), (3, 5), (4, 9), (5, 5)]
    assert EnsembleSpec.from_mapping(jobs_spec(jobs)).jobs == jobs
    (job,) = jobs_of({"name": "d", "seed": 6}, defaults={"task": "m:T", "stop": {"epochs": 1}, "seed": same})
    assert (job.weights_seed, job.order_seed) == (6, 6)


def jobs_spec(jobs: tuple[Any, ...]) -> dict[str, Any]:
    return {"name": "x", "jobs": [job.model_dump(mode="json") for job in jobs]}


@pytest.mark.parametrize(
    ("seed", "told"),
    [
        (-1, "seed = -1\n      must be at least 0"),
        ("x", "seed = 'x'\n      must be a whole number"),
        ({"weights": -1}, "seed.weights = -1\n      must be at least 0"),
        ({"weight": 1}, "unknown key 'weight'"),
        ({"weights": 1.5}, "seed.weights = 1.5\n      must be a whole number"),
    ],
)
def test_seeds_that_are_none(seed: Any, told: str) -> None:
    with pytest.raises(SpecError) as raised:
        jobs_of({"name": "a", "seed": seed})
    assert told in str(raised.value)
    assert len(raised.value.problems) == 1


def test_a_placeholder_of_two_paths_must_be_written_out() -> None:
    over = {"task.arguments.lr": [1], "task.arguments.deep.lr": [2]}
    with pytest.raises(SpecError, match="could be several paths"):
        jobs_of({"grid": {"name": "n-{lr}", "over": over}})
    (job,) = jobs_of({"grid": {"name": "n-{task.arguments.deep.lr}", "over": over}})
    assert job.name == "n-2" and job.task.arguments == {"lr": 1, "deep": {"lr": 2}}


def test_a_grid_that_is_too_large_is_refused_before_it_is_made() -> None:
    over = {f"task.arguments.a{number}": list(range(100)) for number in range(6)}
    with pytest.raises(SpecError, match="1,000,000,000,000 jobs, more than 100,000"):
        jobs_of({"grid": {"name": "n-{index}", "over": over}})


def test_entries_that_are_too_large_together_are_refused() -> None:
    over = {f"task.arguments.a{number}": list(range(50)) for number in range(2)}
    sample = {"name": "s-{index}", "count": 98_000, "over": {"task.arguments.a": {"integer": [1, 4]}}}
    grid = {"grid": {"name": "n-{index}", "over": over}}
    with pytest.raises(SpecError, match="with it the spec has 100,500 jobs, more than 100,000"):
        jobs_of(grid, {"sample": sample})


def test_single_jobs_that_are_too_many_are_refused() -> None:
    one = {"name": "a"}
    with pytest.raises(SpecError, match="the spec has more than 100,000 jobs"):
        jobs_of(*[one] * 100_001)


@pytest.mark.parametrize(
    ("blocks", "told"),
    [
        ({"count": 1_000_000_000, "each": {"choice": [1]}}, "must be at most 1000"),
        ({"count": 1000, "each": {"blocks": {"count": 1000, "each": {"choice": [1]}}}}, "draw up to 4,004,004 values"),
    ],
)
def test_lists_that_are_too_long_are_refused_before_they_are_drawn(blocks: dict[str, Any], told: str) -> None:
    sample = {"name": "n-{index}", "count": 4, "over": {"task.arguments.a": {"blocks": blocks}}}
    with pytest.raises(SpecError, match=told):
        jobs_of({"sample": sample})


def test_what_is_varied_is_not_shared() -> None:
    first, second = jobs_of({"grid": {"name": "n-{index}", "over": {"seed": [1, 2], "task.arguments.x": [[1]]}}})
    first.task.arguments["x"].append(2)
    assert second.task.arguments["x"] == [1]


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(st.sampled_from("abcdef"), st.lists(st.integers(), min_size=1, max_size=4, unique=True), max_size=4)
)
def test_a_grid_has_one_job_for_each_combination(axes: dict[str, list[int]]) -> None:
    over = {f"task.arguments.{key}": values for key, values in axes.items()}
    jobs = jobs_of({"grid": {"name": "n-{index}", "over": over}})
    assert len(jobs) == math.prod(len(values) for values in axes.values())
    assert len({tuple(sorted(job.task.arguments.items())) for job in jobs}) == len(jobs)


def test_a_sample_has_the_same_draws_each_time() -> None:
    sample = {
        "name": "n-{index}",
        "count": 3,
        "seed": 1,
        "over": {
            "task.arguments.width": {"choice": [8, 16, 32]},
            "task.arguments.lr": {"log_uniform": [0.001, 0.1]},
            "task.arguments.drop": {"uniform": [0, 0.5]},
            "task.arguments.depth": {"integer": [1, 6]},
            "task.arguments.blocks": {"blocks": {"count": [2, 4], "each": {"choice": [16, 32]}}},
            "task.arguments.sizes": {"elements": [{"integer": [1, 3]}, {"integer": [10, 30]}]},
        },
    }
    drawn = [job.task.arguments for job in jobs_of({"sample": sample})]
    assert drawn == [job.task.arguments for job in jobs_of({"sample": sample})]
    assert drawn[0] == GOLDEN  # draws are promised to stay the same in later versions
    assert drawn[0] != drawn[1]


GOLDEN: dict[str, Any] = {
    "width": 32,
    "lr": 0.00647225484596,
    "drop": 0.10056056779187889,
    "depth": 6,
    "blocks": [16, 16],
    "sizes": [2, 13],
}


SAMPLED = {"task.arguments.a": {"uniform": [0, 1]}, "task.arguments.b": {"integer": [0, 10**6]}}


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31 - 1), st.sampled_from("cdef"), st.integers(1, 5))
def test_a_further_key_or_job_changes_no_draw(seed: int, key: str, more: int) -> None:
    def drawn(count: int, over: dict[str, Any]) -> list[tuple[float, int]]:
        jobs = jobs_of({"sample": {"name": "n-{index}", "count": count, "seed": seed, "over": over}})
        return [(job.task.arguments["a"], job.task.arguments["b"]) for job in jobs]

    wider = {f"task.arguments.{key}": {"choice": [1, 2]}, **dict(reversed(SAMPLED.items()))}
    assert drawn(3 + more, wider)[:3] == drawn(3, SAMPLED)
    assert len(set(drawn(3, SAMPLED))) == 3


def test_a_sample_without_seed_takes_that_of_the_ensemble() -> None:
    sample = {"name": "n-{index}", "count": 2, "over": SAMPLED}
    of_ensemble = jobs_of({"sample": sample}, seed=7)
    own = jobs_of({"sample": {**sample, "seed": 7}})
    other = jobs_of({"sample": sample}, seed=8)
    assert [job.task for job in of_ensemble] == [job.task for job in own] != [job.task for job in other]
    assert [job.seed for job in of_ensemble] == [7, 7] and [job.seed for job in own] == [0, 0]


NUMBERS = st.integers(-1000, 1000)
RANGES = st.tuples(NUMBERS, NUMBERS).map(sorted)
DISTRIBUTIONS = st.recursive(
    st.builds(lambda pair: {"uniform": pair}, RANGES)
    | st.builds(lambda pair: {"integer": pair}, RANGES)
    | st.builds(lambda low, factor: {"log_uniform": [low, low * factor]}, st.floats(1e-9, 1e3), st.floats(1, 1e6))
    | st.builds(lambda values: {"choice": values}, st.lists(NUMBERS, min_size=1, max_size=4)),
    lambda inner: (
        st.builds(
            lambda each, low, more: {"blocks": {"count": [low, low + more], "each": each}},
            inner,
            st.integers(1, 3),
            st.integers(0, 3),
        )
        | st.builds(lambda elements: {"elements": elements}, st.lists(inner, min_size=1, max_size=3))
    ),
    max_leaves=4,
)


def assert_drawn(value: Any, form: dict[str, Any]) -> None:
    ((kind, rule),) = form.items()
    if kind in ("uniform", "log_uniform"):
        assert rule[0] <= value <= rule[1]
    elif kind == "integer":
        assert type(value) is int and rule[0] <= value <= rule[1]
    elif kind == "choice":
        assert value in rule
    elif kind == "blocks":
        assert rule["count"][0] <= len(value) <= rule["count"][1]
        for child in value:
            assert_drawn(child, rule["each"])
    else:
        assert len(value) == len(rule)
        for child, inner in zip(value, rule):
            assert_drawn(child, inner)


@settings(max_examples=100, deadline=None)
@given(DISTRIBUTIONS, st.integers(0, 2**31 - 1), st.integers(0, 1000))
def test_draws_lie_within_their_distribution(form: dict[str, Any], seed: int, index: int) -> None:
    assert_drawn(draw(Distribution.model_validate(form), seed, index, "a.b"), form)


def test_every_end_can_be_drawn() -> None:
    integers = Distribution.model_validate({"integer": [1, 3]})
    assert {draw(integers, 0, index, "a") for index in range(100)} == {1, 2, 3}
    blocks = Distribution.model_validate({"blocks": {"count": 2, "each": {"choice": [0, 1]}}})
    assert {tuple(draw(blocks, 0, index, "a")) for index in range(100)} == {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_fractions_are_uniform_and_tell_their_paths_apart() -> None:
    values = [fraction(0, index, "a") for index in range(4000)]
    assert all(0 <= value < 1 for value in values)
    assert abs(sum(values) / len(values) - 0.5) < 0.02
    assert len({fraction(seed, index, path) for seed in (0, 1) for index in (0, 1) for path in ("a", "b")}) == 8


@pytest.mark.parametrize(
    ("defaults", "own", "result"),
    [
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"stop": {"epochs": 8, "patience": 2}}, {"stop": {"epochs": 1}}, {"stop": {"epochs": 1, "patience": 2}}),
        ({"metrics": ["a", "b"]}, {"metrics": ["c"]}, {"metrics": ["c"]}),
        ({"schedule": "X"}, {"schedule": None}, {"schedule": None}),
        ({"optimizer": {"name": "SGD", "arguments": {"lr": 1, "momentum": 2}}}, {"optimizer": {"arguments": {"lr": 3}}}, {"optimizer": {"name": "SGD", "arguments": {"lr": 3, "momentum": 2}}}),
        ({"optimizer": {"name": "SGD", "arguments": {"momentum": 2}}}, {"optimizer": {"name": "Adam"}}, {"optimizer": {"name": "Adam"}}),
        ({"optimizer": {"name": "SGD", "arguments": {"momentum": 2}}}, {"optimizer": "SGD"}, {"optimizer": {"name": "SGD", "arguments": {"momentum": 2}}}),
        ({"optimizer": "SGD"}, {"optimizer": {"arguments": {"lr": 1}}}, {"optimizer": {"name": "SGD", "arguments": {"lr": 1}}}),
        ({"optimizer": "SGD"}, {"optimizer": "Adam"}, {"optimizer": "Adam"}),
    ],
)  # fmt: skip
def test_own_keys_over_defaults(defaults: dict[str, Any], own: dict[str, Any], result: dict[str, Any]) -> None:
    assert merged(defaults, own) == result


def test_many_jobs() -> None:
    over = {"task.arguments.a": list(range(100)), "task.arguments.b": list(range(20))}
    assert len(jobs_of({"grid": {"name": "n-{a}-{b}", "over": over}})) == 2000
