"""Samples of any shape without a task class: sentences with their features, and networks that read them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

WORDS, CLASSES, LONGEST = 12, 3, 9


class Sentences:
    """Dicts of ids of any number (uint16) and features (float32), with a class; `giant`: a sample of 4000 ids."""

    def __init__(self, count: int, longest: int = LONGEST, giant: int | None = None) -> None:
        generator = torch.Generator().manual_seed(count)
        lengths = torch.randint(1, longest + 1, (count,), generator=generator).tolist()
        if giant is not None:
            lengths[giant] = 4000
        self.ids = [torch.randint(1, WORDS, (length,), generator=generator) for length in lengths]
        self.features = torch.rand(count, 2, generator=generator)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> tuple[dict[str, Tensor], int]:
        ids = self.ids[index]
        return {"ids": ids.to(torch.uint16), "features": self.features[index]}, int(ids.sum()) % CLASSES


class Stream(torch.utils.data.IterableDataset[Any]):
    """Samples that come one after the other."""

    def __iter__(self) -> Any:
        yield from ((torch.zeros(2), 0),) * 4


class Reader(nn.Module):
    """The mean of the words that are there, beside the features."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.words, self.dropout = nn.Embedding(WORDS, width), nn.Dropout(0.2)
        self.head = nn.Linear(width + 2, CLASSES)

    def forward(self, inputs: Any) -> Tensor:
        (ids, mask), (features, _) = inputs["ids"], inputs["features"]
        words = self.dropout(self.words(ids)) * mask[..., None]
        mean = words.sum(1) / mask.sum(1, keepdim=True)
        scores: Tensor = self.head(torch.cat([mean, features], 1))
        return scores
