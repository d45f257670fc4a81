"""One trainer alone: the parts of a step, snapshots, rehearsals, and errors for people."""

from __future__ import annotations

import random
from copy import copy
from typing import Any

import numpy as np
import pytest
import torch
from numpy.random import PCG64, get_bit_generator, set_bit_generator  # type: ignore[attr-defined]
from torch import Tensor, nn

from trainers import (
    Checkpoint,
    CheckpointError,
    Diverged,
    Group,
    PinsDiffer,
    Task,
    Trainer,
    Training,
    UnevenGradients,
    VirtualWorker,
)
from trainers.proof.comparison import compare_checkpoints
from trainers.reduce.gradients import SparseGradient
from trainers.reduce.ordered_reduce import OrderedReduce
from trainers.repeatable.random_state import RandomState, seed_everything
from trainers.repeatable.scan import NonDeterministicOperator
from trainers.task.task import batch_size_of, evaluation_sums, loss_of, name_of, seed_of

Batch = tuple[Tensor, Tensor]


class Small:
    """A task with nothing but the required parts."""

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

    def dataset(self, train: bool) -> Any:
        return None


def batch(seed: int, size: int = 6) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, 4, generator=generator), torch.randint(0, 3, (size,), generator=generator)


def trainer(task: Task | None = None, workers: int = 2, **more: Any) -> Trainer:
    return Trainer(task or Small(), workers, Group.alone(), **more)


def weights(of: Trainer) -> list[bytes]:
    return [parameter.detach().numpy().tobytes() for parameter in of.model.parameters()]


def snapshot(of: Trainer) -> Checkpoint:
    checkpoint = of.snapshot()
    assert checkpoint is not None
    return checkpoint


def test_defaults_of_a_task() -> None:
    task = Small()
    assert (batch_size_of(task), seed_of(task), name_of(task)) == (32, 0, "Small")
    model = task.model().eval()
    inputs, targets = batch(0)
    loss = loss_of(task, model, (inputs, targets))
    assert torch.equal(loss.mean, nn.functional.cross_entropy(model(inputs), targets)) and float(loss.weight or 0) == 6
    right = (model(inputs).argmax(1) == targets).sum().item()
    assert evaluation_sums(task, model, (inputs, targets))["accuracy"] == (right, 6)


def test_a_held_out_batch_costs_one_forward_pass() -> None:
    calls = []
    model = Small().model().eval()
    model.register_forward_hook(lambda *_: calls.append(1))
    evaluation_sums(Small(), model, batch(0))
    assert len(calls) == 1


class Counting(Small):
    """A task with all that a step may have beside forward, backward and update."""

    clip_norm = 1.0

    def __init__(self) -> None:
        self.steps = 0

    def scheduler(self, optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        weight = torch.tensor([1.0, 0.5, 2.0])
        return nn.functional.cross_entropy(model(batch[0]), batch[1], weight), weight[batch[1]].sum()

    def before_step(self, model: nn.Module) -> None:
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(0.5)

    def after_step(self, model: nn.Module) -> None:
        self.steps += 1


class LongWay(OrderedReduce):
    """Adds as its base does, but is none of the reducers whose steps are taken in one piece."""


@pytest.mark.parametrize("task", [Small, Counting])
@pytest.mark.parametrize("workers", [1, 2, 5])
def test_a_step_in_one_piece_has_the_same_bits(task: type[Small], workers: int) -> None:
    short, long = trainer(task(), workers), trainer(task(), workers, reducer=LongWay)
    for step in range(12):
        batches = [batch(step * workers + rank) for rank in range(workers)]
        losses = [list(each.step(batches)) for each in (short, long)]
        assert losses[0] == losses[1]
    assert short._is_short and not long._is_short
    assert compare_checkpoints(snapshot(short), snapshot(long)).is_equal


def test_a_step_in_one_piece_sees_what_any_step_sees() -> None:
    def taught() -> Trainer:
        one = trainer(workers=1)
        for step in range(6):
            one.step([batch(step)])
        assert one._is_short
        return one

    with pytest.raises(Diverged):
        taught().step([(batch(0)[0] * float("inf"), batch(0)[1])])
    one = taught()
    one.model[0].weight.requires_grad_(False)  # type: ignore[index,union-attr]
    with pytest.raises(UnevenGradients, match="gave 0.weight no gradient at step 6"):
        one.step([batch(0)])


def test_a_batch_may_be_drawn_under_the_workers_random_state() -> None:
    def drawn() -> Batch:
        noise = torch.rand(()) + np.random.rand() + random.random()
        inputs, targets = batch(0)
        return inputs + noise, targets

    def by_hand(rank: int) -> Batch:
        seed_everything(1 + rank)
        torch.empty((), dtype=torch.int64).random_()  # the loader's base seed
        return drawn()

    losses = trainer().step([drawn, drawn])
    seen = [by_hand(0)[0], by_hand(1)[0]]
    assert not torch.equal(seen[0], seen[1])
    model = trainer()
    assert losses != model.step([batch(0), batch(0)])


def test_switching_workers_gives_each_its_own_randomness() -> None:
    model = nn.BatchNorm1d(2)
    workers = [VirtualWorker(rank, 5, model, torch.device("cpu")) for rank in range(2)]
    drawn: dict[int, list[tuple[float, float, float]]] = {0: [], 1: []}
    for rank in (0, 1, 1, 0):
        with workers[rank]:
            drawn[rank].append((torch.rand(()).item(), float(np.random.rand()), random.random()))
            model.running_mean.add_(rank + 1)  # type: ignore[union-attr]
    for rank in (0, 1):
        seed_everything(5 + 1 + rank)
        assert drawn[rank] == [(torch.rand(()).item(), float(np.random.rand()), random.random()) for _ in range(2)]
    assert [worker.buffers[0].tolist() for worker in workers] == [[2, 2], [4, 4]]


def test_random_states_survive_a_checkpoint() -> None:
    seed_everything(9)
    np.random.randn()  # leaves a cached second value behind
    random.gauss(0, 1)  # likewise
    state = RandomState.now(torch.device("cpu"))
    wanted = (np.random.randn(), random.gauss(0, 1), torch.randn(3).tolist())
    RandomState.from_tree(state.as_tree()).set(torch.device("cpu"))
    assert (np.random.randn(), random.gauss(0, 1), torch.randn(3).tolist()) == wanted


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("drawn", [False, True])
def test_numpy_s_state_is_the_same_however_it_is_read_and_put_back(kept: bool, drawn: bool) -> None:
    """What is known of it before a turn spares reading it after one in which nobody drew."""
    cpu = torch.device("cpu")
    seed_everything(9)
    np.random.randn(1 if kept else 2)
    before = RandomState.now(cpu)
    if drawn:
        np.random.randn(3)
    after = copy(before)
    after.renew(cpu)
    wanted = np.random.randn(3).tolist()
    for state in (after, RandomState.from_tree(after.as_tree())):
        np.random.seed(1)
        np.random.randn()  # leaves a value behind that is nobody's
        state.set(cpu)
        assert np.random.randn(3).tolist() == wanted
    assert after.as_tree()["numpy"][1:] == RandomState.from_tree(after.as_tree()).numpy[1:]


def test_another_kind_of_generator_that_a_script_has_set_is_told() -> None:
    cpu, before = torch.device("cpu"), get_bit_generator()
    state = RandomState.now(cpu)
    set_bit_generator(PCG64(1))
    try:
        with pytest.raises(ValueError, match="PCG64"):
            state.set(cpu)
    finally:
        set_bit_generator(before)


def test_a_snapshot_is_not_touched_by_later_steps() -> None:
    one = trainer()
    one.step([batch(0), batch(1)])
    saved = snapshot(one)
    one.step([batch(2), batch(3)])
    wanted = weights(one)
    for _ in range(2):
        other = trainer()
        other.restore(saved)
        other.step([batch(2), batch(3)])
        assert weights(other) == wanted


def test_evaluation_changes_nothing_that_training_needs() -> None:
    plain, looked = trainer(), trainer()
    for each in (plain, looked):
        each.step([batch(0), batch(1)])
    modes = [module.training for module in looked.model.modules()]
    first = looked.evaluate([(0, batch(9)), (1, batch(8, 2))])
    assert first == looked.evaluate([(0, batch(9)), (1, batch(8, 2))])
    assert first[1]["accuracy"][1] == 2.0
    assert [module.training for module in looked.model.modules()] == modes
    for each in (plain, looked):
        each.step([batch(2), batch(3)])
    assert weights(plain) == weights(looked)
    one, other = snapshot(plain), snapshot(looked)
    assert all(
        torch.equal(one.workers[1]["buffers"][name], value) for name, value in other.workers[1]["buffers"].items()
    )


def test_an_epoch_ends_with_its_metrics() -> None:
    one = trainer()
    sums = one.step([batch(0), batch(1, 2)])
    means = one.reduce_sums(one.evaluate([(0, batch(9))]))
    assert one.finish_epoch(means) == {"loss": sum(sums) / 8, **means}
    assert (one.epoch, one.step_in_epoch, one.steps, len(one.history)) == (1, 0, 1, 1)
    one.step([batch(0), batch(1)])
    assert one.workers[0].samples == 6


def test_a_rehearsal_moves_the_same_bytes_and_no_weight() -> None:
    class Pretend:
        def gradients(self, trainer: Training, worker: VirtualWorker, batch: Batch) -> float:
            return 0.25

    rehearsal = trainer(compute=Pretend())
    before = weights(rehearsal)
    for _ in range(3):
        assert list(rehearsal.step([batch(0), batch(1)])) == [1.5, 1.5]
    assert weights(rehearsal) == before
    assert sum(vector.numel() for vector in rehearsal.updates[0].gradients[0]) == sum(
        parameter.numel() for parameter in rehearsal.model.parameters()
    )


def test_parameters_that_nobody_uses_stay_as_they_are() -> None:
    class Unused(Small):
        def model(self) -> nn.Module:
            model = super().model()
            model.register_parameter("unused", nn.Parameter(torch.ones(3)))
            return model

    one = trainer(Unused())
    for step in range(3):
        one.step([batch(step), batch(step + 9)])
    unused = dict(one.model.named_parameters())["unused"]
    assert unused.grad is None and unused.tolist() == [1, 1, 1]


def test_parameters_that_only_some_use_are_an_error() -> None:
    class Fickle(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            output = super().forward(input)
            return output if len(input) == 6 else output.detach() + self.bias

    class Uneven(Small):
        def model(self) -> nn.Module:
            return Fickle(4, 3)

    with pytest.raises(UnevenGradients, match="virtual worker 1 gave weight no gradient at step 0"):
        trainer(Uneven()).step([batch(0), batch(1, 5)])
    one = trainer(Uneven())
    one.step([batch(0), batch(1)])
    with pytest.raises(UnevenGradients, match="virtual worker 0 gave weight no gradient at step 1"):
        one.step([batch(0, 5), batch(1)])


def test_more_trainers_than_virtual_workers_are_an_error() -> None:
    group = Group.alone()
    group.size = 3
    with pytest.raises(ValueError, match="3 trainers for 2 virtual workers: give a job between 1 and 2 trainers"):
        Trainer(Small(), 2, group)


def test_a_sparse_gradient_is_an_error_that_names_the_parameter() -> None:
    class Words(Small):
        def model(self) -> nn.Module:
            return nn.Sequential(nn.Embedding(9, 4, sparse=True), nn.Flatten(), nn.Linear(8, 3))

    words = torch.zeros(6, 2, dtype=torch.int64)
    with pytest.raises(SparseGradient, match="0.weight has a sparse gradient"):
        trainer(Words()).step([(words, batch(0)[1])] * 2)


def test_an_operator_without_a_deterministic_form_is_named_with_its_module() -> None:
    class Scatter(nn.Module):
        def forward(self, input: Tensor) -> Tensor:
            return torch.zeros_like(input).put_(torch.arange(input.numel()), input)

    class Odd(Small):
        def model(self) -> nn.Module:
            return nn.Sequential(nn.Linear(4, 3), Scatter())

    with pytest.raises(NonDeterministicOperator, match="job Odd: module 1 uses put_, which has no deterministic form"):
        trainer(Odd()).step([batch(0), batch(1)])


def test_a_loss_that_is_not_finite_names_job_step_and_epoch() -> None:
    inputs, targets = batch(0)
    one = trainer()
    one.step([batch(0), batch(1)])
    message = "job Small diverged: the loss of virtual worker 1 is nan at step 1 of epoch 0"
    with pytest.raises(Diverged, match=message):
        one.step([(inputs, targets), (inputs * float("nan"), targets)])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"seed": 4}, "its seed is 0, that of Other is 4"),
        ({"order_seed": 4}, "its order's seed is 0, that of Other is 4"),
        ({"batch_size": 8}, "its batch_size is 32, that of Other is 8"),
        ({"model": lambda self: nn.Linear(4, 3)}, "its parameters is"),
        ({"scheduler": lambda self, o: torch.optim.lr_scheduler.ConstantLR(o)}, "its schedule is False"),
    ],
)
def test_another_jobs_checkpoint_is_refused(changed: dict[str, Any], message: str) -> None:
    saved = snapshot(trainer())
    other = type("Other", (Small,), changed)()
    with pytest.raises(CheckpointError, match=message):
        trainer(other).restore(saved)


def test_a_checkpoint_made_with_other_threads_is_refused() -> None:
    saved = snapshot(trainer())
    torch.set_num_threads(2)
    try:
        with pytest.raises(PinsDiffer, match="threads was 1 and is 2"):
            trainer().restore(saved)
    finally:
        torch.set_num_threads(1)


def test_wrong_calls_are_named() -> None:
    with pytest.raises(ValueError, match="1 batches for 2 virtual workers"):
        trainer().step([batch(0)])
    with pytest.raises(ValueError, match="master restores from a checkpoint, got None"):
        trainer().restore()
    with pytest.raises(ValueError, match="seed -3 is out of range"):
        trainer(type("Odd", (Small,), {"seed": -3})())


def test_time_is_split_between_work_and_waiting() -> None:
    one = trainer()
    one.step([batch(0), batch(1)])
    assert one.computed_seconds > 0
    assert one.waited_seconds == 0


class Seldom(nn.Module):
    """Draws from every generator in some steps alone; of normal numbers, each generator keeps a second one."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.unused, self.calls = nn.Linear(4, 3), nn.Linear(2, 2), 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.calls += 1
        if self.calls in (6, 7, 9):
            inputs = nn.functional.dropout(inputs, 0.5) + np.random.randn() + random.gauss(0, 1) + random.random()
        return self.inner(inputs)


class DrawsSeldom(Small):
    """Its random numbers come late, and one layer gets no gradients."""

    accumulate = 1

    def model(self) -> nn.Module:
        return Seldom()


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("workers", [1, 2, 3, 5])
@pytest.mark.filterwarnings("ignore:.*no virtual worker gives unused")
def test_short_ways_through_a_step_have_the_bits_of_the_long_ones(
    workers: int, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """States that are copied where they lie, and gradients that go together where they are added."""

    def trained() -> Checkpoint:
        task = DrawsSeldom()
        task.accumulate = parts
        one = trainer(task, workers)
        for step in range(10):
            one.step([batch(100 * step + worker) for worker in range(workers)])
        return snapshot(one)

    short = trained()
    monkeypatch.setattr("trainers.repeatable.random_state._WORDS_OF_PYTHON", None)
    monkeypatch.setattr("trainers.repeatable.random_state._words_of", lambda generator: None)
    monkeypatch.setattr("trainers.reduce.buckets.Buckets.are_small", False)
    long = trained()
    assert not compare_checkpoints(short, long).differences
    assert short.workers[0]["random"]["python"][2] is not None and short.workers[0]["random"]["numpy"][2] == 1
