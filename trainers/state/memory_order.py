"""The order in which an optimizer's state lies in memory."""

from __future__ import annotations

from torch import Tensor, empty_like, optim


def lay_out_as_parameters(optimizer: optim.Optimizer) -> None:
    """Give each tensor of the state that is shaped like its parameter the parameter's memory order.

    Optimizers make them so, and their fused kernels go through both in memory order: after a parameter in channels_last
    beside momenta in C order each element would be updated with another's. Checkpoints and messages keep values alone.
    """
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape and value.stride() != parameter.stride():
                state[key] = empty_like(parameter, dtype=value.dtype, device=value.device).copy_(value)
