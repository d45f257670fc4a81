"""Optimizers, schedules, clipping, accumulation and mixed precision keep the bits of a DDP loop that does the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.trainers.support.equality_data import images
from tests.trainers.support.equality_services import Elastic, StockDDP
from tests.trainers.support.equality_states import first_difference
from tests.trainers.support.equality_tasks import OPTIONS, EqualityTask, cnn, mlp, steps_of_epochs
from trainers import Group, Trainer
from trainers.task.task import samples_in
from trainers.task.task_options import StepOptions, split

QUICK = {
    "momentum encoder",
    "attributes",
    "counters",
    "own generators",
    "own state",
    "seeds apart",
    "clip norm of two buckets",
    "accumulate 3",
    "batches in parts",
    "everything",
}


def cases() -> list[Any]:
    made = []
    for task in OPTIONS:
        for workers in (2, 3, 4, 8):
            marks = [] if task.name in QUICK and workers == 3 else [pytest.mark.slow]
            made.append(pytest.param(task, workers, marks=marks, id=f"{task.name}-{workers}".replace(" ", "-")))
    return made


@pytest.mark.parametrize(("task", "workers"), cases())
def test_an_option_has_the_bits_of_stock_ddp(
    task: EqualityTask, workers: int, stock: StockDDP, four_trainers: Elastic
) -> None:
    first, second = steps_of_epochs(task.name, workers, 2)
    steps = first + second + 1
    wanted = stock.states(task.name, workers, steps)
    half, trainers = first // 2 + 1, min(workers, 4)
    segments = [
        {"ranks": list(range(trainers)), "until": half, "how": "file"},
        {"ranks": [3, 1][: trainers - 1], "until": steps, "how": "file"},
    ]
    got = four_trainers.history(task.name, workers, segments)
    assert set(got) == {str(step) for step in (half, first, first + second, steps)}
    assert first_difference(got, wanted) is None


def test_parts_of_a_batch_differ_by_one_sample_and_keep_its_structure() -> None:
    batch = ({"a": torch.arange(7), "b": (torch.ones(7, 2), torch.zeros(7))}, [torch.arange(7)])
    parts = StepOptions(accumulate=3).parts(batch)
    assert [samples_in(part) for part, _ in parts] == [3, 2, 2]
    assert [divisor for _, divisor in parts] == [7 / 3, 7 / 2, 7 / 2]
    assert torch.equal(torch.cat([part[0]["a"] for part, _ in parts]), torch.arange(7))
    assert parts[1][0][0]["b"][0].shape == (2, 2)
    assert isinstance(parts[0][0][1], list)


def test_a_batch_smaller_than_its_parts_has_a_part_for_each_sample() -> None:
    parts = StepOptions(accumulate=5).parts((torch.ones(2, 3), torch.ones(2)))
    assert [(samples_in(part), divisor) for part, divisor in parts] == [(1, 2.0), (1, 2.0)]


def test_what_is_no_batch_cannot_be_cut() -> None:
    with pytest.raises(TypeError, match=r"shape \(3,\) in a batch of 4 samples cannot be cut into 2 parts"):
        split((torch.ones(4), torch.ones(3)), 2, 4)
    with pytest.raises(TypeError, match="a str in a batch cannot be cut"):
        split({"name": "image"}, 2, 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"accumulate": 0}, "accumulate is 0, it must be a whole number from 1 on"),
        ({"accumulate": 2.0}, "accumulate is 2.0, it must be a whole number"),
        ({"autocast": "float16"}, "needs its losses scaled; use 'bfloat16'"),
        ({"autocast": "half"}, "autocast is 'half'; choose 'bfloat16', or None"),
        ({"compile": "fast"}, "compile is 'fast'; choose True, 'kernels' or 'graphs', or leave it out"),
        ({"clip_norm": 0.0}, "clip_norm is 0.0, it must be a number above 0"),
        ({"clip_value": float("nan")}, "clip_value is nan, it must be a number above 0"),
        ({"clip_norm": 1.0, "clip_value": 1.0}, "give one of them"),
    ],
)
def test_an_option_out_of_range_is_named(options: dict[str, Any], message: str) -> None:
    task = EqualityTask("task", cnn, lambda: images("task"), **options)
    with pytest.raises(ValueError, match=message):
        Trainer(task, 2, Group.alone())


def test_a_task_that_is_a_module_is_not_compiled_by_its_method() -> None:
    assert StepOptions.of(torch.nn.Module()) == StepOptions()


def test_weights_gradients_and_sums_stay_float32_under_autocast() -> None:
    seen: list[torch.dtype] = []
    task = EqualityTask(
        "task",
        mlp,
        lambda: images("task", channels=1),
        autocast="bfloat16",
        between=lambda model: seen.extend(p.grad.dtype for p in model.parameters() if p.grad is not None),
    )
    trainer = Trainer(task, 1, Group.alone())
    outputs: list[torch.dtype] = []
    trainer.model.register_forward_hook(lambda *call: outputs.append(call[2].dtype))
    trainer.step([(torch.randn(4, 1, 16, 16), torch.zeros(4, dtype=torch.int64))])
    assert outputs == [torch.bfloat16]
    assert set(seen) == {torch.float32}
    assert {parameter.dtype for parameter in trainer.model.parameters()} == {torch.float32}
