"""Held-out batches call the network itself; loss and metrics share its forward passes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benchmarks.numbered.written_tasks import KeywordNet, Keywords
from trainers.task.task import evaluation_sums, remembering


class Counting(nn.Module):
    """Counts its forward passes."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.passes = inner, 0

    def forward(self, *inputs: Any, scale: float = 1.0, more: Any = None) -> Tensor:
        self.passes += 1
        first = inputs[0][0] if isinstance(inputs[0], (list, tuple)) else inputs[0]
        made: Tensor = scale * self.inner(first)
        return made


X = torch.ones(2, 3)


@pytest.mark.parametrize(
    ("call", "passes"),
    [
        (lambda model: (model(X), model(X)), 1),
        (lambda model: (model(X, scale=2.0), model(X, scale=2.0)), 1),
        (lambda model: (model(X, more={"mask": X}), model(X, more={"mask": X})), 1),
        (lambda model: (model([X, None]), model([X, None])), 1),
        (lambda model: (model(X), model(X, scale=2.0), model(X)), 2),
        (lambda model: (model(X), model(X.clone())), 2),
        (lambda model: (model(X, more="a"), model(X, more="b")), 2),
        (lambda model: (model([X, None]), model((X, None))), 2),
    ],
)
def test_calls_with_the_same_arguments_share_a_pass(call: Callable[[Any], Any], passes: int) -> None:
    model = Counting(nn.Linear(3, 2)).eval()
    with torch.no_grad(), remembering(model):
        call(model)
    assert model.passes == passes
    model(X)
    model(X)
    assert model.passes == passes + 2 and "_compiled_call_impl" not in model.__dict__


def test_a_tensor_that_was_written_to_is_another_argument_and_another_output() -> None:
    model, x = Counting(nn.Linear(3, 2)).eval(), torch.ones(2, 3)
    with torch.no_grad(), remembering(model):
        first = model(x).clone()
        x.add_(1.0)
        assert not torch.equal(model(x), first) and model.passes == 2
        model(x).zero_()
        assert model(x).abs().sum() > 0 and model.passes == 3


def test_what_draws_is_drawn_anew() -> None:
    model = Counting(nn.Dropout(0.5))
    with torch.no_grad(), remembering(model):
        drawn = [model(torch.ones(64)) for _ in range(3)]
    assert model.passes == 3 and not torch.equal(drawn[0], drawn[1])


def test_a_mode_that_changes_is_another_call() -> None:
    model = Counting(nn.BatchNorm1d(3)).eval()
    with torch.no_grad(), remembering(model):
        model(X)
        model.train()
        model(X)
    assert model.passes == 2


def test_the_network_stays_what_it_is() -> None:
    model = Counting(nn.Linear(3, 2))
    seen = []
    model.register_forward_hook(lambda *_: seen.append(1))
    with torch.no_grad(), remembering(model):
        assert type(model) is Counting and model.inner.in_features == 3
        model(X), model(X)
        assert sorted(model.state_dict()) == ["inner.bias", "inner.weight"]
        other = copy.deepcopy(model)
        other(X)
    assert len(seen) == 2 and model.passes == 1 and other.passes == 2


def test_a_network_that_is_called_by_keywords_is_evaluated_in_one_pass_a_batch() -> None:
    task, model = Keywords(), KeywordNet().eval()
    inputs, targets = torch.randn(6, 8), torch.randint(0, 2, (6,))
    before = KeywordNet.calls
    with torch.no_grad():
        sums = evaluation_sums(task, model, (inputs, targets))
        right = torch.nn.functional.cross_entropy(model.layer(inputs), targets).item()
    assert KeywordNet.calls == before + 1
    assert sums["test_loss"] == (pytest.approx(6 * right, rel=1e-6), 6.0)
    assert sums["accuracy"] == (float((model.layer(inputs).argmax(1) == targets).sum()), 6.0)
