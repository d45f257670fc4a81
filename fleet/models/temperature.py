"""Temperature scaling (Guo et al., ICML'17, section 4.2): one number makes probabilities less sure, or surer.

A temperature T turns probabilities p of logits z into softmax(z / T), which is p^(1/T) divided by its sum. The answers
stay the same.
"""

from __future__ import annotations

import torch
from torch import Tensor

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
