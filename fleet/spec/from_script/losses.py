"""How a script's loss comes about: from which outputs and targets, by which function of torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_WORDS = ("loss", "cross_entropy", "kl_div")
_FORMS = ("squeeze", "unsqueeze", "view", "reshape", "flatten", "transpose", "permute", "float", "long", "double", "to",
          "type", "contiguous")  # fmt: skip
_SCALES = ("mul", "div", "__mul__", "__rmul__", "__truediv__")


@dataclass(frozen=True)
class FormChange:
    """A method that only changes a tensor's form: its name and arguments."""

    method: str
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]


@dataclass(frozen=True)
class LossCall:
    """A call of a loss in torch.nn.functional."""

    name: str
    outputs: Any
    targets: Any
    arguments: Mapping[str, Any]


@dataclass
class Losses(TorchFunctionMode):
    """Remembers how tensors came from others while it is entered: by losses, by changes of form, by scales.

    Attributes:
        calls: by a loss's id, its call.
        changed: by a tensor's id, the tensor it was made of and the change.
        backward: the loss of the last backward pass; passes: how many there were.
    """

    calls: dict[int, LossCall] = field(default_factory=dict)
    changed: dict[int, tuple[Any, FormChange]] = field(default_factory=dict)
    backward: Any = None
    passes: int = 0
    _kept: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        keywords = dict(kwargs or {})
        name = str(getattr(func, "__name__", ""))
        if func is torch.Tensor.backward:
            self.backward, self.passes = args[0], self.passes + 1
        given = func(*args, **keywords)
        if isinstance(given, torch.Tensor):
            if getattr(functional, name, None) is func and any(word in name for word in _WORDS):
                self._keep(given, args, keywords, name)
            elif args and isinstance(args[0], torch.Tensor) and given is not args[0]:
                self._follow(given, name, args, keywords)
        return given

    def forget(self) -> None:
        """Forget how tensors came about: another batch begins."""
        self.calls.clear()
        self.changed.clear()
        self._kept.clear()

    def of(self, loss: Any) -> LossCall | None:
        """The call that gave a loss, behind scales; None: it was none."""
        return self.calls.get(id(self.unscaled(loss)))

    def unscaled(self, loss: Any) -> Any:
        """A loss before it was scaled, such as divided by a number of parts."""
        while id(loss) in self.changed and id(loss) not in self.calls and self.changed[id(loss)][1].method in _SCALES:
            loss = self.changed[id(loss)][0]
        return loss

    def source(self, tensor: Any) -> tuple[Any, tuple[FormChange, ...]]:
        """The tensor that another is a form of, and the changes on the way."""
        changes: list[FormChange] = []
        while id(tensor) in self.changed:
            before, change = self.changed[id(tensor)]
            if change.method in _SCALES:
                break
            tensor = before
            changes.insert(0, change)
        return tensor, tuple(changes)

    def _keep(self, loss: Any, args: Sequence[Any], keywords: Mapping[str, Any], name: str) -> None:
        named = dict(zip(("input", "target"), args)) | dict(keywords)
        outputs, targets = named.pop("input", None), named.pop("target", None)
        if len(args) <= 2:
            self.calls[id(loss)] = LossCall(name, outputs, targets, named)
            self._kept += [loss, outputs, targets]

    def _follow(self, given: Any, name: str, args: Sequence[Any], keywords: Mapping[str, Any]) -> None:
        scales = name in _SCALES and len(args) == 2 and isinstance(args[1], (int, float))
        if name in _FORMS or scales:
            self.changed[id(given)] = args[0], FormChange(name, tuple(args[1:]), keywords)
            self._kept += [given, args[0]]
