"""Modules that virtual workers cannot train, whatever is in the batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from torch import nn
from torch.nn.parameter import is_lazy


class UnfitModule(NamedTuple):
    """A module that cannot be trained.

    Attributes:
        rule: which, and why. mend: what to have in its place.
    """

    rule: str
    mend: str


def unfit_modules(model: nn.Module) -> Iterator[UnfitModule]:
    """Yield the modules of a model that cannot be trained so."""
    for name, module in model.named_modules():
        what = f"module {name}" if name else "the model"
        if isinstance(module, nn.SyncBatchNorm):
            yield UnfitModule(
                f"{what} is a SyncBatchNorm, whose statistics need all workers in the forward pass at once; virtual "
                "workers take turns",
                "Use BatchNorm, which DDP keeps by process, or GroupNorm",
            )
        own = (*module.parameters(recurse=False), *module.buffers(recurse=False))
        if any(map(is_lazy, own)):
            yield UnfitModule(
                f"{what} is a {type(module).__name__}, whose sizes nobody knows before the first batch; DDP refuses "
                "it, too",
                "Give the sizes, or let the model's constructor pass zeros through it",
            )
