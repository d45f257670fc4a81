"""Several networks' probabilities -> one answer, and how good that is."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fleet.models.errors import ModelsError
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
            ModelsError: there are fewer than two samples to divide.
        """
        count = len(predictions.names)
        first, second = halves(predictions.samples) if divided else (None, None)
        return cls(predictions, torch.full((count,), 1 / count, dtype=torch.float64), second, first)

    @classmethod
    def greedy(cls, predictions: Predictions, picks: int) -> Vote:
        """Pick so many, with replacement: each pick makes the mean likeliest on one half of the samples.

        Caruana et al., ICML'04, section 2. Figures are from the other half.

        Raises:
            ModelsError: there are fewer than two samples.
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
        ModelsError: there are fewer than two.
    """
    if samples < 2:
        raise ModelsError("what is chosen is chosen on one half of the held-out samples, and there is one sample alone")
    seed = int.from_bytes(blake2b(f"predict/greedy/{samples}".encode(), digest_size=8).digest(), "big")
    drawn = torch.from_numpy(np.random.default_rng(seed).permutation(samples))
    return drawn[: samples // 2].sort().values, drawn[samples // 2 :].sort().values


def greedy_picks(members: str) -> int | None:
    """Return K of `greedy:K`; None: the text is about something else. ModelsError: K is no whole number above 0."""
    kind, _, count = members.partition(":")
    if kind != _GREEDY:
        return None
    if not count.isdecimal() or int(count) == 0:
        raise ModelsError(f"--members {members}: write greedy:K with a whole number K above 0, such as greedy:5")
    return int(count)


BINS = 15
"""Bins of the calibration error."""
"""Logarithms are taken of no smaller probability: one of 0 would cost infinitely much."""


@dataclass(frozen=True)
class Figures:
    """How good probabilities are, each a mean over the samples.

    Attributes:
        accuracy: share of samples whose class has the highest probability; of equal ones the first class counts.
        nll: -ln of the probability of the sample's class; a probability counts 1.2e-38 at least.
        brier: the sum over the classes of (probability - 1 or 0)^2 (Brier, 1950), from 0 to 2.
        ece: expected calibration error (Naeini et al., AAAI'15, eq. 3), the sum over 15 bins of equal width of
            |accuracy - confidence| x share of samples. The bins are those of torchmetrics: [0, 1/15), [1/15, 2/15)
            ..., and one of its own for a confidence of 1.
    """

    accuracy: float
    nll: float
    brier: float
    ece: float

    @classmethod
    def of(cls, probabilities: Tensor, targets: Tensor) -> Figures:
        """Compute them in float64.

        Args:
            probabilities: (samples, classes), each row with the sum 1.
            targets: (samples,) int64, from 0 to classes - 1.
        """
        exact = probabilities.double()
        own = exact.gather(1, targets[:, None]).squeeze(1)
        confidence, answers = exact.max(dim=1)
        right = (answers == targets).double()
        brier = (exact.square().sum(dim=1) - 2 * own + 1).mean()
        nll = -own.clamp(min=_LEAST).log().mean()
        ece = _calibration_error(probabilities.max(dim=1).values, confidence, right)
        return cls(right.mean().item(), nll.item(), brier.item(), ece)

    def to_json(self) -> dict[str, float]:
        """Plain values by name."""
        return asdict(self)


def _calibration_error(binned: Tensor, confidence: Tensor, right: Tensor) -> float:
    """The expected calibration error; `binned` are the confidences in the precision in which they were given."""
    bounds = torch.linspace(0, 1, BINS + 1, dtype=binned.dtype)
    bins = torch.bucketize(binned, bounds, right=True) - 1
    sums = torch.zeros(BINS + 1, dtype=torch.float64).index_add_(0, bins.clamp(0, BINS), right - confidence)
    return (sums.abs().sum() / len(right)).item()


def disagreement(answers: Tensor) -> float:
    """Return the share of samples for which two networks answer differently, the mean over all pairs; one network: 0.

    Args:
        answers: (networks, samples), the classes.
    """
    count = len(answers)
    pairs = [(answers[one] != answers[two]).double().mean() for one in range(count) for two in range(one)]
    return torch.stack(pairs).mean().item() if pairs else 0.0


def diversity(members: Tensor, weights: Tensor) -> float:
    """Return the Jensen-Shannon divergence of networks' probabilities in nats, the mean over the samples.

    It is the entropy of the weighted mean less the weighted mean of the entropies (Lin, 1991, eq. 5.1): 0 where all say
    the same.

    Args:
        members: (networks, samples, classes).
        weights: (networks,) float64, with the sum 1.
    """
    own = torch.stack([_entropy(each).mean() for each in members])
    return max((_entropy(weighted(members, weights)).mean() - (own * weights).sum()).item(), 0.0)


def weighted(members: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted mean of networks' probabilities, (samples, classes) float64, added in their order."""
    total = torch.zeros(members.shape[1:], dtype=torch.float64)
    for each, weight in zip(members, weights.tolist()):
        total += each.double() * weight
    return total


def _entropy(probabilities: Tensor) -> Tensor:
    return torch.special.entr(probabilities.double()).sum(dim=1)


LEAST, MOST = 0.01, 100.0
_STEPS = 60
_TINY = torch.finfo(torch.float32).tiny


def fitted_temperature(probabilities: Tensor, targets: Tensor) -> float:
    """Return the temperature, from 0.01 to 100, with which the targets are likeliest, to 1e-6 of it or better.

    -ln of the likelihood is convex in 1/T; its slope is halved in on, in the logarithm of 1/T.

    Args:
        probabilities: (samples, classes), each row with the sum 1; they count 1.2e-38 at least.
        targets: (samples,) int64.
    """
    logs = _logs(probabilities)
    own = logs.gather(1, targets[:, None]).squeeze(1).mean()
    low, high = torch.tensor(1 / MOST).double().log(), torch.tensor(1 / LEAST).double().log()
    for _ in range(_STEPS):
        middle = (low + high) / 2
        shares = (logs * middle.exp()).softmax(dim=1)
        slope = (shares * logs).sum(dim=1).mean() - own
        low, high = (low, middle) if slope > 0 else (middle, high)
    return min(max(float((-(low + high) / 2).exp()), LEAST), MOST)


def scaled(probabilities: Tensor, temperature: float) -> Tensor:
    """Return probabilities at a temperature, float64 of the same shape.

    Args:
        probabilities: (samples, classes), each row with the sum 1; they count 1.2e-38 at least.
        temperature: above 0; 1 leaves them as they are.
    """
    return (_logs(probabilities) / temperature).softmax(dim=1)


def _logs(probabilities: Tensor) -> Tensor:
    return probabilities.double().clamp(min=_TINY).log()
