"""Whether a network's weights are numbers: the last step's gradients may be infinite where its loss is not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import Tensor, nn

from trainers.step.losses import Diverged, copied


class FiniteWeights:
    """Holds a network's parameters and buffers to be numbers; those that were none as it was built may stay so.

    A mask is a buffer with infinities.
    """

    def __init__(self, job: str, model: nn.Module) -> None:
        self._job = job
        self._left_out = set(_unfit(_state(model)))

    def first_unfit(self, model: nn.Module, buffers: Iterable[Mapping[str, Tensor]] = ()) -> str | None:
        """Return the name of the first tensor that holds a NaN or an infinity; None: all are numbers.

        buffers: those of each virtual worker.
        """
        found = (name for state in (_state(model), *buffers) for name in _unfit(state) if name not in self._left_out)
        return next(found, None)

    def check(self, model: nn.Module, buffers: Iterable[Mapping[str, Tensor]] = ()) -> None:
        """Raise Diverged if there is such a tensor; see `first_unfit`."""
        name = self.first_unfit(model, buffers)
        if name is not None:
            raise Diverged(
                f"job {self._job} diverged: {name} holds NaN or infinite values after the last step, though the loss "
                "was finite before it; try a lower learning rate, or look for a gradient that is infinite, such as "
                "that of a square root or a norm at 0"
            )


def _state(model: nn.Module) -> dict[str, Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _unfit(tensors: Mapping[str, Tensor]) -> list[str]:
    """Names of tensors with NaNs or infinities; each device is waited for once."""
    found = []
    known = {name: each for name, each in tensors.items() if not nn.parameter.is_lazy(each)}
    floating = {name: each.detach() for name, each in known.items() if each.is_floating_point() and each.numel()}
    for device in {each.device for each in floating.values() if each.device.type != "meta"}:
        names = [name for name, each in floating.items() if each.device == device]
        fit = copied([floating[name].isfinite().all() for name in names])()
        found += [name for name, is_fit in zip(names, fit) if not is_fit]
    return found
