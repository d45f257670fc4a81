"""Plain convolutional networks (Simonyan and Zisserman, ICLR 2015) with free depths and widths.

`blocks` of the known ones, with widths (64, 128, 256, 512, 512), hidden (4096, 4096) and images of 224 pixels: VGG-11
(1, 1, 2, 2, 2), -13 (2, 2, 2, 2, 2), -16 (2, 2, 3, 3, 3), -19 (2, 2, 4, 4, 4).
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from trainers.zoo.stem import start_convolutions


class VGG(nn.Module):
    """For each of `blocks` so many 3x3 convolutions of one width, then 2x2 max-pooling; then hidden layers and logits.

    Images are `image` pixels high and wide, and each block halves them. hidden: widths of the fully connected layers,
    each with dropout.
    """

    def __init__(
        self,
        blocks: Sequence[int] = (1, 1, 2),
        widths: Sequence[int] = (64, 128, 256),
        hidden: Sequence[int] = (256,),
        classes: int = 10,
        channels: int = 3,
        image: int = 32,
        dropout: float = 0.5,
        batch_norm: bool = False,
    ) -> None:
        super().__init__()
        if len(blocks) != len(widths):
            raise ValueError(f"{len(blocks)} blocks and {len(widths)} widths; give each block its width")
        if image >> len(blocks) < 1:
            raise ValueError(f"images of {image} pixels cannot be halved {len(blocks)} times; give fewer blocks")
        layers: list[nn.Module] = []
        for count, width in zip(blocks, widths):
            for _ in range(count):
                layers.append(nn.Conv2d(channels, width, 3, padding=1))
                layers += [nn.BatchNorm2d(width), nn.ReLU()] if batch_norm else [nn.ReLU()]
                channels = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        sizes = [channels * (image >> len(blocks)) ** 2, *hidden]
        head: list[nn.Module] = [nn.Flatten()]
        for before, after in zip(sizes, sizes[1:]):
            head += [nn.Linear(before, after), nn.ReLU(), nn.Dropout(dropout)]
        self.head = nn.Sequential(*head, nn.Linear(sizes[-1], classes))
        start_convolutions(self)

    def forward(self, input: Tensor) -> Tensor:
        return self.head(self.features(input))
