"""The comparison with stock DDP can fail: each rule, broken in the trainers' processes, is told apart."""

from __future__ import annotations

from typing import Any

import pytest

from tests.trainers.support.equality_broken_rules import BROKEN_RULES
from tests.trainers.support.equality_services import Elastic, StockDDP
from tests.trainers.support.equality_states import States, first_difference
from tests.trainers.support.equality_tasks import steps_of

TASKS_THAT_SHOW = {
    "buffers of another worker": "cnn",
    "batches in one part": "everything",
    "full precision": "everything",
    "no clipping": "everything",
}
WORKERS = 3


def history(elastic: Elastic, task: str, broken: str | None, moves: bool = True) -> States:
    """Train on one trainer, where each rule can be broken by itself; the job moves from one rank to another."""
    steps = steps_of(task, WORKERS)
    segments: list[dict[str, Any]] = [{"ranks": [0], "until": steps, "how": "resize"}]
    if moves:
        segments = [{"ranks": [1], "until": 3, "how": "resize"}, *segments]
    return elastic.history(task, WORKERS, segments, broken=broken)


@pytest.mark.parametrize("task", ["mlp", "cnn", "everything"])
def test_the_same_history_with_no_rule_broken_agrees(task: str, stock: StockDDP, four_trainers: Elastic) -> None:
    wanted = stock.states(task, WORKERS, steps_of(task, WORKERS))
    assert first_difference(history(four_trainers, task, None), wanted) is None


@pytest.mark.parametrize("rule", BROKEN_RULES)
def test_a_broken_rule_is_told_apart(rule: str, stock: StockDDP, four_trainers: Elastic) -> None:
    task = TASKS_THAT_SHOW.get(rule, "mlp")
    wanted = stock.states(task, WORKERS, steps_of(task, WORKERS))
    difference = first_difference(history(four_trainers, task, rule), wanted)
    assert difference is not None
    assert difference.endswith("differ")


def test_d0_agrees_as_long_as_the_job_does_not_move(stock: StockDDP, four_trainers: Elastic) -> None:
    wanted = stock.states("mlp", WORKERS, steps_of("mlp", WORKERS))
    assert first_difference(history(four_trainers, "mlp", "D0", moves=False), wanted) is None


def test_a_missing_tensor_or_rank_is_a_difference() -> None:
    one = {"3": [{"parameter a": "x", "buffer b": "y"}]}
    assert first_difference(one, one) is None
    assert "buffer b" in str(first_difference({"3": [{"parameter a": "x"}]}, one))
    assert "2 ranks, 1 wanted" in str(first_difference({"3": one["3"] * 2}, one))
    assert "no step in common" in str(first_difference({"4": one["3"]}, one))
    assert first_difference({"3": [{"parameter a": "z", "buffer b": "y"}]}, one) == (
        "step 3, rank 0: parameter a and 0 more of 2 differ"
    )
