"""Whatever a job lived through (moves at any step, in place or by file; kills), it has the bits of stock DDP."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tests.trainers.support.equality_histories import History, Kill, Stay, histories
from tests.trainers.support.equality_services import Elastic, StockDDP
from tests.trainers.support.equality_states import first_difference
from tests.trainers.support.equality_tasks import steps_of

IN_PLACE = History("cnn", 4, (Stay((2,), 1), Stay((1, 3, 0), 2, "resize"), Stay((0, 1), 7, "resize")))
SWAPPED = History("mlp", 3, (Stay((0, 1, 2), 2), Stay((3,), 5, "resize"), Stay((2, 0), 9)))
REMEMBERED = History("own state", 3, (Stay((0, 1), 2), Stay((2, 3, 0), 5, "resize"), Stay((1,), 9)))
KILLED = History("everything", 4, (Stay((0, 1), 2), Stay((3, 2, 1), 7, "resize")), every=2, kill=Kill(5, 1))


def check(history: History, stock: StockDDP, elastic: Elastic) -> None:
    steps = steps_of(history.task, history.virtual_workers)
    wanted = stock.states(history.task, history.virtual_workers, steps)
    with tempfile.TemporaryDirectory() as folder:
        got = history.relive(elastic, Path(folder))
    assert str(steps) in got
    assert first_difference(got, wanted) is None


@pytest.mark.parametrize(
    "history",
    [
        pytest.param(IN_PLACE, marks=pytest.mark.slow),
        pytest.param(SWAPPED, marks=pytest.mark.slow),
        REMEMBERED,
        pytest.param(KILLED, marks=pytest.mark.slow),
    ],
    ids=["resized in place", "other trainers", "own state", "killed"],
)
def test_a_history_ends_with_the_bits_of_stock_ddp(history: History, stock: StockDDP, four_trainers: Elastic) -> None:
    check(history, stock, four_trainers)


COMMON = {"deadline": None, "derandomize": True, "database": None, "suppress_health_check": list(HealthCheck)}


@pytest.mark.slow
@given(history=histories(("mlp", "cnn"), (3, 4)))
@settings(max_examples=5, **COMMON)  # type: ignore[arg-type]
def test_a_few_random_histories_end_with_the_bits_of_stock_ddp(
    stock: StockDDP, four_trainers: Elastic, history: History
) -> None:
    check(history, stock, four_trainers)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@given(history=histories())
@settings(max_examples=200, **COMMON)  # type: ignore[arg-type]
def test_two_hundred_random_histories_end_with_the_bits_of_stock_ddp(
    stock: StockDDP, four_trainers: Elastic, history: History
) -> None:
    check(history, stock, four_trainers)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@given(history=histories(kills=True))
@settings(max_examples=25, **COMMON)  # type: ignore[arg-type]
def test_random_histories_with_a_kill_end_with_the_bits_of_stock_ddp(
    stock: StockDDP, four_trainers: Elastic, history: History
) -> None:
    check(history, stock, four_trainers)
