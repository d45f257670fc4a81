"""Every model, by any number of virtual workers on any number of trainers, has the bits of stock DDP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.trainers.support.equality_data import SAMPLES
from tests.trainers.support.equality_services import Elastic, StockDDP
from tests.trainers.support.equality_states import first_difference
from tests.trainers.support.equality_tasks import MODELS, EqualityTask
from trainers import BatchPlan

QUICK = {("mlp", 3, 2), ("densenet", 2, 1), ("detector", 3, 2), ("gru", 2, 2)}
"""(model, virtual workers, trainers) of the normal run; the full one has all."""


def cases() -> Iterator[Any]:
    for task in MODELS:
        for workers in (2, 3, 4, 8):
            for trainers in range(1, workers + 1):
                case = (task, workers, trainers)
                marks = [] if (task.name, workers, trainers) in QUICK else [pytest.mark.slow]
                yield pytest.param(*case, marks=marks, id=f"{task.name}-{workers}-on-{trainers}")


@pytest.mark.parametrize(("task", "workers", "trainers"), list(cases()))
def test_a_model_has_the_bits_of_stock_ddp(
    task: EqualityTask,
    workers: int,
    trainers: int,
    stock: StockDDP,
    available: Callable[[str], None],
    request: pytest.FixtureRequest,
) -> None:
    available(task.name)
    elastic: Elastic = request.getfixturevalue("four_trainers" if trainers <= 4 else "eight_trainers")
    epoch = BatchPlan(SAMPLES, workers, task.batch_size).steps_per_epoch
    steps = 2 * epoch + 1
    wanted = stock.states(task.name, workers, steps)
    got = elastic.history(task.name, workers, [{"ranks": list(range(trainers)), "until": steps}])
    assert set(got) == {str(epoch), str(2 * epoch), str(steps)}
    assert first_difference(got, wanted) is None
