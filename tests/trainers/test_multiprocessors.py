"""Modules whose bits hang on how many multiprocessors an accelerator has are found by class and by what they call."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from trainers.repeatable.scan import DRAWS, SUMS, by_multiprocessors
from trainers.zoo import CNN, MLP


class Drawing(nn.Module):
    def forward(self, input: Tensor) -> Tensor:
        return functional.dropout(input, 0.5)


class Summing(nn.Module):
    def forward(self, input: Tensor) -> Tensor:
        return torch.mean(input, dim=1)


class Inner(nn.Module):
    """It sums in a method of its own."""

    def forward(self, input: Tensor) -> Tensor:
        return self.weighted(input)

    def weighted(self, input: Tensor) -> Tensor:
        return (input * 2).sum(dim=0)


@pytest.mark.parametrize("model", [MLP(), nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.MaxPool1d(2), nn.Flatten())])
def test_matrix_products_and_element_wise_work_do_not_count(model: nn.Module) -> None:
    assert by_multiprocessors(model) == ()


@pytest.mark.parametrize(
    "model, reason",
    [(MLP(dropout=0.1), DRAWS), (Drawing(), DRAWS), (Summing(), SUMS), (Inner(), SUMS), (nn.LayerNorm(4), SUMS)],
)
def test_draws_and_sums_are_found(model: nn.Module, reason: str) -> None:
    assert [finding.reason for finding in by_multiprocessors(model)] == [reason]


def test_each_finding_has_its_place() -> None:
    kinds = {finding.kind for finding in by_multiprocessors(CNN())}
    assert "BatchNorm2d" in kinds and "Conv2d" not in kinds
