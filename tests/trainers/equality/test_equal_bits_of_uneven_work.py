"""Few samples, left-over samples, frozen and unused layers: equal bits, or an error or warning that names the cause."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch.utils.data import default_collate

from tests.trainers.support.equality_services import Elastic, ServiceEnded, StockDDP
from tests.trainers.support.equality_states import first_difference
from tests.trainers.support.equality_tasks import TASKS
from trainers import ConsistencyWarning, Group, Trainer


@pytest.mark.parametrize(
    ("task", "workers", "steps"),
    [
        ("three samples", 4, 3),
        pytest.param("three samples", 8, 3, marks=pytest.mark.slow),
        ("one sample left over", 2, 7),
        pytest.param("one sample left over", 8, 5, marks=pytest.mark.slow),
        ("a layer frozen", 3, 9),
    ],
)
def test_uneven_work_has_the_bits_of_stock_ddp(
    task: str, workers: int, steps: int, stock: StockDDP, four_trainers: Elastic
) -> None:
    wanted = stock.states(task, workers, steps)
    segments = [{"ranks": [2, 1], "until": 2, "how": "file"}, {"ranks": [0], "until": steps, "how": "resize"}]
    assert first_difference(four_trainers.history(task, workers, segments), wanted) is None


def own_step(trainer: Trainer, indices: Sequence[int]) -> None:
    samples = trainer.task.dataset(True)
    trainer.step([default_collate([samples[index]]) for index in indices])


def test_a_layer_that_nobody_uses_is_warned_of_and_stays_as_it_is(stock: StockDDP) -> None:
    with pytest.raises(AssertionError, match="Expected to have finished reduction in the prior iteration"):
        stock.states("a layer never", 2, 2)
    trainer = Trainer(TASKS["a layer never"], 2, Group.alone())
    before = trainer.model.second.weight.clone()  # type: ignore[operator,union-attr]
    with pytest.warns(ConsistencyWarning, match=r"no virtual worker gives second.weight, second.bias a gradient"):
        own_step(trainer, (0, 1))
    for _ in range(2):
        own_step(trainer, (2, 3))
    assert torch.equal(trainer.model.second.weight, before)  # type: ignore[arg-type,union-attr]


def test_a_layer_that_only_some_workers_use_is_an_error_that_names_it(four_trainers: Elastic) -> None:
    samples = TASKS["a layer by some"].dataset(True)
    assert samples is not None
    positive = [bool(samples[index][0].flatten()[0] > 0) for index in range(len(samples))]
    assert any(positive) and not all(positive)
    segments = [{"ranks": [0, 1], "until": 9, "how": "file"}]
    named = "UnevenGradients: job a layer by some: virtual worker .* gave second.weight"
    with pytest.raises(ServiceEnded, match=named):
        four_trainers.history("a layer by some", 4, segments)
