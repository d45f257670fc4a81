"""The model zoo: known structures by their numbers of parameters, and FLEET's ensemble."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from trainers import zoo

IMAGENET: dict[str, Any] = {"classes": 1000, "channels": 3, "stem": "imagenet"}


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("blocks", "block", "parameters"),
    [
        ((2, 2, 2, 2), "basic", 11_689_512),
        ((3, 4, 6, 3), "bottleneck", 25_557_032),
        ((3, 4, 23, 3), "bottleneck", 44_549_160),
        ((3, 8, 36, 3), "bottleneck", 60_192_808),
    ],
)
def test_resnets_are_the_known_ones(blocks: tuple[int, ...], block: str, parameters: int) -> None:
    with torch.device("meta"):
        model = zoo.ResNet(blocks, width=64, block=block, **IMAGENET)
        assert count(model) == parameters
        assert model(torch.empty(2, 3, 224, 224)).shape == (2, 1000)


@pytest.mark.parametrize(
    ("blocks", "parameters"),
    [((6, 12, 24, 16), 7_978_856), ((6, 12, 32, 32), 14_149_480), ((6, 12, 48, 32), 20_013_928)],
)
def test_densenets_are_the_known_ones(blocks: tuple[int, ...], parameters: int) -> None:
    with torch.device("meta"):
        model = zoo.DenseNet(blocks, growth=32, **IMAGENET)
        assert count(model) == parameters
        assert model(torch.empty(2, 3, 224, 224)).shape == (2, 1000)


@pytest.mark.parametrize(("blocks", "parameters"), [((1, 1, 2, 2, 2), 132_863_336), ((2, 2, 3, 3, 3), 138_357_544)])
def test_vggs_are_the_known_ones(blocks: tuple[int, ...], parameters: int) -> None:
    with torch.device("meta"):
        model = zoo.VGG(blocks, (64, 128, 256, 512, 512), (4096, 4096), classes=1000, image=224)
        assert count(model) == parameters
        assert model(torch.empty(2, 3, 224, 224)).shape == (2, 1000)


@pytest.mark.parametrize(
    ("widths", "parameters"), [((48, 96, 192), 1_366_792), ((116, 232, 464), 2_278_604), ((176, 352, 704), 3_503_624)]
)
def test_shufflenets_are_the_known_ones(widths: tuple[int, ...], parameters: int) -> None:
    with torch.device("meta"):
        model = zoo.ShuffleNetV2(widths=widths, **IMAGENET)
        assert count(model) == parameters
        assert model(torch.empty(2, 3, 224, 224)).shape == (2, 1000)


@pytest.mark.parametrize(
    "model",
    [
        lambda: zoo.MLP(784, (32, 16), 7, dropout=0.1),
        lambda: zoo.CNN(1, (4, 8), 7, dropout=0.1, batch_norm=False),
        lambda: zoo.ResNet((1, 2), width=4, classes=7, channels=1),
        lambda: zoo.DenseNet((2, 2), growth=4, classes=7, channels=1, dropout=0.1),
        lambda: zoo.VGG((1, 1), (4, 8), (16,), classes=7, channels=1, image=28),
        lambda: zoo.ShuffleNetV2((1, 2), (8, 16), classes=7, channels=1, initial=4, last=16),
    ],
)
def test_small_networks_take_small_images_and_learn(model: object) -> None:
    network: nn.Module = model()  # type: ignore[operator]
    output = network(torch.randn(2, 1, 28, 28))
    assert output.shape == (2, 7)
    output.sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


def test_fleets_ensemble_has_a_hundred_different_networks() -> None:
    networks = zoo.fleet_ensemble(seed=3)
    assert [network.model for network in networks] == ["trainers.zoo:DenseNet"] * 50 + ["trainers.zoo:ResNet"] * 50
    assert len({network.name for network in networks}) == 100
    assert networks == zoo.fleet_ensemble(seed=3)
    assert networks != zoo.fleet_ensemble(seed=4)
    assert networks[:5] == zoo.fleet_ensemble(seed=3, each=5)[:5]
    depths = [sum(network.arguments["blocks"]) for network in networks]
    assert min(depths) >= 1 and len(set(depths)) > 30
    with torch.device("meta"):
        sizes = [count(getattr(zoo, n.model.partition(":")[2])(**n.arguments)) for n in (networks[0], networks[99])]
    assert all(size > 1_000_000 for size in sizes)


def test_unknown_kinds_are_named() -> None:
    with pytest.raises(ValueError, match="choose basic or bottleneck"):
        zoo.ResNet((1,), block="wide")
    with pytest.raises(ValueError, match="choose imagenet or small"):
        zoo.DenseNet((1,), stem="big")
    with pytest.raises(ValueError, match="2 blocks and 1 widths; give each block its width"):
        zoo.VGG((1, 1), (8,))
    with pytest.raises(ValueError, match="images of 4 pixels cannot be halved 3 times"):
        zoo.VGG(image=4)
    with pytest.raises(ValueError, match="must be even"):
        zoo.ShuffleNetV2((1,), (7,))


def test_gpt_is_the_known_one_but_for_a_head_of_its_own() -> None:
    with torch.device("meta"):
        model = zoo.GPT()
        assert count(model) == 124_439_808 + 50257 * 768
        assert model(torch.zeros(2, 7, dtype=torch.int64)).shape == (2, 50257, 7)


def test_gpt_does_not_look_ahead() -> None:
    torch.manual_seed(0)
    model = zoo.GPT(vocabulary=11, context=8, width=8, layers=2, heads=2)
    ids = torch.randint(11, (1, 8))
    changed = ids.clone()
    changed[0, 5:] = (ids[0, 5:] + 1) % 11
    before, after = model(ids), model(changed)
    assert torch.equal(before[..., :5], after[..., :5]) and not torch.equal(before[..., 5:], after[..., 5:])
    with pytest.raises(ValueError, match="width 8 is no multiple of heads 3"):
        zoo.GPT(width=8, heads=3)
