"""Population-based training: who goes on from whom is a function of the spec, the seed and the results."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.search import Change, Decision, Search
from fleet.search.of_spec import search_of
from fleet.spec import EnsembleSpec
from tests.search.support.driving import drive

OVER: dict[str, Any] = {
    "optimizer.arguments.lr": {"log_uniform": [1e-4, 0.1]},
    "optimizer.arguments.momentum": {"uniform": [0.0, 0.9]},
    "optimizer.arguments.weight_decay": {"choice": [0.0, 1e-4, 1e-3]},
}


def population(seed: int = 0, width: int = 8, trials: int = 8, **stopping: Any) -> Search:
    search: dict[str, Any] = {
        "name": "m-{trial}", "job": {"stop": {"epochs": 8}}, "over": OVER, "metric": "loss", "width": width,
        "trials": trials, "stopping": {"name": "population", "interval": 2, **stopping},
    }  # fmt: skip
    spec = EnsembleSpec.model_validate({"name": "p", "seed": seed, "search": search})
    return search_of(spec, lambda trial, values: 1000 + 37 * trial)


def loss(trial: int, epoch: int) -> float:
    """The later a trial, the better it is."""
    return 1.0 / (1 + trial) + 1.0 / epoch


def copies(search: Search) -> list[Decision]:
    return [decision for decision in search.decisions if decision.copy is not None]


@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 3), st.sampled_from([2, 5, 8]), st.booleans())
def test_decisions_do_not_depend_on_the_order_of_results(random: Any, seed: int, width: int, barrier: bool) -> None:
    found = drive(population(seed, width, synchronous=barrier), loss)
    other = population(seed, width, synchronous=barrier)
    while not other.is_over:
        segment = random.choice(other.needed())
        other.tell(segment.trial, segment.end, loss(segment.trial, segment.end))
    assert found.digest() == other.digest() and found.decisions == other.decisions
    assert all(found.status(trial) == "done" for trial in range(8))


def test_the_worst_go_on_from_the_best_of_then() -> None:
    search = drive(population(), loss)
    assert copies(search)
    for decision in copies(search):
        assert decision.copy is not None and decision.copy.donor > decision.trial and decision.kind == "resume"
        known = [d for d in search.decisions if d.trial == decision.copy.donor and d.end == decision.copy.epoch]
        assert known and known[0].time <= decision.time


def test_values_are_near_the_donors_and_in_their_ranges() -> None:
    search = drive(population(resample=0.0), loss)
    now = {trial: dict(search.values(trial)) for trial in range(8)}
    for decision in copies(search):
        assert decision.copy is not None
        before, after = now[decision.copy.donor], decision.copy.values
        ratio = after["optimizer.arguments.lr"] / before["optimizer.arguments.lr"]
        assert any(math.isclose(ratio, factor, rel_tol=1e-9) for factor in (0.8, 1.25)) or ratio == 1
        assert 0.0 <= after["optimizer.arguments.momentum"] <= 0.9
        assert after["optimizer.arguments.weight_decay"] in (0.0, 1e-4, 1e-3)
        now[decision.trial] = dict(after)


def test_resampled_values_have_nothing_of_the_donors() -> None:
    search = drive(population(resample=1.0), loss)
    drawn = [decision.copy.values["optimizer.arguments.lr"] for decision in search.decisions if decision.copy]
    assert len(set(drawn)) == len(drawn) > 1


def test_with_barriers_all_are_compared_at_the_same_epoch() -> None:
    search = drive(population(synchronous=True, width=3), loss)
    assert copies(search) and all(each.copy is not None and each.copy.epoch == each.start for each in copies(search))


def test_a_failed_member_is_nobodys_donor_and_the_others_go_on() -> None:
    search = drive(population(), lambda trial, epoch: math.nan if trial == 7 and epoch > 2 else loss(trial, epoch))
    assert search.status(7) == "failed" and search.status(0) == "done"
    failed = next(decision.time for decision in search.decisions if decision.kind == "fail")
    assert all(each.copy is not None and each.copy.donor != 7 for each in copies(search) if each.time > failed)


def test_one_member_alone_just_trains() -> None:
    search = drive(population(trials=1, width=1), loss)
    assert search.status(0) == "done" and not copies(search)


def test_members_that_come_later_may_go_on_from_those_that_are_done() -> None:
    search = drive(population(trials=4), loss)
    first = len(search.decisions)
    search.changed(Change(search.clock, trials=8))
    drive(search, lambda trial, epoch: 9.0 + loss(trial, epoch))
    assert search.begun == 8 and search.is_over
    assert any(each.copy is not None and each.copy.donor < 4 for each in search.decisions[first:])
