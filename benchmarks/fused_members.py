"""Whether members of one architecture gain by being one vmapped module: a step of all, fused and one after another.

What is fused adds in another order, so its bits are those of no member alone. It was to be built if it took a step in
1.5 times less time; docs/explanation/gpu.md says what came out.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn.functional import cross_entropy

from trainers.zoo import CNN, MLP

REPETITIONS, WARM_UP = 20, 4
BATCH, CLASSES = 32, 10
PAYS = 1.5
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "MLP 64-32-10": (lambda: MLP(64, (32,), CLASSES), (64,)),
    "MLP 784-256-128-10": (lambda: MLP(784, (256, 128), CLASSES), (784,)),
    "CNN 8-16, 28 x 28": (lambda: CNN(1, (8, 16), CLASSES), (1, 28, 28)),
}
MEMBERS = (4, 8, 16)
Step = Callable[[], None]


def main(repetitions: int = 0) -> dict[str, Any]:
    """Measure each network with each number of members, both ways in turns, on one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        rows = [
            [name, members, *_compared(make, shape, members, repetitions or REPETITIONS)]
            for name, (make, shape) in NETWORKS.items()
            for members in MEMBERS
        ]
    finally:
        torch.set_num_threads(threads)
    columns = ["network", "members", "apart over fused", "from", "to", f"pays ({PAYS:g} times)"]
    return {"bars": [], "tables": [{"title": "a step of all members", "columns": columns, "rows": rows}]}


def _compared(make: Callable[[], nn.Module], shape: tuple[int, ...], members: int, repetitions: int) -> list[Any]:
    """Return how many times as fast the fused step is: median, least, most; and whether that pays."""
    models = [make().train() for _ in range(members)]
    inputs, targets = torch.randn(BATCH, *shape), torch.randint(0, CLASSES, (BATCH,))
    ways = _apart(models, inputs, targets), _fused(models, inputs, targets)
    ratios = []
    for repetition in range(WARM_UP + repetitions):
        apart, fused = (_seconds(way) for way in ways)
        if repetition >= WARM_UP:
            ratios.append(apart / fused)
    figures = [round(figure, 2) for figure in (median(ratios), min(ratios), max(ratios))]
    return [*figures, "yes" if median(ratios) >= PAYS else "no"]


def _apart(models: list[nn.Module], inputs: Tensor, targets: Tensor) -> Step:
    optimizers = [torch.optim.SGD(model.parameters(), 0.05, momentum=0.9) for model in models]

    def step() -> None:
        for model, optimizer in zip(models, optimizers):
            optimizer.zero_grad()
            cross_entropy(model(inputs), targets).backward()
            optimizer.step()

    return step


def _fused(models: list[nn.Module], inputs: Tensor, targets: Tensor) -> Step:
    stacked, buffers = stack_module_state(models)
    parameters = {name: value.detach().clone().requires_grad_() for name, value in stacked.items()}
    optimizer = torch.optim.SGD(list(parameters.values()), 0.05, momentum=0.9)
    skeleton = copy.deepcopy(models[0]).to("meta")

    def loss(own: dict[str, Tensor], own_buffers: dict[str, Tensor]) -> Tensor:
        return cross_entropy(functional_call(skeleton, (own, own_buffers), (inputs,)), targets)

    def step() -> None:
        optimizer.zero_grad()
        vmap(loss, randomness="different")(parameters, buffers).sum().backward()
        optimizer.step()

    return step


def _seconds(step: Step) -> float:
    begin = time.perf_counter()
    step()
    return time.perf_counter() - begin
