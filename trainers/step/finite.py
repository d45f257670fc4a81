"""Whether a network's weights are numbers: the last step's gradients may be infinite where its loss is not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from trainers.step.losses import Diverged


def first_unfit(tensors: Mapping[str, Tensor]) -> str | None:
    """Return the name of the first tensor that holds a NaN or an infinity; None: all are numbers."""
    floating = {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point() and tensor.numel()}
    by_device: dict[torch.device, list[str]] = {}
    for name, tensor in floating.items():
        by_device.setdefault(tensor.device, []).append(name)
    for names in by_device.values():
        fit = torch.stack([floating[name].detach().isfinite().all() for name in names]).tolist()
        if not all(fit):
            return names[fit.index(False)]
    return None


class FiniteWeights:
    """Holds a network's parameters and buffers to be numbers; those that were none as it was built may stay so."""

    def __init__(self, job: str, model: nn.Module) -> None:
        self._job = job
        self._left_out: set[str] = set()
        state = _state(model)
        while (
            name := first_unfit({key: value for key, value in state.items() if key not in self._left_out})
        ) is not None:
            self._left_out.add(name)

    def check(self, model: nn.Module, buffers: Iterable[Mapping[str, Tensor]] = ()) -> None:
        """Raise Diverged for the first tensor that holds a NaN or an infinity. buffers: of each virtual worker."""
        for state in (_state(model), *buffers):
            name = first_unfit({key: value for key, value in state.items() if key not in self._left_out})
            if name is not None:
                raise Diverged(
                    f"job {self._job} diverged: {name} holds NaN or infinite values after the last step, though the "
                    "loss was finite before it; try a lower learning rate, or look for a gradient that is infinite, "
                    "such as that of a square root or a norm at 0"
                )


def _state(model: nn.Module) -> dict[str, Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}
