"""Several networks' probabilities -> one answer, and how good that is."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fleet.models.errors import HarvestError
from fleet.models.figures import Figures, disagreement, diversity, weighted
from fleet.models.predictions import Predictions

Kind = Literal["soft", "hard"]
_GREEDY = "greedy"
_LEAST = torch.finfo(torch.float32).tiny


@dataclass(frozen=True)
class Vote:
    """Networks that vote together.

    Attributes:
        predictions: these networks made them, for all samples.
        weights: (networks,) float64, with the sum 1.
        told: the samples from which figures are, (any,) int64; None: all.
        chosen_on: the other samples, on which something was chosen or fitted; None: nothing was.
    """

    predictions: Predictions
    weights: Tensor
    told: Tensor | None = None
    chosen_on: Tensor | None = None

    @classmethod
    def of_all(cls, predictions: Predictions, divided: bool = False) -> Vote:
        """All networks, with the same weight.

        Args:
            divided: something is chosen on one half of the samples, so that figures are from the other.

        Raises:
            HarvestError: there are fewer than two samples to divide.
        """
        count = len(predictions.names)
        first, second = halves(predictions.samples) if divided else (None, None)
        return cls(predictions, torch.full((count,), 1 / count, dtype=torch.float64), second, first)

    @classmethod
    def greedy(cls, predictions: Predictions, picks: int) -> Vote:
        """Pick so many, with replacement: each pick makes the mean likeliest on one half of the samples.

        Caruana et al., ICML'04, section 2. Figures are from the other half.

        Raises:
            HarvestError: there are fewer than two samples.
        """
        first, second = halves(predictions.samples)
        half = predictions.of_samples(first)
        own = half.probabilities.gather(2, half.targets.expand(len(half.names), -1)[..., None]).squeeze(2).double()
        counts = greedy_counts(own, picks)
        members = [each for each, count in enumerate(counts) if count]
        weights = torch.tensor([counts[each] / picks for each in members], dtype=torch.float64)
        return cls(predictions.of_members(members), weights, second, first)

    def together(self, kind: Kind = "soft") -> Tensor:
        """Probabilities of all, (answers, classes) float64: the weighted mean; `hard`: the shares of their answers."""
        return _together(self.predictions, self.weights, kind)

    def members(self) -> dict[str, Figures]:
        """The figures of each network; none where targets are unknown."""
        seen = self.seen
        if not seen.labelled:
            return {}
        return {name: Figures.of(each, seen.targets) for name, each in zip(seen.names, seen.probabilities)}

    def ensemble(self, kind: Kind = "soft") -> dict[str, float]:
        """The figures of all together where targets are known, and the networks' disagreement and diversity."""
        seen = self.seen
        figures = Figures.of(_together(seen, self.weights, kind), seen.targets).to_json() if seen.labelled else {}
        return {
            **figures,
            "disagreement": disagreement(seen.probabilities.argmax(dim=2)),
            "diversity": diversity(seen.probabilities, self.weights),
        }

    def samples_told(self) -> dict[str, int]:
        """From how many samples figures are, and on how many others something was chosen, if it was."""
        if self.told is None:
            return {"samples": self.predictions.samples}
        return {"samples": len(self.told), "chosen_on": self.predictions.samples - len(self.told)}

    @property
    def seen(self) -> Predictions:
        """The networks' answers to the samples from which figures are."""
        return self.predictions if self.told is None else self.predictions.of_samples(self.told)


def _together(predictions: Predictions, weights: Tensor, kind: Kind) -> Tensor:
    members = predictions.probabilities
    if kind == "hard":
        members = torch.nn.functional.one_hot(members.argmax(dim=2), members.shape[2])
    return weighted(members, weights)


def greedy_counts(own: Tensor, picks: int) -> list[int]:
    """Return how often each network is picked; of equally good ones the first is.

    Args:
        own: probability of the sample's class, (networks, samples) float64.
    """
    total, counts = torch.zeros_like(own[0]), [0] * len(own)
    for pick in range(1, picks + 1):
        likelihoods = torch.stack([((total + each) / pick).clamp(min=_LEAST).log().mean() for each in own])
        best = int(likelihoods.argmax())
        total = total + own[best]
        counts[best] += 1
    return counts


def halves(samples: int) -> tuple[Tensor, Tensor]:
    """Divide samples by the seed path `predict/greedy/SAMPLES`; the first half is the smaller one, both ascend.

    Raises:
        HarvestError: there are fewer than two.
    """
    if samples < 2:
        raise HarvestError(
            "what is chosen is chosen on one half of the held-out samples, and there is one sample alone"
        )
    seed = int.from_bytes(blake2b(f"predict/greedy/{samples}".encode(), digest_size=8).digest(), "big")
    drawn = torch.from_numpy(np.random.default_rng(seed).permutation(samples))
    return drawn[: samples // 2].sort().values, drawn[samples // 2 :].sort().values


def greedy_picks(members: str) -> int | None:
    """Return K of `greedy:K`; None: the text is about something else. HarvestError: K is no whole number above 0."""
    kind, _, count = members.partition(":")
    if kind != _GREEDY:
        return None
    if not count.isdecimal() or int(count) == 0:
        raise HarvestError(f"--members {members}: write greedy:K with a whole number K above 0, such as greedy:5")
    return int(count)
