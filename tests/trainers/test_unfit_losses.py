"""A loss without gradients is told with what is wrong about it; errors of a sound loss's backward pass stay theirs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from trainers.step.compute import UnfitLoss, backward


class Refusing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor) -> Tensor:
        return inputs.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        raise RuntimeError("not today")


def weights() -> Tensor:
    return torch.ones(3, requires_grad=True)


@pytest.mark.parametrize(
    ("loss", "told"),
    [
        (weights() * 2, "a tensor of shape (3,), and must be a single number; return the mean"),
        ((weights() * 2).sum().detach(), "does not depend on any weights that are trained, or was detached"),
        (torch.ones(3).sum(), "does not depend on any weights that are trained, or was detached"),
        (0.5, "of type float, and must be a tensor"),
        (None, "of type NoneType, and must be a tensor"),
    ],
)
def test_a_loss_without_gradients_is_told(loss: object, told: str) -> None:
    with pytest.raises(UnfitLoss) as raised:
        backward(loss)
    assert told in str(raised.value)


def test_a_single_number_has_gradients_in_any_shape() -> None:
    for shape in ((), (1,), (1, 1)):
        trained = weights()
        backward((trained * 2).sum().reshape(shape))
        assert trained.grad is not None and trained.grad.tolist() == [2, 2, 2]


def test_what_the_backward_pass_raises_is_passed_on() -> None:
    with pytest.raises(RuntimeError, match="not today") as raised:
        backward(Refusing.apply(weights()).sum())  # type: ignore[no-untyped-call]
    assert not isinstance(raised.value, UnfitLoss)


def test_gradients_go_where_they_are_wanted() -> None:
    one, other = weights(), weights()
    backward((one * other).sum(), inputs=[other])
    assert one.grad is None and other.grad is not None
