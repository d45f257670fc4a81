"""Gradients on their way into buckets, and sums that begin while backward goes on."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from trainers import Group
from trainers.reduce.buckets import Buckets, Layout
from trainers.reduce.gradients import Filling, Gradients, GradientTwice, SparseGradient
from trainers.reduce.ordered_reduce import OrderedReduce
from trainers.reduce.reduction import Reduction


def gradients_of(model: nn.Module) -> tuple[Gradients, list[nn.Parameter], list[Tensor]]:
    """The hooks, the parameters, and a view of each one's place in fresh buckets."""
    names, parameters = zip(*model.named_parameters())
    buckets = Buckets(parameters, Layout.first(parameters))
    return Gradients(names, parameters, lambda: False), list(parameters), buckets.views(buckets.empty())


def test_gradients_are_moved_scaled_in_the_order_of_backward() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    gradients, parameters, views = gradients_of(model)
    model(torch.ones(1, 2)).sum().backward()
    wanted = [parameter.grad * (1 / 3) for parameter in parameters if parameter.grad is not None]
    with gradients.turn(views, 1 / 3) as turn:
        model(torch.ones(1, 2)).sum().backward()
        assert all(parameter.grad is None for parameter in parameters)
    assert sorted(turn.order[:2]) == [2, 3] and sorted(turn.order[2:]) == [0, 1]
    assert turn.used == [True] * 4
    assert all(torch.equal(view, value) for view, value in zip(views, wanted))


def test_gradients_that_were_put_there_by_hand_are_taken_and_missing_ones_are_zero() -> None:
    model = nn.Linear(2, 2)
    gradients, parameters, views = gradients_of(model)
    views[1].fill_(7)
    with gradients.turn(views, 0.5) as turn:
        parameters[0].grad = torch.ones(2, 2)
    assert turn.used == [True, False]
    assert views[0].tolist() == [[0.5, 0.5], [0.5, 0.5]] and views[1].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("groups", "taken"),
    [([[2, 3], [0, 1]], 4), ([[3, 2], [1, 0]], 4), ([[0, 1, 2, 3]], 4), ([[0, 2], [1, 3]], 4), ([[3, 2]], 2), ([], 0)],
)
def test_gradients_are_taken_together_and_those_of_no_group_in_the_end(groups: list[list[int]], taken: int) -> None:
    """Some of a group may come after the one that is thought to be its last."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    gradients, parameters, views = gradients_of(model)
    model(torch.ones(1, 2)).sum().backward()
    wanted = [parameter.grad * 0.5 for parameter in parameters if parameter.grad is not None]
    gradients.watch(groups)
    with gradients.turn(views, 0.5) as turn:
        model(torch.ones(1, 2)).sum().backward()
        assert sum(turn.used) <= taken and (sum(turn.used) > 0) == bool(groups)
    assert turn.used == [True] * 4 and sorted(turn.order) == [0, 1, 2, 3]
    assert all(torch.equal(view, value) for view, value in zip(views, wanted))
    assert all(parameter.grad is None for parameter in parameters)


def test_the_gradients_of_an_only_worker_stay_where_they_are() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    gradients, parameters, _ = gradients_of(model)
    with gradients.turn(None, 1.0) as turn:
        model[0](torch.ones(1, 2)).sum().backward()
        made = [parameter.grad for parameter in parameters[:2]]
        parameters[3].grad = torch.full((2,), 5.0)
    assert turn.used == [True, True, False, True] and turn.order[2:] == [3]
    assert all(parameter.grad is one for parameter, one in zip(parameters, made))
    assert parameters[2].grad is None and parameters[3].grad is not None and parameters[3].grad.tolist() == [5, 5]


def test_outside_a_turn_the_hooks_do_nothing() -> None:
    model = nn.Linear(2, 2)
    gradients_of(model)
    for _ in range(2):
        model(torch.ones(1, 2)).sum().backward()
    assert model.bias.grad is not None and model.bias.grad.tolist() == [2, 2]


def test_sparse_gradients_are_refused_by_name() -> None:
    model = nn.Sequential(nn.Embedding(5, 2, sparse=True), nn.Linear(2, 1))
    gradients, _, views = gradients_of(model)
    with (
        pytest.raises(SparseGradient, match="0.weight has a sparse gradient.*sparse=False"),
        gradients.turn(views, 1.0),
    ):
        model(torch.tensor([1])).sum().backward()


def test_a_gradient_in_two_parts_is_refused_by_name() -> None:
    model = nn.Linear(2, 2)
    gradients, _, views = gradients_of(model)
    inputs = torch.ones(1, 2, requires_grad=True)
    twice = checkpoint(model, checkpoint(model, inputs, use_reentrant=True), use_reentrant=True)
    message = "got its gradient in two parts.*use_reentrant=False"
    with pytest.raises(GradientTwice, match=message), gradients.turn(views, 1.0):
        twice.sum().backward()


def test_buckets_fill_in_their_order_whatever_comes_first() -> None:
    full: list[int] = []
    filling = Filling([[3, 2], [1], [0, 4]], [True, True, True, True, False], full.append)
    seen = []
    for index in (1, 0, 2, 4, 3):
        filling.took([index])
        seen.append(list(full))
    assert seen == [[], [], [], [], [0, 1, 2]]
    filling.finish()
    assert full == [0, 1, 2]


def test_buckets_that_nobody_fills_are_full_at_the_end() -> None:
    full: list[int] = []
    filling = Filling([[0], [1]], [True, False], full.append)
    assert full == []
    filling.took([0])
    assert full == [0, 1]
    nothing = Filling([[0], [1]], [True, True], full.append)
    nothing.finish()
    assert full == [0, 1, 0, 1]


class Endless:
    """An reducer whose sums wait until they are interrupted, or fail."""

    def __init__(self, fails: bool) -> None:
        self.interrupted = threading.Event()
        self._fails = fails

    def sum(self, vectors: list[Tensor]) -> Tensor:
        if self._fails or self.interrupted.wait(timeout=30):
            raise ConnectionError("no sum")
        raise AssertionError("nobody interrupted the wait")

    def interrupt(self) -> None:
        self.interrupted.set()


def test_sums_beside_come_in_the_order_of_their_starts() -> None:
    ring = OrderedReduce(Group.alone(), 2, torch.device("cpu"))
    for beside in (False, True):
        with Reduction(ring, beside) as reduction:
            for number in range(5):
                reduction.start([torch.full((3,), float(number)), torch.ones(3)])
            sums, _ = reduction.finish()
        assert [total.tolist() for total in sums] == [[number + 1.0] * 3 for number in range(5)]


def test_an_error_beside_is_raised_where_the_step_waits() -> None:
    ring = Endless(fails=True)
    with pytest.raises(ConnectionError), Reduction(ring, True) as reduction:  # type: ignore[arg-type]
        reduction.start([torch.ones(1)])
        reduction.finish()


def test_an_error_of_the_step_ends_the_sums_beside() -> None:
    ring = Endless(fails=False)
    with pytest.raises(ArithmeticError), Reduction(ring, True) as reduction:  # type: ignore[arg-type]
        reduction.start([torch.ones(1)])
        raise ArithmeticError
    assert ring.interrupted.is_set()
    assert not any(thread.name == "reduction" for thread in threading.enumerate())
