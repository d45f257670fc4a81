"""Two states, two traces or two histories held against each other, bit by bit.

Every bit counts: the signs of zeros and what a NaN carries, too. Distances are in ULPs: how many representable numbers
lie between two values, plus one.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainers.proof.tensor_trace import TensorHash
from trainers.state.checkpoint import Checkpoint
from trainers.state.history import History

SECTIONS = ("parameters", "buffers", "optimizer", "schedule", "random", "progress", "layout", "task")
"""Parts of a checkpoint that are compared, in the order in which the first difference is looked for."""
NOT_COMPARED = ("job", "history", "pins")
"""Shown only: a name, metrics, and the settings under which the state was made."""

_PROGRESS = ("seed", "virtual_workers", "batch_size", "epoch", "step", "steps")
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class TensorDifference:
    """One tensor or plain value that is not the same on both sides.

    name: where it stands. kind: "values", "shape", "type", or "missing" on one side. elements, differing: how many
    there are and how many differ. index: index of the first that does. left, right: the values there, or the shapes.
    ulps: distance of the first difference, largest_ulps: the largest distance; None where there is none (integers,
        NaN).
    """

    name: str
    kind: str
    elements: int
    differing: int
    index: tuple[int, ...]
    left: str
    right: str
    ulps: int | None = None
    largest_ulps: int | None = None

    def __str__(self) -> str:
        if self.kind != "values":
            return f"{self.name}: {self.kind}: {self.left} and {self.right}"
        index = f"[{', '.join(map(str, self.index))}]" if self.index else ""
        ulps = "" if self.ulps is None else f", {self.ulps} ULP{'' if self.ulps == 1 else 's'} apart"
        return f"{self.name}{index}: {self.left} and {self.right}{ulps}"


@dataclass(frozen=True)
class ComparedPart:
    """A part of two states: how much of it there is, and how much differs."""

    name: str
    tensors: int
    differing_tensors: int
    elements: int
    differing_elements: int
    largest_ulps: int | None


@dataclass(frozen=True)
class StateComparison:
    """What came out. differences: all, in order; sections: with their counts."""

    sections: tuple[ComparedPart, ...]
    differences: tuple[TensorDifference, ...]

    @property
    def is_equal(self) -> bool:
        """Whether every bit agrees."""
        return not self.differences

    def joined(self, others: Iterable[StateComparison]) -> StateComparison:
        """Return this comparison and others as one."""
        everything = [self, *others]
        return StateComparison(
            tuple(section for each in everything for section in each.sections),
            tuple(difference for each in everything for difference in each.differences),
        )


@dataclass(frozen=True)
class TraceDifference:
    """Where two traces part. number: the event's number, from 0; left or right is None where that trace has ended."""

    number: int
    left: TensorHash | None
    right: TensorHash | None

    @property
    def is_same_place(self) -> bool:
        """Whether both computed the same thing, with other bits; else they went other ways."""
        return self.left is not None and self.right is not None and self.left.place == self.right.place


def compare_checkpoints(left: Checkpoint, right: Checkpoint, prefix: str = "") -> StateComparison:
    """Compare two states of a job: `SECTIONS`, not `NOT_COMPARED`. `prefix` begins all names."""
    ours, theirs = _by_section(left), _by_section(right)
    parts = [compare_trees(ours[name], theirs[name], name, prefix) for name in SECTIONS]
    return parts[0].joined(parts[1:])


def compare_trees(left: Mapping[str, Any], right: Mapping[str, Any], section: str, prefix: str = "") -> StateComparison:
    """Compare nested plain data with tensors in it; an entry on one side alone is a difference."""
    ours, theirs = dict(_leaves(left, f"{prefix}{section}")), dict(_leaves(right, f"{prefix}{section}"))
    names = [*ours, *(name for name in theirs if name not in ours)]
    differences: list[TensorDifference] = []
    elements = 0
    for name in names:
        elements += max(_size(ours.get(name)), _size(theirs.get(name)))
        found = _missing(name, ours, theirs) or _compare(name, ours[name], theirs[name])
        if found is not None:
            differences.append(found)
    distances = [found.largest_ulps for found in differences if found.largest_ulps is not None]
    differing = sum(found.differing for found in differences)
    largest = max(distances, default=None)
    counts = ComparedPart(f"{prefix}{section}", len(names), len(differences), elements, differing, largest)
    return StateComparison((counts,), tuple(differences))


def compare_traces(left: Iterable[TensorHash], right: Iterable[TensorHash]) -> tuple[int, TraceDifference | None]:
    """Return how many events agree before the first that does not, and that one."""
    number = -1
    for number, (ours, theirs) in enumerate(zip_longest(left, right)):
        if ours != theirs:
            return number, TraceDifference(number, ours, theirs)
    return number + 1, None


def _by_section(checkpoint: Checkpoint) -> dict[str, dict[str, Any]]:
    """Return all that is compared, by section."""
    parts = checkpoint.parts or {}
    workers = {f"worker {context['rank']}": context for context in checkpoint.workers}
    own = {
        name: {k: v for k, v in context.items() if k not in ("buffers", "random")} for name, context in workers.items()
    }
    return {
        "parameters": dict(checkpoint.parameters),
        "buffers": {name: context["buffers"] for name, context in workers.items()},
        "optimizer": {**checkpoint.optimizer, **{name: part["optimizer"] for name, part in parts.items()}},
        "schedule": {**(checkpoint.schedule or {}), **{name: part.get("schedule") for name, part in parts.items()}},
        "random": {name: context.get("random", {}) for name, context in workers.items()},
        "progress": {**_progress(checkpoint), **own},
        "layout": {**checkpoint.layout, **{name: part["layout"] for name, part in parts.items()}},
        "task": {} if checkpoint.task_state is None else {"state": checkpoint.task_state},
    }


def _progress(checkpoint: Checkpoint) -> dict[str, int]:
    order = {} if checkpoint.order_seed is None else {"order_seed": checkpoint.order_seed}
    return {name: getattr(checkpoint, name) for name in _PROGRESS} | order


def _leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, f"{name}/{key}")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{name}/{index}")
    else:
        yield _leaf(value, name) if isinstance(value, np.ndarray) else (name, value)


def _leaf(array: np.ndarray, name: str) -> tuple[str, Tensor]:
    """An array as a tensor; one of a type that torch lacks as its bytes, under a name that says the type."""
    array = np.ascontiguousarray(array)
    try:
        return name, torch.from_numpy(array)
    except TypeError:
        return f"{name} of {array.dtype}", torch.from_numpy(array.reshape(-1).view(np.uint8))


def _size(leaf: Any) -> int:
    return leaf.numel() if isinstance(leaf, Tensor) else 1


def _missing(name: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> TensorDifference | None:
    if name in ours and name in theirs:
        return None
    there = ours.get(name, theirs.get(name))
    left, right = (_describe(there) if name in side else "nothing" for side in (ours, theirs))
    return TensorDifference(name, "missing", _size(there), _size(there), (), left, right)


def _compare(name: str, left: Any, right: Any) -> TensorDifference | None:
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        return _compare_tensors(name, left.contiguous(), right.contiguous())
    if type(left) is not type(right):
        return TensorDifference(name, "type", 1, 1, (), _describe(left), _describe(right))
    if isinstance(left, float):
        if struct.pack("<d", left) == struct.pack("<d", right):
            return None
        ulps = _distance(*(torch.tensor(value, dtype=torch.float64) for value in (left, right)))
        return TensorDifference(name, "values", 1, 1, (), _text(left), _text(right), ulps, ulps)
    return None if left == right else TensorDifference(name, "values", 1, 1, (), repr(left), repr(right))


def _compare_tensors(name: str, left: Tensor, right: Tensor) -> TensorDifference | None:
    if left.dtype != right.dtype:
        return TensorDifference(name, "type", left.numel(), left.numel(), (), _describe(left), _describe(right))
    if left.shape != right.shape:
        return TensorDifference(name, "shape", left.numel(), left.numel(), (), _describe(left), _describe(right))
    if torch.equal(_bytes(left), _bytes(right)):
        return None
    shape = left.shape
    if left.is_complex():
        left, right = torch.view_as_real(left), torch.view_as_real(right)
    ours, theirs = left.reshape(-1), right.reshape(-1)
    where = (_bytes(ours) != _bytes(theirs)).reshape(ours.numel(), -1).any(1).nonzero().view(-1)
    first = int(where[0])
    index = tuple(int(i) for i in np.unravel_index(first, left.shape)) if left.dim() else ()
    distances = _distances(ours[where], theirs[where])
    return TensorDifference(
        name,
        "values",
        left.numel() if left.shape != shape else ours.numel(),
        len(where),
        index,
        _text(ours[first]),
        _text(theirs[first]),
        _distance(ours[first], theirs[first]),
        max(distances, default=None),
    )


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1).view(torch.uint8)


def _distances(left: Tensor, right: Tensor) -> list[int]:
    """Return the largest distance in ULPs of pairs of numbers, in a list that is empty if there is none."""
    if not left.is_floating_point():
        return []
    numbers = ~(left.isnan() | right.isnan())
    if not numbers.any():
        return []
    ours, theirs = _ordered(left[numbers]), _ordered(right[numbers])
    # Of opposite signs the distance may exceed 63 bits, but never the 64 of an unsigned difference.
    larger, smaller = np.maximum(ours, theirs), np.minimum(ours, theirs)
    return [int((larger.astype(np.uint64) - smaller.astype(np.uint64)).max())]


def _distance(left: Tensor, right: Tensor) -> int | None:
    return next(iter(_distances(left.reshape(1), right.reshape(1))), None)


def _ordered(tensor: Tensor) -> np.ndarray:
    """Return integers (int64) in the order of the numbers, neighbours one apart, both zeros 0."""
    size = tensor.element_size()
    bits = tensor.view(_INTEGERS[size]).to(torch.int64).numpy()
    sign = 1 << (8 * size - 1)
    if size == 1:
        return np.where(bits >= sign, -(bits - sign), bits)
    magnitude = bits & (sign - 1)
    return np.where(bits < 0, -magnitude, magnitude)


def _text(value: Any) -> str:
    """Return a number so that other bits read otherwise: the shortest digits of its own type, and a NaN's bits."""
    if not isinstance(value, Tensor):
        value = torch.tensor(value, dtype=torch.float64)
    if not value.is_floating_point():
        return str(value.item())
    if value.isnan():
        bits = int(value.view(_INTEGERS[value.element_size()])) % (1 << (8 * value.element_size()))
        return f"nan (0x{bits:0{2 * value.element_size()}x})"
    if value.dtype in (torch.float16, torch.float32, torch.float64):
        return str(value.numpy()[()])
    return repr(value.item())


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"
    return f"{type(value).__name__} {value!r}"


def not_compared(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return what of a checkpoint is shown and not compared, by name."""
    return {field.name: getattr(checkpoint, field.name) for field in fields(checkpoint) if field.name in NOT_COMPARED}


Epochs = History | Sequence[Mapping[str, float]]


def history_difference(one: Epochs, other: Epochs) -> str:
    """Say in what two histories differ, and where first, of what is kept; "" if in nothing. Two NaNs do not differ."""
    left, right = History.of(one), History.of(other)
    values = list(_values(left, right))
    differing = [value for value in values if not _alike(*value[2:])]
    if not differing:
        first = max(left.dropped, right.dropped)
        return "" if left == right else f"values of the first {first} epochs differ, of which a digest is kept"
    what = f"{len(differing)} of {len(values)} values differ"
    if len(left) != len(right):
        what += f", as there are {len(left)} and {len(right)} epochs"
    epoch, name, ours, theirs = differing[0]
    return f"{what}; first: epoch {epoch}, {name}: {_number(ours)} and {_number(theirs)}{_apart(ours, theirs)}"


def _values(left: History, right: History) -> Iterator[tuple[int, str, float | None, float | None]]:
    """Yield (epoch from 1, metric, left, right); None where a side has no such value."""
    for number in range(max(left.dropped, right.dropped), max(len(left), len(right))):
        ours, theirs = left.at(number + 1), right.at(number + 1)
        for name in [*ours, *(name for name in theirs if name not in ours)]:
            yield number + 1, name, ours.get(name), theirs.get(name)


def _alike(left: float | None, right: float | None) -> bool:
    if left is None or right is None:
        return left is right
    return left == right or (math.isnan(left) and math.isnan(right))


def _number(value: float | None) -> str:
    return "nothing" if value is None else repr(float(value))


def _apart(left: float | None, right: float | None) -> str:
    """How far two numbers are from each other, as a part of the larger; "" where that says nothing."""
    if left is None or right is None or not (math.isfinite(left) and math.isfinite(right)):
        return ""
    return f", {abs(left - right) / max(abs(left), abs(right)):.1g} of the larger apart"
