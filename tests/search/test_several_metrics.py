"""A search with several metrics: all of them make the suggestions and the front, the first makes the decisions."""

from __future__ import annotations

import random
from typing import Any

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.search import Record, Search
from fleet.search.of_spec import search_of
from fleet.search.optuna_samplers import quiet
from fleet.search.samplers import sampler_of
from fleet.search.space import seed_at_path
from fleet.search.virtual_time import front
from tests.search.support.curves import cost, drawn, value
from tests.search.support.sections import spec_of

TWO = {"x": {"uniform": [-1.0, 1.0]}, "c": {"choice": ["a", "b", "c"]}}
NSGA2 = {"name": "nsga2", "arguments": {"population_size": 6}}


class Unsorted(optuna.samplers.NSGAIISampler):
    """Takes parents in the order of their choice for each trial of a generation; Optuna does so for its first alone."""

    def get_parent_population(self, study: optuna.Study, generation: int) -> list[optuna.trial.FrozenTrial]:
        return self.select_parent(study, generation) if generation else []


def losses(values: Any) -> tuple[float, float]:
    """Each least at another x; `b` is best for both."""
    worse = 0.1 * abs("abc".index(values["c"]) - 1)
    return (values["x"] - 0.2) ** 2 + worse, (values["x"] + 0.2) ** 2 + worse


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), max_size=20))
def test_the_front_is_what_nobody_dominates(points: list[tuple[int, ...]]) -> None:
    def dominated(mine: tuple[int, ...]) -> bool:
        return any(all(a <= b for a, b in zip(other, mine)) and other != mine for other in points)

    wanted = tuple(number for number, point in enumerate(points) if not dominated(point))
    assert front(dict(enumerate(points))) == wanted


def test_suggestions_are_those_of_a_study_that_was_never_built_anew() -> None:
    section = spec_of(sampler=NSGA2, over=TWO, prefetch=0, metric=["loss", "test_loss"]).search
    assert section is not None
    model, records = sampler_of(section, 1), list[Record]()
    with quiet():
        study = optuna.create_study(directions=["minimize", "minimize"])
    for trial in range(48):
        with quiet():
            study.sampler = Unsorted(population_size=6, seed=seed_at_path(1, trial, "optuna"))
            asked = study.ask()
            theirs = {"x": asked.suggest_float("x", -1.0, 1.0), "c": "abc"[asked.suggest_categorical("c", (0, 1, 2))]}
        mine = model.suggest(trial, records)
        assert mine == {"x": pytest.approx(theirs["x"], abs=1e-9), "c": theirs["c"]}
        with quiet():
            study.tell(asked, losses(theirs))
        first, second = losses(mine)
        records.append(Record(trial, mine, {9: first}, "done", {9: (second,)}))
    good = [each.values["c"] == "b" and abs(each.values["x"]) < 0.4 for each in records]
    assert sum(good[-12:]) > 2 * sum(good[:12])


def driven(order: int, sampler: Any = NSGA2) -> Search:
    """A search whose results come in the order with this number; of the further metric more is better."""
    spec = spec_of(sampler=sampler, stopping="halving", prefetch=2, metric=["loss", "accuracy"])
    search, drawing = search_of(spec, cost), random.Random(order)
    while not search.is_over:
        ahead = search.ahead() if drawing.random() < 0.3 else ()
        one = drawing.choice(ahead or search.needed())
        search.tell(one.trial, one.end, value(one.trial, one.end), [drawn(one.trial, -one.end)])
    return search


def test_any_order_of_results_gives_one_search() -> None:
    found = [driven(order) for order in range(3)]
    assert len({search.digest() for search in found}) == len({search.front() for search in found}) == 1


def test_the_first_metric_decides_and_the_front_has_all() -> None:
    search = driven(0, "random")
    single = search_of(spec_of(stopping="halving"), cost)
    while not single.is_over:
        one = single.needed()[0]
        single.tell(one.trial, one.end, value(one.trial, one.end))
    assert (search.digest(), search.best()) == (single.digest(), single.best())
    told = {trial: search.outcome(trial) for trial in range(search.begun)}
    points = {trial: (one.value, -one.further[0]) for trial, one in told.items() if one.value is not None}
    assert search.front() == front(points) and len(search.front()) > 1
    assert all(one.further == (drawn(trial, -one.epochs),) for trial, one in told.items() if one.value is not None)


def test_a_result_has_all_metrics_and_one_that_is_no_number_is_a_failure() -> None:
    search = search_of(spec_of(metric=["loss", "accuracy"]), lambda trial, values: 1)
    with pytest.raises(ValueError, match="1 of 2 metrics"):
        search.tell(0, 9, 0.5)
    search.tell(0, 9, 0.5, [0.7])
    search.tell(0, 9, 0.5, [0.7])
    with pytest.raises(ValueError, match="another value"):
        search.tell(0, 9, 0.5, [0.6])
    search.tell(1, 9, 0.5, [float("nan")])
    search.tell(2, 9, None)
    assert [search.outcome(trial).status for trial in range(3)] == ["done", "failed", "failed"]
    assert search.outcome(0).further == (0.7,) and search.front() == (0,)
