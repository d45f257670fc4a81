"""What the outputs and targets of a batch say: class scores, one logit, several labels, or values.

Metrics see one flat form of each, without the targets that the loss ignores: so they do not depend on how many samples
a batch has, or on how far its sequences are padded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from trainers.task.loss import IGNORED

Kind = Literal["multiclass", "binary", "multilabel"]
KINDS: tuple[Kind, ...] = ("multiclass", "binary", "multilabel")


class Misfit(ValueError):
    """A metric cannot be measured of these outputs and targets; the text says why, and the mend."""


@dataclass(frozen=True)
class Form:
    """How a job's outputs and targets are read.

    kind: of the classification; None: as their shapes say.
    ignored: classes of this number do not count, NaN among them; None: all count.
    padding: targets that are values do not count where they are this; None: all count.
    probabilities: whether outputs are probabilities already, and not logits.
    class_axis: of class scores.
    """

    kind: Kind | None = None
    ignored: float | None = IGNORED
    padding: float | None = None
    probabilities: bool = False
    class_axis: int = 1

    def with_kind(self, kind: Kind | None) -> Form:
        """Return the form with a kind that somebody says."""
        return self if kind is None else replace(self, kind=kind)


@dataclass(frozen=True)
class Classes:
    """Targets that count, with their scores.

    scores: (targets, classes) of several classes, (targets,) of one logit, (places, labels) of several labels.
    targets: (targets,) int64; of several labels (places, labels), where IGNORED does not count.
    """

    kind: Kind
    scores: Tensor
    targets: Tensor
    logits: bool

    @property
    def found(self) -> Tensor:
        """The classes that the scores say; of one logit and of labels 0 or 1."""
        if self.kind == "multiclass":
            return self.scores.argmax(dim=1)
        return (self.scores > (0.0 if self.logits else 0.5)).long()

    @property
    def probabilities(self) -> Tensor:
        """The scores as probabilities, float64: those of other samples do not change them."""
        scores = self.scores.double()
        if not self.logits:
            return scores
        return scores.softmax(dim=1) if self.kind == "multiclass" else scores.sigmoid()


def classes_of(form: Form, outputs: Any, targets: Any) -> Classes:
    """Read a batch of a classification. Misfit."""
    outputs, targets = _tensor(outputs, "outputs"), _tensor(targets, "targets")
    if not outputs.is_floating_point():
        what, mend = "classes are read from scores, and these are whole numbers", "let the network give its scores"
        raise _misfit(outputs, targets, what, mend)
    kind = form.kind or _kind(form, outputs, targets)
    if kind == "multiclass":
        return _multiclass(form, outputs, targets)
    if kind == "multilabel" or (outputs.dim() == 2 and outputs.shape[1] > 1 and outputs.shape == targets.shape):
        return _multilabel(form, outputs, targets)
    return _binary(form, outputs, targets)


def values_of(form: Form, outputs: Any, targets: Any) -> tuple[Tensor, Tensor]:
    """Read a batch of numbers: (outputs, targets), flat, float64, of the elements that count. Misfit."""
    outputs, targets = _tensor(outputs, "outputs"), _tensor(targets, "targets")
    if len(outputs.shape[:1]) == 0 or outputs.shape[:1] != targets.shape[:1] or outputs.numel() != targets.numel():
        raise _misfit(outputs, targets, "each output needs a target", "give as many of both")
    found, wanted = outputs.reshape(-1), targets.reshape(-1)
    counts = _counts(form.padding, wanted)
    return found[counts].double(), wanted[counts].double()


def _kind(form: Form, outputs: Tensor, targets: Tensor) -> Kind:
    """The kind that the shapes say."""
    if outputs.dim() > 1 and outputs.shape[form.class_axis] > 1:
        if _is_one_less(outputs, targets, form.class_axis):
            return "multiclass"
        if outputs.shape == targets.shape:
            what = "targets as large as the outputs may be one class of several, or several labels"
            mend = "say which: {name: ..., of: ..., arguments: {task: multiclass}}, or multilabel"
            raise _misfit(outputs, targets, what, mend)
    elif _bare(outputs) == _bare(targets):
        return "binary"
    raise _unread(form, outputs, targets)


def _multiclass(form: Form, outputs: Tensor, targets: Tensor) -> Classes:
    axis = form.class_axis
    if outputs.dim() < 2 or outputs.shape[axis] < 2:
        what = "several classes need a score each, along axis 1"
        raise _misfit(outputs, targets, what, "give the network as many outputs as there are classes")
    if outputs.shape == targets.shape:
        targets = targets.argmax(dim=axis)
    elif not _is_one_less(outputs, targets, axis):
        raise _unread(form, outputs, targets)
    scores, wanted = outputs.movedim(axis, -1).reshape(-1, outputs.shape[axis]), targets.reshape(-1)
    counts = _counts(form.ignored, wanted)
    scores, wanted = scores[counts], wanted[counts]
    classes = _whole(wanted, scores.shape[1], outputs, targets)
    return Classes("multiclass", scores, classes, not form.probabilities)


def _binary(form: Form, outputs: Tensor, targets: Tensor) -> Classes:
    if outputs.dim() == 2 and outputs.shape[1] == 2 and form.kind == "binary":  # two classes, of which 1 is sought
        both = _multiclass(form, outputs, targets)
        return Classes("binary", both.probabilities[:, 1], both.targets, False)
    if _bare(outputs) != _bare(targets):
        raise _unread(form, outputs, targets)
    scores, wanted = outputs.reshape(-1), targets.reshape(-1)
    counts = _counts(form.ignored, wanted)
    classes = _whole(wanted[counts], 2, outputs, targets)
    return Classes("binary", scores[counts], classes, not form.probabilities)


def _multilabel(form: Form, outputs: Tensor, targets: Tensor) -> Classes:
    if outputs.dim() < 2 or outputs.shape != targets.shape:
        raise _misfit(outputs, targets, "several labels need a target each", "give targets of the outputs' shape")
    labels = outputs.shape[1]
    scores, wanted = (each.movedim(1, -1).reshape(-1, labels) for each in (outputs, targets))
    counts = _counts(form.ignored, wanted)
    _whole(wanted[counts], 2, outputs, targets)
    return Classes("multilabel", scores, torch.where(counts, wanted, IGNORED).long(), not form.probabilities)


def _counts(ignored: float | None, targets: Tensor) -> Tensor:
    """Which targets count."""
    if ignored is None:
        return torch.ones_like(targets, dtype=torch.bool)
    return ~targets.isnan() if math.isnan(ignored) else targets != ignored


def _whole(targets: Tensor, classes: int, outputs: Tensor, given: Tensor) -> Tensor:
    """The targets as numbers of classes. Misfit if one is none."""
    wrong = targets[(targets != targets.floor()) | (targets < 0) | (targets >= classes)]
    if wrong.numel():
        what = f"a target is {wrong[0].item():g}, and {classes} classes are numbered from 0 to {classes - 1}"
        mend = "give such numbers, or name a metric of values, such as mean_absolute_error"
        raise _misfit(outputs, given, what, mend)
    return targets.long()


def _is_one_less(outputs: Tensor, targets: Tensor, axis: int) -> bool:
    """Whether the targets have the outputs' shape but for the axis of classes, which may be 1 there."""
    shape = list(outputs.shape)
    del shape[axis]
    return _bare(targets) == _bare(torch.empty(shape, device="meta")) and targets.numel() == math.prod(shape)


def _bare(tensor: Tensor) -> tuple[int, ...]:
    """The shape without axes of 1, but for the first."""
    return (*tensor.shape[:1], *(length for length in tensor.shape[1:] if length != 1))


def _tensor(value: Any, what: str) -> Tensor:
    if isinstance(value, Tensor):
        small = not (value.is_floating_point() or value.is_complex())
        return value.detach().long() if small else value.detach()  # torch wraps what a small type cannot hold
    raise Misfit(
        f"the {what} are of type {type(value).__name__}, and this metric takes a tensor; let the network give one, or "
        "name a metric of your own, module:Name of a function of (outputs, targets)"
    )


def _unread(form: Form, outputs: Tensor, targets: Tensor) -> Misfit:
    last = outputs.dim() > 2 and form.class_axis != -1 and _is_one_less(outputs, targets, outputs.dim() - 1)
    mend = "give targets (samples, ...) to class scores (samples, classes, ...), or one output a target"
    if last:
        mend = "the classes are along the last axis: add arguments: {class_axis: -1}, or transpose the outputs"
    return _misfit(outputs, targets, "they do not go together", mend)


def _misfit(outputs: Tensor, targets: Tensor, what: str, mend: str) -> Misfit:
    shapes: Sequence[str] = [f"{tuple(each.shape)} of {str(each.dtype)[6:]}" for each in (outputs, targets)]
    return Misfit(f"outputs of shape {shapes[0]} and targets of shape {shapes[1]}: {what}; {mend}")
