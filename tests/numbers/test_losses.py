"""What a batch's loss was divided by decides how parts and batches are added up."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.numbered.losses import differing, gradient_bars, run_bars, script_bars
from benchmarks.numbered.uneven_tasks import BATCH, IGNORED, Uneven, collate, samples
from fleet.spec import Job
from fleet.spec.named_parts import JobLoss
from trainers import Diverged, Group, Trainer
from trainers.state import checkpoint
from trainers.task.loss import UnfitTask, nothing_of
from trainers.task.task import evaluation_sums, loss_of


def job_loss(name: str, **arguments: Any) -> JobLoss:
    loss = {"name": name, "arguments": arguments}
    keys = {"model": "trainers.zoo:MLP", "data": "d", "optimizer": "SGD", "stop": {"epochs": 1}}
    return JobLoss(Job.model_validate({"name": "j", **keys, "loss": loss}))


def test_a_batch_in_parts_has_the_gradient_of_the_whole_batch() -> None:
    assert len(found := gradient_bars()) == 9 and all(each["ok"] for each in found), found


def test_a_loss_that_is_told_with_its_weight_has_the_bits_of_a_script_under_ddp() -> None:
    cases = [("ignored", 8, True), ("ignored", 8, False), ("pad", 32, False), ("weights", 2, True)]
    assert differing(cases) == [0, 0, 0, 0]


@pytest.mark.slow
def test_scripts_of_all_kinds_have_the_same_bits() -> None:
    assert [each for each in script_bars() if not each["ok"]] == []


@pytest.mark.slow
def test_what_a_run_says_of_losses() -> None:
    assert [each for each in run_bars() if not each["ok"]] == []


class Emptied(Uneven):
    """All targets of some samples are left out."""

    def __init__(self, empty: set[int], accumulate: int = 1, known: bool = True) -> None:
        super().__init__("pad", accumulate, known)
        self.empty = empty

    def batch(self) -> tuple[Tensor, Tensor]:
        inputs, targets = collate(samples("pad")[:BATCH])
        targets[sorted(self.empty)] = IGNORED
        return inputs, targets


def stepped(task: Emptied, steps: int = 3, workers: int = 1) -> Trainer:
    trainer = Trainer(task, workers, Group.alone())
    with trainer.reducing():
        for _ in range(steps):
            trainer.step([task.batch(), *[collate(samples("pad", seed=2)[:BATCH])] * (workers - 1)])
    return trainer


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("empty", [{0}, {BATCH - 1}, {3, 4, 5}, set(range(BATCH // 2, BATCH))])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_part_in_which_nothing_counts_adds_nothing(empty: set[int], known: bool, workers: int) -> None:
    whole, parts = Emptied(empty, 1), Emptied(empty, BATCH, known)
    stepped(whole, workers=workers)
    stepped(parts, workers=workers)
    for one, other in zip(whole.seen, parts.seen):
        assert (one - other).norm() <= 1e-5 * one.norm() and one.isfinite().all()


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("accumulate", [1, 8])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_batch_in_which_nothing_counts_is_no_part_of_the_epochs_loss(
    known: bool, accumulate: int, workers: int
) -> None:
    task = Emptied(set(range(BATCH)), accumulate, known)
    trainer = stepped(task, workers=workers)
    losses = trainer.finish_epoch({})
    assert all(each.isfinite().all() for each in task.seen)
    if workers == 1:
        assert math.isnan(losses["loss"]) and all(not each.any() for each in task.seen)
    else:
        assert math.isfinite(losses["loss"]) and all(each.any() for each in task.seen)


def test_nothing_has_zero_gradients_though_the_loss_has_none() -> None:
    layer = nn.Linear(3, 2)
    with nothing_of(layer.parameters()):
        (layer(torch.ones(4, 3)).sum() / torch.zeros(()) * float("nan")).backward()
    assert all(each.grad is not None and not each.grad.any() for each in layer.parameters())
    layer(torch.ones(4, 3)).sum().backward()
    assert all(each.grad is not None and each.grad.all() for each in layer.parameters())


def test_the_epochs_loss_is_the_mean_over_all_that_counts() -> None:
    whole = Trainer(Uneven("pad"), 1, Group.alone())
    data = samples("pad", 48)
    with whole.reducing():
        outputs = [whole.model(ids[None]) for ids, _ in data]
        wanted = [functional.cross_entropy(o, t[None], reduction="sum") for o, (_, t) in zip(outputs, data)]
        whole.optimizer.param_groups[0]["lr"] = 0.0
        for first in (0, 7, 31):
            whole.step([collate(data[first : {0: 7, 7: 31, 31: 48}[first]])])
    mean = float(sum(each.item() for each in wanted)) / sum(len(tags) for _, tags in data)
    assert whole.finish_epoch({})["loss"] == pytest.approx(mean, rel=1e-6)


@pytest.mark.parametrize("size", [1, 5, 48])
def test_the_validation_loss_does_not_depend_on_batches(size: int) -> None:
    task, model = Uneven("pad"), Uneven("pad").model()
    data = samples("pad", 48, seed=1)
    with torch.no_grad():
        sums = [evaluation_sums(task, model, collate(data[at : at + size]), set()) for at in range(0, 48, size)]
        total, count = (sum(each["test_loss"][place] for each in sums) for place in (0, 1))
        outputs = [(model(ids[None]), tags[None]) for ids, tags in data]
        wanted = sum(functional.cross_entropy(o, t, reduction="sum").item() for o, t in outputs)
    assert total / count == pytest.approx(wanted / sum(len(tags) for _, tags in data), rel=1e-6)


class Told:
    """A task whose loss gives what it is told to."""

    name = "told"

    def __init__(self, given: Any) -> None:
        self.given = given

    def loss(self, model: nn.Module, batch: Any) -> Any:
        return self.given


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf"), "three", None])
def test_a_weight_that_is_no_number_is_refused(weight: Any) -> None:
    with pytest.raises(UnfitTask, match="what the mean was divided by, a number from 0 on"):
        loss_of(Told((torch.ones(()), weight)), nn.Linear(1, 1), (None, torch.zeros(3)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "arguments", "targets", "weight"),
    [
        ("cross_entropy", {}, torch.tensor([1, -100, 0]), 2),
        ("cross_entropy", {"ignore_index": 0}, torch.tensor([[1, 2], [0, 0]]), 2),
        ("cross_entropy", {"weight": [1, 20]}, torch.tensor([1, 0, 1, -100]), 41),
        ("cross_entropy", {}, torch.full((4, 3), 1 / 3), 4),
        ("torch.nn:CrossEntropyLoss", {"weight": [1, 20]}, torch.tensor([1, 0]), 21),
        ("nll_loss", {}, torch.tensor([1, 1, -100]), 2),
        ("mse_loss", {}, torch.zeros(4, 3), 12),
        ("torch.nn:BCEWithLogitsLoss", {"pos_weight": [2.0]}, torch.zeros(4, 3), 12),
        ("kl_div", {"reduction": "batchmean"}, torch.zeros(4, 3), 4),
        ("multi_margin_loss", {}, torch.tensor([0, 1]), 2),
        ("mse_loss", {"reduction": "sum"}, torch.zeros(4, 3), None),
        ("benchmarks.numbered.uneven_tasks:loss_and_weight", {}, torch.zeros(4), None),
    ],
)
def test_what_known_losses_divide_by(name: str, arguments: dict[str, Any], targets: Tensor, weight: Any) -> None:
    found = job_loss(name, **arguments).weight(targets)
    assert (None if found is None else float(found)) == weight


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss", "mse_loss", "huber_loss", "kl_div", "poisson_nll_loss"])
def test_torchs_losses_divide_by_what_is_known_of_them(name: str) -> None:
    torch.manual_seed(0)
    outputs = torch.randn(6, 4).log_softmax(1)
    of_classes = name in ("cross_entropy", "nll_loss")
    targets = torch.tensor([0, 3, -100, 2, 1, -100]) if of_classes else torch.rand(6, 4)
    loss, added = job_loss(name), job_loss(name, reduction="sum")
    weight = loss.weight(targets)
    assert weight is not None
    assert float(loss(outputs, targets)) == pytest.approx(float(added(outputs, targets)) / float(weight), rel=1e-6)


@pytest.mark.parametrize("name", ["torch.nn:MSELoss", "torch.nn:L1Loss", "mse_loss", "torch.nn:HuberLoss"])
def test_outputs_and_targets_of_other_shapes_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="would pair every output with every target"):
        job_loss(name)(torch.zeros(4, 1), torch.zeros(4))


class Sum(Uneven):
    """A loss that divides by nothing."""

    loss_is_sum = True

    def loss(self, model: nn.Module, batch: Any) -> Any:
        return functional.cross_entropy(model(batch[0]), batch[1], reduction="sum")


def test_a_sum_in_parts_is_the_sum() -> None:
    found = {}
    for parts in (1, 8):
        task = Sum("pad", parts)
        trainer = Trainer(task, 1, Group.alone())
        with trainer.reducing():
            trainer.step([collate(samples("pad")[:BATCH])])
        found[parts] = (task.seen[0], trainer.finish_epoch({})["loss"])
    assert (found[1][0] - found[8][0]).norm() <= 1e-5 * found[1][0].norm()
    assert found[1][1] == pytest.approx(found[8][1], rel=1e-6)


class Infinite(nn.Linear):
    """Its gradient is infinite, its loss finite."""

    def __init__(self) -> None:
        super().__init__(3, 2)
        self.register_buffer("mask", torch.full((2,), -math.inf))

    def forward(self, input: Tensor) -> Tensor:
        found: Tensor = super().forward(input) + 0 * (0 * self.weight.sum()).sqrt()
        return found


class Diverging(Uneven):
    """Its weights are no numbers after the first step."""

    def __init__(self) -> None:
        super().__init__("weights")

    def model(self) -> nn.Module:
        return Infinite()


def test_weights_that_are_no_numbers_end_a_network_and_masks_do_not() -> None:
    inputs, targets = torch.ones(4, 3), torch.tensor([0, 1, 0, 1])
    trainer = Trainer(Diverging(), 1, Group.alone())
    trainer.check_finite()
    with trainer.reducing():
        trainer.step([(inputs, targets)])
    with pytest.raises(Diverged, match="weight holds NaN or infinite values"):
        trainer.finish_epoch({})


def test_old_checkpoints_of_weights_that_are_no_numbers_are_not_exported(tmp_path: Path) -> None:
    from fleet.models.errors import ModelsError
    from fleet.models.network import load_weights

    trainer = Trainer(Uneven("weights"), 1, Group.alone())
    with trainer.reducing():
        trainer.step([collate(samples("weights")[:BATCH])])
    saved = trainer.snapshot()
    assert saved is not None
    load_weights(Uneven("weights").model(), saved, "job a")
    next(iter(saved.parameters.values()))[0] = math.nan
    checkpoint.write(tmp_path / "c.h5", saved)
    with pytest.raises(ModelsError, match="table.weight holds NaN or infinite values.*had diverged"):
        load_weights(Uneven("weights").model(), checkpoint.read(tmp_path / "c.h5"), "job a")


def test_bars_are_plain_values() -> None:
    assert json.loads(json.dumps(gradient_bars()[0]))["bar"] == "<= 1e-05"
