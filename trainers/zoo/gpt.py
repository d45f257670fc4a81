"""A decoder of text in the manner of GPT."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


class GPT(nn.Module):
    """Scores, for each place of a text, of every id that may come next (Radford et al., 2019, GPT-2, without dropout).

    Attention is written out, so that it has a deterministic backward pass on every device.

    Args:
        vocabulary: V, how many ids there are.
        context: most ids of a text.
        width: how wide the residual stream is.
        layers: blocks of attention and a perceptron four times as wide.
        heads: how many each attention has; they divide the width.
        dropout: after the embedding, and after each attention and perceptron.
    """

    def __init__(
        self,
        vocabulary: int = 50257,
        context: int = 1024,
        width: int = 768,
        layers: int = 12,
        heads: int = 12,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} is no multiple of heads {heads}: each head has as much of it")
        self.ids, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(_Block(width, heads, dropout) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        for table in (self.ids, self.places):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the scores, (samples, V, T), of ids, (samples, T) of int64: as cross entropy takes them."""
        places = torch.arange(ids.shape[1], device=ids.device)
        hidden = self.blocks(self.dropout(self.ids(ids) + self.places(places)))
        scores: Tensor = self.head(self.norm(hidden))
        return scores.transpose(1, 2)


class _Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_perceptron = nn.LayerNorm(width), nn.LayerNorm(width)
        self.projected, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.dropout(self._attention(self.before_attention(hidden)))
        return hidden + self.dropout(self.perceptron(self.before_perceptron(hidden)))

    def _attention(self, hidden: Tensor) -> Tensor:
        """Causal attention; (samples, T, width) in and out."""
        samples, length, width = hidden.shape
        split = self.projected(hidden).view(samples, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        later = torch.ones(length, length, dtype=torch.bool, device=hidden.device).triu(1)
        scores = (query @ key.transpose(-2, -1) / math.sqrt(width // self.heads)).masked_fill(later, -math.inf)
        seen = functional.softmax(scores, dim=-1) @ value
        joined: Tensor = self.joined(seen.transpose(1, 2).reshape(samples, length, width))
        return joined
