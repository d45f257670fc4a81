"""Which models can be trained on devices of mixed kinds at little cost."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from trainers import scan
from trainers.zoo import CNN, MLP, DenseNet, ResNet


class Hidden(nn.Module):
    """A convolution that no module shows."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, 1, 3))

    def forward(self, input: Tensor) -> Tensor:
        return self._convolve(input).relu()

    def _convolve(self, input: Tensor) -> Tensor:
        return functional.conv1d(input, self.weight)


class Elsewhere(nn.Module):
    """A convolution behind a name of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, 1, 3))
        self.work = functional.conv1d

    def forward(self, input: Tensor) -> Tensor:
        return self.work(input, self.weight)


class Ratings(nn.Module):
    """Embeddings and layers over their product, as NeuMF has."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.items, self.head = nn.Embedding(9, 4), nn.Embedding(7, 4), nn.Linear(4, 1)

    def forward(self, pairs: Tensor) -> Tensor:
        return self.head(self.users(pairs[:, 0]) * self.items(pairs[:, 1]))


@pytest.mark.parametrize("model", [MLP(4, (8,), 3), Ratings(), nn.LayerNorm(3)], ids=["mlp", "ratings", "norm"])
def test_matrix_products_and_embeddings_are_affordable(model: nn.Module) -> None:
    found = scan(model)
    assert found.affordable and not found.vendor
    assert [finding.module for finding in found.agnostic] == [name for name, _ in model.named_modules()]
    assert "D2 is affordable" in str(found)


@pytest.mark.parametrize("model", [CNN(), ResNet((1,), 4), DenseNet((1,), 4)], ids=["cnn", "resnet", "densenet"])
def test_convolutions_are_not(model: nn.Module) -> None:
    found = scan(model)
    assert not found.affordable
    convolutions = [name for name, module in model.named_modules() if isinstance(module, nn.Conv2d)]
    assert [finding.module for finding in found.vendor] == convolutions
    assert {finding.kind for finding in found.vendor} == {"Conv2d"}
    assert "keep to devices of one kind" in str(found) and convolutions[0] in str(found)


def test_recurrent_networks_are_not() -> None:
    assert [finding.kind for finding in scan(nn.GRU(3, 4)).vendor] == ["GRU"]


def test_attention_has_a_replacement() -> None:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 1, enable_nested_tensor=False)
    found = scan(model)
    assert found.affordable
    assert "layers.0.self_attn" in [finding.module for finding in found.replaced]


def test_functions_are_found_in_the_code_of_a_module() -> None:
    found = scan(Hidden())
    assert [(finding.module, finding.kind) for finding in found.vendor] == [("", "Hidden")]
    assert "the model itself (Hidden): a convolution" in str(found)


def test_operators_that_run_are_found_where_the_code_is_silent() -> None:
    model = nn.Sequential(nn.Linear(5, 5), Elsewhere())
    assert scan(model).affordable
    found = scan(model, torch.ones(1, 5))
    assert [finding.module for finding in found.vendor] == ["1"]


def test_a_scan_leaves_the_model_as_it_was() -> None:
    model = nn.Sequential(nn.Conv1d(1, 2, 3), nn.BatchNorm1d(2), nn.Dropout(0.5)).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    input = torch.ones(2, 1, 5)
    torch.manual_seed(0)
    wanted = model(input)
    for name, value in before.items():
        model.state_dict()[name].copy_(value)
    scan(model, input)
    assert model.training and all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    torch.manual_seed(0)
    assert torch.equal(model(input), wanted)


def test_code_that_cannot_be_read_is_said_to_be_so() -> None:
    class Opaque(nn.Module):
        forward = torch.relu  # type: ignore[assignment]

    found = scan(nn.Sequential(Opaque()))
    assert [finding.module for finding in found.unread] == ["0"]
    assert not found.affordable and "give the scan an input" in str(found)
