"""Small networks trained on the rig and on the CPU, beside each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch_rig
from torch import Tensor, nn
from torch.nn import functional

from trainers.zoo import CNN, MLP, DenseNet, ResNet

STEPS = 3


class Attention(nn.Module):
    """A transformer's layer, or heads alone, over rows of pixels."""

    def __init__(self, dropout: float | None) -> None:
        super().__init__()
        self.begin, self.end, self.alone = nn.Linear(48, 32), nn.Linear(32, 10), dropout is None
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=dropout or 0)

    def forward(self, pictures: Tensor) -> Tensor:
        rows = self.begin(pictures.flatten(1).view(len(pictures), 16, 48))
        if self.alone:
            heads = rows.view(len(rows), 16, 4, 8).transpose(1, 2)
            attended = functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
            rows = attended.transpose(1, 2).flatten(2)
        else:
            rows = self.layer(rows)
        return self.end(rows.mean(1))


class Recurrent(nn.Module):
    def __init__(self, kind: Callable[..., nn.Module]) -> None:
        super().__init__()
        self.cells, self.end = kind(48, 16, batch_first=True, num_layers=2), nn.Linear(16, 10)

    def forward(self, pictures: Tensor) -> Tensor:
        return self.end(self.cells(pictures.flatten(1).view(len(pictures), 16, 48))[0][:, -1])


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm, self.end = nn.Embedding(20, 8), nn.LayerNorm(8), nn.Linear(8, 10)

    def forward(self, pictures: Tensor) -> Tensor:
        words = (pictures.flatten(1)[:, :16].abs() * 5).long().clamp(max=19)
        return self.end(self.norm(self.table(words)).mean(1))


def _perceptron() -> nn.Module:
    layers = (nn.Flatten(), nn.Linear(768, 32), nn.LayerNorm(32), nn.SiLU(), nn.Dropout(0.3), nn.Linear(32, 10))
    return nn.Sequential(*layers)


def _convolutions() -> nn.Module:
    head = (nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.ConvTranspose2d(8, 8, 3))
    tail = (nn.GroupNorm(2, 8), nn.GELU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 10))
    return nn.Sequential(*head, *tail)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "perceptron": _perceptron,
    "convolutions": _convolutions,
    "MLP": lambda: nn.Sequential(nn.Flatten(), MLP(768, (32,), 10)),
    "CNN": lambda: CNN(3, (8, 16), 10),
    "ResNet": lambda: ResNet((1, 1), 4),
    "DenseNet": lambda: DenseNet((1, 2), 4, channels=3),
    "transformer": lambda: Attention(0.1),
    "transformer without dropout": lambda: Attention(0.0),
    "attention": lambda: Attention(None),
    "words": Words,
    "LSTM": lambda: Recurrent(nn.LSTM),
    "GRU": lambda: Recurrent(nn.GRU),
}
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9, weight_decay=1e-3),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, 1e-2),
    "Adam": lambda parameters: torch.optim.Adam(parameters, 1e-2, amsgrad=True),
    "Adagrad": lambda parameters: torch.optim.Adagrad(parameters, 1e-2),
    "RMSprop": lambda parameters: torch.optim.RMSprop(parameters, 1e-2, momentum=0.5),
    "Adadelta": lambda parameters: torch.optim.Adadelta(parameters, 1e-2),
}


def _batch(step: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    return torch.randn(8, 3, 16, 16, generator=generator), torch.randint(10, (8,), generator=generator)


def trained(model: str, optimizer: str, device: str, cast: bool) -> list[Tensor]:
    """Return the losses, the parameters and the buffers, on the CPU."""
    torch.manual_seed(1)
    network = MODELS[model]().to(device)
    rule = OPTIMIZERS[optimizer](network.parameters())
    torch.manual_seed(2)
    losses = []
    for step in range(STEPS):
        pictures, labels = (part.pin_memory().to(device, non_blocking=True) for part in _batch(step))
        rule.zero_grad()
        with torch.autocast(torch.device(device).type, torch.bfloat16, cast):
            made = network(pictures)
        loss = functional.cross_entropy(made.float(), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        rule.step()
        losses.append(loss.detach())
    return [tensor.detach().cpu() for tensor in (*losses, *network.parameters(), *network.buffers())]


def furthest(model: str, optimizer: str, schedules: list[str], cast: bool) -> list[float]:
    """Return, for each schedule, how far the rig's tensors are from the CPU's; -1: they are equal in all bits."""
    wanted = trained(model, optimizer, "cpu", cast)
    distances = []
    for schedule in schedules:
        torch_rig.schedule(schedule)
        distances.append(_distance(trained(model, optimizer, "rig", cast), wanted))
    return distances


def _distance(got: list[Tensor], wanted: list[Tensor]) -> float:
    if all(map(torch.equal, got, wanted)):
        return -1.0
    return max(float((a.double() - b.double()).abs().max()) for a, b in zip(got, wanted))


def same_in_schedules(model: str, schedules: list[str]) -> bool:
    """Whether the rig's own bits are the same in all schedules."""
    made = []
    for schedule in schedules:
        torch_rig.schedule(schedule)
        made.append(trained(model, "SGD", "rig", False))
    return all(_distance(each, made[0]) == -1 for each in made)


def other_things() -> dict[str, bool]:
    """What programs do with tensors besides kernels."""
    torch_rig.schedule("both-late")
    host = torch.randn(7, 5)
    there = host.to("rig")
    return {
        "views": torch.equal(there.t()[1:4].reshape(-1).cpu(), host.t()[1:4].reshape(-1)),
        "masks": torch.equal(there[there > 0].cpu(), host[host > 0]),
        "sizes from values": torch.equal(there.gt(0).nonzero().cpu(), host.gt(0).nonzero()),
        "growing results": torch.equal(torch.add(there, 1, out=torch.empty(0, device="rig")).cpu(), host + 1),
        "whole numbers": torch.equal(torch.arange(0, 9, 2, device="rig").cpu(), torch.arange(0, 9, 2)),
        "fractions": [len(torch.arange(0, 1, step, device="rig")) for step in (0.25, 0.2)] == [4, 5],
        "types": torch.equal(there.to("cpu", torch.float64), host.double()),
        "sorted": torch.equal(there.topk(2)[1].cpu(), host.topk(2)[1]),
        "printed": "rig:0" in repr(there),
        "pinned": host.pin_memory().is_pinned() and not host.is_pinned(),
        "other device": torch.equal(_on_second(there), host),
        "generator": _generators(),
        "saved": _saved(there, host),
    }


def _on_second(there: Tensor) -> Tensor:
    moved = there.to("rig:1")
    with torch.get_device_module("rig").device(1):
        return moved.cpu()


def _generators() -> bool:
    module = torch.get_device_module("rig")
    torch.manual_seed(5)
    first, state = torch.rand(4, device="rig"), module.get_rng_state("rig")
    second = torch.rand(4, device="rig")
    module.set_rng_state(state, "rig")
    own = torch.rand(4, device="rig", generator=torch.Generator("rig").manual_seed(5))
    third = torch.rand(4, device="rig")
    return torch.equal(own, first) and torch.equal(second, third) and not torch.equal(first, second)


def _saved(there: Tensor, host: Tensor) -> bool:
    import io

    file = io.BytesIO()
    torch.save(there, file)
    file.seek(0)
    return torch.equal(torch.load(file, map_location="cpu"), host)
