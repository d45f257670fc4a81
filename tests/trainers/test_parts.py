"""Several optimizers: what no phases of DDP can do is refused by name, with the mend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn, optim

from trainers import Group, Trainer
from trainers.task.parts import PhaseError
from trainers.task.task_options import check_task

Phases = Iterator[tuple[str, Tensor]]


class Pair(nn.Module):
    """Two parts; the second has buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(2, 2), nn.BatchNorm1d(2)
        self.register_buffer("third", torch.zeros(1))


class Task:
    batch_size = 4

    def __init__(self, step: Callable[[Any, Tensor], Any] | None = None, **more: Any) -> None:
        self.phases = step or both
        vars(self).update(more)

    def model(self) -> nn.Module:
        return Pair()

    def optimizers(self, model: Any) -> Any:
        return {name: optim.SGD(getattr(model, name).parameters(), 0.1) for name in ("one", "two")}

    def step(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Any:
        return self.phases(model, batch[0])

    def dataset(self, train: bool) -> None:
        return None


def both(model: Any, inputs: Tensor) -> Phases:
    hidden = model.one(inputs)
    yield "two", model.two(hidden.detach()).square().mean()
    yield "one", model.two(hidden).square().mean()


def train(task: Any, steps: int = 2) -> Trainer:
    trainer = Trainer(task, 2, Group.alone())
    for step in range(steps):
        batch = torch.randn(4, 2, generator=torch.Generator().manual_seed(step)), torch.zeros(4)
        trainer.step([batch, batch])
    return trainer


def test_each_phase_updates_its_part_alone() -> None:
    before = [value.detach().clone() for value in Trainer(Task(), 2, Group.alone()).model.parameters()]

    def only_two(model: Any, inputs: Tensor) -> Phases:
        yield "two", model.two(model.one(inputs)).square().sum()

    after = list(train(Task(only_two)).model.parameters())
    assert [torch.equal(*pair) for pair in zip(before, after)] == [True, True, False, False]
    assert all(parameter.grad is None for parameter in train(Task()).model.parameters())


def test_the_loss_of_a_step_is_the_sum_of_its_phases() -> None:
    def five(model: Any, inputs: Tensor) -> Phases:
        for value in (2, 3):
            yield "one", model.one(inputs).sum() * 0 + value

    trainer = Trainer(Task(five), 2, Group.alone())
    assert list(trainer.step([(torch.ones(4, 2), torch.zeros(4))] * 2)) == [20.0, 20.0]


def twice(model: Any, inputs: Tensor) -> Phases:
    yield "two", model.two(inputs).mean() + model.two(inputs + 1).mean()


def without_gradients(model: Any, inputs: Tensor) -> Phases:
    with torch.no_grad():
        inputs = model.two(inputs)
    yield "one", model.one(inputs).mean()


def by_state(model: Any, inputs: Tensor) -> Phases:
    yield ("one", model.one(inputs).mean()) if torch.rand(()) < 0.5 else ("two", model.two(inputs).mean())


def to_nobody(model: Any, inputs: Tensor) -> Phases:
    yield "onw", model.one(inputs).mean()


def a_vector(model: Any, inputs: Tensor) -> Any:
    yield "one", model.one(inputs)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (twice, r"part two, which has buffers, is called twice in one phase.*torch\.cat"),
        (without_gradients, "part two.* under no_grad.*detach"),
        (by_state, "the step of virtual worker 1 goes on with .*, that of virtual worker 0 with"),
        (to_nobody, "yields 'onw'.*choose from one, two"),
        (a_vector, r"let it yield \(name of a part, loss\) for each phase, the loss a scalar"),
        (lambda model, inputs: model.one(inputs).mean(), "gives a Tensor; let it yield"),
    ],
)
def test_a_step_that_no_phases_can_follow_is_refused(step: Any, message: str) -> None:
    with pytest.raises(PhaseError, match=message):
        train(Task(step), 6)


@pytest.mark.parametrize(
    ("optimizers", "message"),
    [
        ({}, "give {name of a part: its optimizer}"),
        ({"three": "one"}, "names 'three', no part of the model; choose from one, two"),
        ({"one": "two"}, r"the optimizer of part one has two\.weight.*give it model\.one\.parameters\(\)"),
    ],
)
def test_optimizers_that_do_not_fit_the_model_are_refused(optimizers: dict[str, str], message: str) -> None:
    class Other(Task):
        def optimizers(self, model: Any) -> Any:
            return {name: optim.SGD(getattr(model, part).parameters(), 0.1) for name, part in optimizers.items()}

    with pytest.raises(ValueError, match=message):
        train(Other())


def test_optimizers_and_schedules_that_one_step_cannot_serve_are_refused() -> None:
    class Searching(Task):
        def optimizers(self, model: Any) -> Any:
            return {"one": optim.LBFGS(model.one.parameters())}

    with pytest.raises(ValueError, match="LBFGS asks for the loss several times a step"):
        train(Searching())
    plateau = optim.lr_scheduler.ReduceLROnPlateau
    with pytest.raises(ValueError, match="ReduceLROnPlateau needs a metric"):
        train(Task(schedulers=lambda optimizers: {"one": plateau(optimizers["one"])}))
    with pytest.raises(ValueError, match="gives one for 'both'; choose from one, two"):
        train(Task(schedulers=lambda optimizers: {"both": optim.lr_scheduler.ConstantLR(optimizers["one"])}))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"optimizers": None}, r"has step\(model, batch\) and no optimizers\(model\).*add `def"),
        ({"step": None}, r"has optimizers\(model\) and no step\(model, batch\)"),
        ({"accumulate": 2}, "accumulate, which has no meaning there; yield the sum of the losses"),
        ({"scheduler": lambda optimizer: None}, r"write schedulers\(optimizers\)"),
    ],
)
def test_half_a_step_of_ones_own_is_refused(more: dict[str, Any], message: str) -> None:
    task = Task()
    vars(task).update(more)
    with pytest.raises(ValueError, match=message):
        check_task(task)
