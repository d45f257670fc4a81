"""What is slow when it is first used, and quick in a fork of a process that has used it: templates, messages, sizes."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import cross_entropy

from fleet.coordination.protocol import MESSAGES
from fleet.profiling.sizing import size_of
from fleet.report.rendering import page_environment, plotly
from preprocess import SampleLayout
from trainers.repeatable.random_state import RandomState
from trainers.zoo import CNN

LAYOUT = SampleLayout((1, 12, 12), "float32", (), "int64")


class Task:
    """A small network on no device."""

    batch_size = 4

    def model(self) -> torch.nn.Module:
        return CNN(widths=(4,), dropout=0.1)

    def optimizer(self, model: torch.nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters())

    def loss(self, model: Any, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return cross_entropy(model(batch[0]), batch[1])


def use_all() -> None:
    """Use them; the generators stand as before."""
    before = RandomState.now(torch.device("cpu"))
    page_environment().get_template("report.html.j2")
    plotly()
    for kind in MESSAGES.kinds:
        MESSAGES._adapter(kind.__name__)
    size_of(Task(), LAYOUT)
    before.set(torch.device("cpu"))
