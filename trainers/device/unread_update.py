"""Which updates a device can be asked for before the gradients are there, as the host reads nothing of them."""

from __future__ import annotations

from torch import Tensor, optim
from torch.optim import optimizer as of_torch

_KNOWN = {
    optim.SGD, optim.Adam, optim.AdamW, optim.Adamax, optim.NAdam, optim.RAdam, optim.RMSprop, optim.Adadelta,
    optim.Adagrad,
}  # fmt: skip


def is_unread(task: object, optimizer: optim.Optimizer) -> bool:
    """Whether an update of the task asks for kernels and waits for none, so far as is known.

    Of torch's own optimizers that is known, as long as all their numbers are on the host, and nothing else is called.
    A kernel for each parameter would be too many: a device takes about a thousand orders before the host has to wait.
    """
    if hasattr(task, "before_step") or type(optimizer) not in _KNOWN:
        return False
    hooks = (optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks)  # type: ignore[attr-defined]
    of_all = (of_torch._global_optimizer_pre_hooks, of_torch._global_optimizer_post_hooks)
    numbers = [value for group in optimizer.param_groups for name, value in group.items() if name != "params"]
    alone = any(group.get("foreach") is False and not group.get("fused") for group in optimizer.param_groups)
    return not alone and not any((*hooks, *of_all)) and not any(isinstance(number, Tensor) for number in numbers)
