"""A multi-layer perceptron."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn


class MLP(nn.Module):
    """Flattens its input to `inputs` features; one hidden ReLU layer for each of `widths`; `classes` logits."""

    def __init__(
        self, inputs: int = 784, widths: Sequence[int] = (128,), classes: int = 10, dropout: float = 0.0
    ) -> None:
        super().__init__()
        sizes = [inputs, *widths]
        layers: list[nn.Module] = [nn.Flatten()]
        for before, after in zip(sizes, sizes[1:]):
            layers += [nn.Linear(before, after), nn.ReLU()]
            if dropout:
                layers.append(nn.Dropout(dropout))
        self.layers = nn.Sequential(*layers, nn.Linear(sizes[-1], classes))

    def forward(self, input: Tensor) -> Tensor:
        return self.layers(input)
