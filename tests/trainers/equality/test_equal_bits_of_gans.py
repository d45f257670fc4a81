"""Two optimizers, each with a part of the model, have the bits of a script with two DDP modules."""

from __future__ import annotations

from typing import Any

import pytest

from tests.trainers.support.equality_data import SAMPLES
from tests.trainers.support.equality_gans import GANS
from tests.trainers.support.equality_services import Elastic, StockDDP
from tests.trainers.support.equality_states import first_difference
from trainers import BatchPlan


def cases() -> list[Any]:
    made = []
    for name in GANS:
        for workers in (2, 3, 4, 8):
            marks = [] if workers == 3 and name != "gan clipped" else [pytest.mark.slow]
            made.append(pytest.param(name, workers, marks=marks, id=f"{name}-{workers}".replace(" ", "-")))
    return made


@pytest.mark.parametrize(("name", "workers"), cases())
def test_a_gan_has_the_bits_of_stock_ddp(name: str, workers: int, stock: StockDDP, four_trainers: Elastic) -> None:
    epoch = BatchPlan(SAMPLES, workers, GANS[name].batch_size).steps_per_epoch
    steps = 2 * epoch + 1
    trainers = min(workers, 4)
    segments = [
        {"ranks": list(range(trainers)), "until": 2, "how": "file"},
        {"ranks": [3, 1][: trainers - 1], "until": epoch + 1, "how": "file"},
        {"ranks": [0], "until": epoch + 2, "how": "resize"},
        {"ranks": [2, 0], "until": steps, "how": "resize"},
    ]
    wanted = stock.states(name, workers, steps)
    got = four_trainers.history(name, workers, segments)
    assert {"2", str(epoch), str(steps)} <= set(got)
    assert first_difference(got, wanted) is None
