"""Which gradients are summed together: the buckets of torch.nn.parallel.DistributedDataParallel.

A bucket is one vector to the reduction, so its make-up decides where gloo's chunks begin and with it the bits of every
sum. DDP starts with one bucket a (dtype, device) and rebuilds before the second forward, in the order in which rank 0's
gradients became ready (torch/csrc/distributed/c10d/reducer.cpp). Not that order but the layout goes into a checkpoint:
EasyScale, SC'23, 3.3 found that rebuilding after a restart changes results. Which parameters get gradients is the same
on all virtual workers and in all steps, as DDP asks by default.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any

import torch
from torch import Tensor, nn

from trainers.device.device_streams import DeviceCopies
from trainers.messages.group import Group
from trainers.repeatable.determinism import ConsistencyWarning

FIRST_LIMIT = 1 << 20
LATER_LIMIT = 25 << 20
"""Bytes; DDP's defaults for the first bucket and for those after it."""
CACHED = 1 << 17
"""Bytes that a processor's core surely still has in its cache when the last of them are made."""


def assign(parameters: Sequence[Tensor], order: Sequence[int], limits: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return buckets of parameter indices, filled in `order`.

    A bucket that has reached its limit (bytes) is closed, so the parameter that crosses the limit is inside. Each
    (dtype, device) has buckets of its own and moves through `limits`, staying at the last.
    """
    closed: list[tuple[int, ...]] = []
    open_buckets: dict[Any, list[int]] = {}
    passed: dict[Any, int] = {}
    filled: dict[Any, int] = {}
    for index in order:
        parameter = parameters[index]
        key = (parameter.dtype, parameter.device)
        bucket = open_buckets.setdefault(key, [])
        bucket.append(index)
        limit = limits[min(passed.setdefault(key, 0), len(limits) - 1)]
        filled[key] = filled.get(key, 0) + parameter.numel() * parameter.element_size()
        if filled[key] >= limit:
            closed.append(tuple(open_buckets.pop(key)))
            passed[key], filled[key] = passed[key] + 1, 0
    return (*closed, *map(tuple, open_buckets.values()))


@dataclass(frozen=True)
class Layout:
    """The make-up of the buckets.

    buckets: parameter indices of each; a parameter is in exactly one.
    used: for each parameter, whether the virtual workers give it a gradient; None before the first step has shown it.
    """

    buckets: tuple[tuple[int, ...], ...]
    used: tuple[bool, ...] | None = None

    @classmethod
    def first(cls, parameters: Sequence[Tensor]) -> Layout:
        """Return the layout of step 0: definition order, no limit."""
        total = sum(parameter.numel() * parameter.element_size() for parameter in parameters)
        return cls(assign(parameters, range(len(parameters)), [total + 1]))

    @classmethod
    def rebuilt(cls, parameters: Sequence[Tensor], ready: Sequence[int], used: Sequence[bool]) -> Layout:
        """Return the layout of all later steps, from virtual rank 0's gradient-ready order in step 0.

        Parameters that nobody uses follow in definition order; stock DDP refuses to train a model that has any.
        """
        order = [*ready, *sorted(set(range(len(parameters))) - set(ready))]
        return cls(assign(parameters, order, [FIRST_LIMIT, LATER_LIMIT]), tuple(used))

    @property
    def is_rebuilt(self) -> bool:
        """Whether this is the layout of the steps after step 0."""
        return self.used is not None

    def as_tree(self) -> dict[str, Any]:
        """Return plain values for a checkpoint."""
        return {
            "buckets": [list(bucket) for bucket in self.buckets],
            "used": None if self.used is None else list(self.used),
        }

    @classmethod
    def from_tree(cls, tree: dict[str, Any]) -> Layout:
        """Return the layout that `as_tree` described."""
        used = tree["used"]
        return cls(tuple(tuple(bucket) for bucket in tree["buckets"]), None if used is None else tuple(used))


HOST = torch.device("cpu")
_Place = tuple[int, tuple[int, ...], tuple[int, ...], int]
"""A parameter's index, and the size, stride and offset of its part of a bucket."""


class Buckets:
    """Flat vectors with all parameters' gradients in them, one a bucket.

    A dense parameter lies in its bucket in its own memory order (so channels_last stays what it is), as in DDP. The
    vectors lie where the sums are taken, `place`: beside the parameters, or in pinned memory of the host.

    copies: moves gradients between device and host; None where they stay.
    bytes: one set of vectors takes so many.
    """

    def __init__(self, parameters: Sequence[Tensor], layout: Layout, place: torch.device = HOST) -> None:
        self.layout = layout
        self.place = place
        self._parameters = list(parameters)
        device = self._parameters[0].device
        self.copies = None if device.type == place.type else DeviceCopies(device)
        self.bytes = sum(parameter.numel() * parameter.element_size() for parameter in parameters)
        self._landing: list[Tensor] = []  # memory for gradients on the device
        self._places = [list(self._places_in(bucket)) for bucket in layout.buckets]
        self._given: tuple[Sequence[Tensor], Sequence[tuple[int, Tensor]]] = ((), ())

    @property
    def are_small(self) -> bool:
        """Whether gradients are so few that a CPU has all of them in its cache when the last one is made.

        They are one bucket then, and each lies there as it is.
        """
        fit = self.bytes <= CACHED and len(self.layout.buckets) == 1
        on_host = self.place.type == "cpu" and self.copies is None
        return fit and on_host and all(map(Tensor.is_contiguous, self._parameters))

    def empty(self) -> list[Tensor]:
        """Return uninitialised flat vectors, one a bucket."""
        return [
            torch.empty(
                sum(self._parameters[index].numel() for index in bucket),
                dtype=self._parameters[bucket[0]].dtype,
                device=self.place,
                pin_memory=self.copies is not None,
            )
            for bucket in self.layout.buckets
        ]

    def views(self, vectors: Sequence[Tensor]) -> list[Tensor]:
        """Return each parameter's part of the vectors, in the parameters' order and with their shapes."""
        by_index = dict(self._cut(vectors))
        return [by_index[index] for index in range(len(self._parameters))]

    def give(self, vectors: Sequence[Tensor], used: Sequence[bool]) -> None:
        """Make the vectors' parts the gradients of the used parameters; on a device, copies of them."""
        indices, views = zip(*self._views(vectors))
        for index, gradient in zip(indices, self._landed(views)):
            self._parameters[index].grad = gradient if used[index] else None

    def _landed(self, views: Sequence[Tensor]) -> Sequence[Tensor]:
        if self.copies is None and self.place.type == "cpu":
            return views
        # Kernels add in another order where memory is not aligned, so an optimizer or a norm that read a bucket's
        # parts could have other bits than with DDP, whose gradients are copies too.
        if not self._landing:
            self._landing = [torch.empty_like(each, device=self._parameters[0].device) for each in views]
        landed = self._landing
        if self.copies is None:
            torch._foreach_copy_(landed, list(views))
        else:
            self.copies.give(views, landed)
        return landed

    def _views(self, vectors: Sequence[Tensor]) -> Sequence[tuple[int, Tensor]]:
        """Return each parameter's index and part; the same as in the last step where the vectors are."""
        last, views = self._given
        if len(last) != len(vectors) or not all(map(is_, last, vectors)):
            self._given = vectors, views = list(vectors), list(self._cut(vectors))
        return views

    def _cut(self, vectors: Sequence[Tensor]) -> Iterator[tuple[int, Tensor]]:
        for places, vector in zip(self._places, vectors):
            for index, size, stride, offset in places:
                yield index, vector.as_strided(size, stride, offset)

    def _places_in(self, bucket: Sequence[int]) -> Iterator[_Place]:
        offset = 0
        for index in bucket:
            parameter = self._parameters[index]
            is_dense = torch.ops.aten.is_non_overlapping_and_dense(parameter)
            stride = parameter.stride() if is_dense else torch.empty(parameter.size(), device="meta").stride()
            yield index, tuple(parameter.size()), stride, offset
            offset += parameter.numel()


class UnevenGradients(RuntimeError):
    """Some virtual workers gave a parameter a gradient and others did not."""


def agreed_layout(
    job: str,
    group: Group,
    names: Sequence[str],
    parameters: Sequence[nn.Parameter],
    uses: Sequence[tuple[bool, ...]],
    order: list[int],
    step: int,
) -> Layout:
    """Return the buckets of the steps after the first; all members learn them from the master.

    Args:
        names, parameters: these are trained.
        uses: which parameters each of this member's virtual workers gave a gradient.
        order: in which order virtual worker 0's gradients became whole; the master's is taken.
        step: its number in the job; at D0 a job has a first step after each restart.

    Raises:
        UnevenGradients: the workers did not use the same parameters.
    """
    gathered = group.gather_trees([list(use) for use in uses])
    if not group.is_master:
        return Layout.from_tree(group.bcast_tree())
    used = uses[0]
    check_uses(job, names, [tuple(use) for member in gathered for use in member], used, 0, step)
    _warn_of_unused(job, names, used)
    layout = Layout.rebuilt(parameters, order, used)
    group.bcast_tree(layout.as_tree())
    return layout


def check_uses(
    job: str, names: Sequence[str], uses: Sequence[tuple[bool, ...]], expected: tuple[bool, ...], first: int, step: int
) -> None:
    """Raise UnevenGradients unless virtual workers `first`, `first` + 1, ... used the parameters as step 0 did.

    Args:
        names: the parameters'.
        uses: which parameters each worker gave a gradient at `step`.
        expected: which of them virtual worker 0 gave one in step 0.
    """
    for worker, use in enumerate(uses, first):
        if use == expected:
            continue
        for name, got, usual in zip(names, use, expected):
            if got != usual:
                raise UnevenGradients(
                    f"job {job}: virtual worker {worker} gave {name} {'a' if got else 'no'} gradient at step {step}, "
                    f"though in step 0 virtual worker 0 gave it {'one' if usual else 'none'}; let every forward pass "
                    "use the same parameters, as DDP asks by default"
                )


def _warn_of_unused(job: str, names: Sequence[str], used: Sequence[bool]) -> None:
    """Warn of parameters that no virtual worker gives a gradient, if others get one."""
    unused = [name for name, has_gradient in zip(names, used) if not has_gradient]
    if unused and any(used):
        warnings.warn(
            f"job {job}: no virtual worker gives {', '.join(unused)} a gradient, so nothing trains it. Stock DDP "
            "refuses such a model: there are no bits to agree with; freeze it with requires_grad_(False), or use it in "
            "the loss",
            ConsistencyWarning,
            stacklevel=2,
        )
