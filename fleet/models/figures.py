"""How good class probabilities are, and how much networks differ."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
from torch import Tensor

BINS = 15
"""Bins of the calibration error."""
_LEAST = torch.finfo(torch.float32).tiny
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
