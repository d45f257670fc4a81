"""The ensemble of FLEET, MLSys'20, 5.1 and Appendix B.1: 50 DenseNets and 50 ResNets of random depths.

The paper derives each network from DenseNet-121, -169, -201 or ResNet-50, -101, -152 "by randomly changing the block
size"; it does not list them. Here each stage's number of blocks is drawn evenly between half and one and a half times
the number of the network it comes from.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_DENSENETS = {"densenet121": (6, 12, 24, 16), "densenet169": (6, 12, 32, 32), "densenet201": (6, 12, 48, 32)}
_RESNETS = {"resnet50": (3, 4, 6, 3), "resnet101": (3, 4, 23, 3), "resnet152": (3, 8, 36, 3)}


@dataclass(frozen=True)
class Network:
    """A network that can be built: `model` is "module:Name", to be called with `arguments`."""

    name: str
    model: str
    arguments: dict[str, Any]


def fleet_ensemble(
    seed: int = 0, each: int = 50, classes: int = 1000, channels: int = 3, stem: str = "imagenet"
) -> tuple[Network, ...]:
    """Return `each` DenseNets, then `each` ResNets. Network i is a function of `seed` and its own name alone."""
    common = {"classes": classes, "channels": channels, "stem": stem}
    densenets = [
        _derive(f"densenet-{i}", seed, _DENSENETS, "trainers.zoo:DenseNet", {"growth": 32, **common})
        for i in range(each)
    ]
    resnets = [
        _derive(f"resnet-{i}", seed, _RESNETS, "trainers.zoo:ResNet", {"width": 64, "block": "bottleneck", **common})
        for i in range(each)
    ]
    return (*densenets, *resnets)


def _derive(name: str, seed: int, bases: Mapping[str, Sequence[int]], model: str, arguments: dict[str, Any]) -> Network:
    draw = random.Random(f"fleet_ensemble/{seed}/{name}")
    blocks = bases[draw.choice(sorted(bases))]
    changed = [draw.randint(max(1, count // 2), count + count // 2) for count in blocks]
    return Network(name, model, {"blocks": changed, **arguments})
