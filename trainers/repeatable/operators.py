"""Operators that have no deterministic form: which a model uses, and the place of one that torch refuses."""

from __future__ import annotations

import re
from types import TracebackType
from typing import Any

from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

_REFUSAL = re.compile(r"(\S+) does not have a deterministic implementation")


_POOLS = (
    "avg_pool3d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_max_pool2d", "adaptive_max_pool3d",
    "fractional_max_pool2d", "fractional_max_pool3d",
)  # fmt: skip
_RESHAPED = (
    "upsample_linear1d", "upsample_bicubic2d", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d",
    "grid_sampler_2d", "grid_sampler_3d",
)  # fmt: skip
ON_GPUS_ALONE = frozenset(
    (*(f"{name}_backward" for name in (*_POOLS, *_RESHAPED)), "max_unpool2d", "max_unpool3d", "nll_loss2d_forward")
) | {"_ctc_loss_backward", "put_", "histc", "median.dim", "nanmedian.dim"}
"""Operators that torch refuses on GPUs, as it has no deterministic form of them there, though it has on CPUs; those
that hang on more than their name (`bincount` with weights, `cumsum` of floats) are not among them.
"""


class OperatorsSeen(TorchDispatchMode):
    """A context that notes operators of ON_GPUS_ALONE that run in it, on whatever device, backward passes included."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, overload = func._schema.name.partition("::")[2], func._schema.overload_name
        for each in {name, f"{name}.{overload}"} & ON_GPUS_ALONE:
            self.names += [each] if each not in self.names else []
        return func(*args, **(kwargs or {}))


class NonDeterministicOperator(RuntimeError):
    """The model uses an operator whose result is not the same each time."""


def check_refusal(error: RuntimeError, model: nn.Module, job: str) -> None:
    """Raise NonDeterministicOperator, with operator, module and mend, if an error is torch's refusal of an operator."""
    refused = _REFUSAL.match(str(error))
    if refused is not None:
        raise NonDeterministicOperator(
            f"job {job}: {_module(model, error.__traceback__)} uses {refused[1]}, which has no deterministic form "
            "here, so no two runs need agree; replace it (torch.use_deterministic_algorithms lists such operators and "
            "what to use instead)"
        ) from error


def _module(model: nn.Module, traceback: TracebackType | None) -> str:
    """Return the innermost module of `model` that was at work."""
    names = {id(module): name for name, module in model.named_modules()}
    found = None
    while traceback is not None:
        owner = traceback.tb_frame.f_locals.get("self")
        found = names.get(id(owner), found)
        if id(owner) == id(model):
            found = ""
        traceback = traceback.tb_next
    if found is None:
        return "the loss or the backward pass"
    return f"module {found}" if found else f"the model ({type(model).__name__})"
