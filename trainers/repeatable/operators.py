"""Names the place of an operator that has no deterministic form, which torch reports without it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from torch import nn

_REFUSAL = re.compile(r"(\S+) does not have a deterministic implementation")


class NonDeterministicOperator(RuntimeError):
    """The model uses an operator whose result is not the same each time."""


@contextmanager
def named_operators(model: nn.Module, job: str) -> Iterator[None]:
    """Turn torch's refusal of an operator into NonDeterministicOperator, which names operator, module and mend."""
    try:
        yield
    except RuntimeError as error:
        refused = _REFUSAL.match(str(error))
        if refused is None:
            raise
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
