"""Gradients on their way from the backward pass into a virtual worker's buckets.

Hooks on the parameters move gradients while they are still in the cache, and let go of their memory: so a job holds
one copy of its gradients a virtual worker and no other. Small ones go together, and on a device all of a bucket, as a
hook and a kernel a parameter would cost the host more than it needs for a small network; a small network's need no
hooks after the first step (`SmallGradients`). When a bucket of a trainer's last worker is full, its reduction begins,
while backward goes on. The gradients of a job's only worker stay where they are: they are the sums, and DDP's factor of
1/1 changes no bit of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn
from weakref import WeakMethod

import torch
from torch import Tensor, nn
from torch._utils import _flatten_dense_tensors

from trainers.device.device_streams import DeviceCopies
from trainers.reduce.buckets import CACHED
from trainers.reduce.ordered_reduce import stack_of


class SparseGradient(TypeError):
    """A parameter's gradient is sparse."""


class GradientTwice(RuntimeError):
    """One backward pass gave a parameter its gradient in two parts."""


def refuse_sparse(name: str) -> NoReturn:
    """Raise SparseGradient for a parameter."""
    raise SparseGradient(
        f"{name} has a sparse gradient, which cannot be summed in order; build its layer with sparse=False"
    )


def scale(gradients: Sequence[Tensor], factor: float, outs: Sequence[Tensor]) -> None:
    """Write gradients, scaled, to their places in buckets. DDP scales before it sums, by a multiplication with 1/N."""
    if len(outs) == 1 and outs[0].device.type == "cpu":
        torch.mul(gradients[0], factor, out=outs[0])
    else:  # two kernels for all
        torch._foreach_copy_(list(outs), list(gradients))
        torch._foreach_mul_(list(outs), factor)


def _nothing(turn: Turn) -> None:
    """Follow a turn with nothing."""


class SmallGradients:
    """The gradients of a small network's own workers: after the last turn, all go together where they are added.

    vectors: each worker's scaled gradients, rows of one tensor (see `trainers.reduce.ordered_reduce.stack_of`).
    """

    def __init__(self, parameters: Sequence[nn.Parameter], bucket: Sequence[int], workers: int) -> None:
        self._parameters = [parameters[index] for index in bucket]
        self._nothing = [torch.zeros_like(parameter, requires_grad=False) for parameter in self._parameters]
        elements = sum(parameter.numel() for parameter in self._parameters)
        self._rows = stack_of(workers, elements, self._parameters[0].dtype)
        self._rest = self._rows.new_zeros(self._rows.shape[1] - elements)
        self.vectors = list(self._rows[:, :elements])
        self._made: list[Tensor] = []

    def take(self, place: int) -> None:
        """Take the gradients of the own worker `place` as they are; the parameters have none then."""
        if place == 0:
            self._made.clear()  # an error may have ended the step before
        for parameter, nothing in zip(self._parameters, self._nothing):
            self._made.append(nothing if parameter.grad is None else parameter.grad)
            parameter.grad = None
        self._made.append(self._rest)

    @torch.no_grad()
    def fill(self, factor: float) -> None:
        """Leave all workers' gradients, times `factor`, in their vectors."""
        scale([_flatten_dense_tensors(self._made)], factor, [self._rows.view(-1)])
        self._made.clear()


def still_cached(indices: Sequence[int], sizes: Sequence[int]) -> list[list[int]]:
    """Divide indices, in their order, so that those together are few bytes; a large one is by itself.

    sizes: bytes by index.
    """
    groups: list[list[int]] = []
    room = 0
    for index in indices:
        if not groups or sizes[index] > room:
            groups.append([])
            room = CACHED
        groups[-1].append(index)
        room -= sizes[index]
    return groups


class Turn:
    """One worker's turn: a context, in which its gradients are made.

    views: each parameter's place in the worker's buckets; None where gradients stay.
    used: for each parameter, whether it had a gradient. order: their indices, in the order in which backward made them.
    """

    def __init__(
        self,
        names: Sequence[str],
        parameters: Sequence[nn.Parameter],
        views: Sequence[Tensor] | None,
        factor: float,
        copies: DeviceCopies | None,
        filling: Filling | None,
        ended: Callable[[Turn], None],
    ) -> None:
        self._names, self._parameters = names, parameters
        self._views, self._factor = views, factor
        self._copies = copies
        self._filling, self._ended = filling, ended
        self.used = [False] * len(parameters)
        self.order: list[int] = []
        self.is_over = False

    def __enter__(self) -> Turn:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.is_over = True
        if kind is None:
            self.close()
            self._ended(self)
        self._views = self._filling = None  # the last turn is remembered, and its memory may be given back
        self._ended = _nothing

    def take(self, indices: Sequence[int]) -> None:
        """Take those of the gradients that are there, and whole."""
        taken, gradients = [], []
        for index in indices:
            if (gradient := self._parameters[index].grad) is not None:
                if gradient.is_sparse or self.used[index]:
                    self._refuse(index, gradient)
                self.used[index] = True
                taken.append(index)
                gradients.append(gradient)
        if self._views is not None and taken:
            self._move(gradients, [self._views[index] for index in taken])
            for index in taken:
                self._parameters[index].grad = None
        self.order += taken
        if self._filling is not None:
            self._filling.took(taken)

    def close(self) -> None:
        """Take what no hook has seen; missing gradients count as zero.

        Where sums have begun (`filling`), missing ones are of parameters that no worker uses, or an error.
        """
        if self._views is None:
            for index, parameter in enumerate(self._parameters):
                if not self.used[index] and (gradient := parameter.grad) is not None:
                    if gradient.is_sparse:
                        self._refuse(index, gradient)
                    self.used[index] = True
                    self.order.append(index)
            return
        self.take(range(len(self.used)))
        if self._filling is None:
            for view in (view for view, is_used in zip(self._views, self.used) if not is_used):
                view.zero_()  # no copy goes to or from there but of zeros: nobody uses the parameter

    def _refuse(self, index: int, gradient: Tensor) -> NoReturn:
        if gradient.is_sparse:
            refuse_sparse(self._names[index])
        raise GradientTwice(
            f"{self._names[index]} got its gradient in two parts in one backward pass, of which a sum would see "
            "only one; call torch.utils.checkpoint.checkpoint with use_reentrant=False, as DDP asks too"
        )

    def _move(self, gradients: Sequence[Tensor], views: Sequence[Tensor]) -> None:
        if self._copies is None:
            scale(gradients, self._factor, views)
        else:
            self._copies.take(self._factor, gradients, views)


class Filling:
    """Calls `full(bucket)` for each bucket that is complete, in the buckets' order, which is the same on all trainers.

    expected: for each parameter, whether it will have a gradient.
    """

    def __init__(self, buckets: Sequence[Sequence[int]], expected: Sequence[bool], full: Callable[[int], None]) -> None:
        self._bucket_of = {index: number for number, bucket in enumerate(buckets) for index in bucket}
        self._missing = [sum(expected[index] for index in bucket) for bucket in buckets]
        self._expected = expected
        self._full = full
        self._begun = 0

    def took(self, indices: Sequence[int]) -> None:
        """Note gradients."""
        for index in indices:
            if self._expected[index]:  # if it is not, that is an error, which the end of the turn names
                self._missing[self._bucket_of[index]] -= 1
        while self._begun < len(self._missing) and not self._missing[self._begun]:
            self._begun += 1
            self._full(self._begun - 1)

    def finish(self) -> None:
        """Call `full` for the buckets whose parameters have no gradients."""
        for number in range(self._begun, len(self._missing)):
            self._full(number)
        self._begun = len(self._missing)


class Gradients:
    """The hooks on a model's parameters. They end with this object, which they do not keep.

    accumulating: while True, gradients stay where they are, as more will be added to them.
    """

    def __init__(
        self, names: Sequence[str], parameters: Sequence[nn.Parameter], accumulating: Callable[[], bool]
    ) -> None:
        self._names, self._parameters = names, parameters
        self._accumulating = accumulating
        self._turn: Turn | None = None
        self._handles: list[Any] = []
        self.watch([(index,) for index in range(len(parameters))])

    def watch(self, groups: Sequence[Sequence[int]]) -> None:
        """From now on, take gradients a group at a time, when that of its last parameter is there.

        What is not there by then, and what is in no group, is taken at the end of the turn.
        """
        for handle in self._handles:
            handle.remove()
        arrived = WeakMethod(self._arrived)  # Python's collector sees no circle that goes through a tensor's hooks
        self._handles = [
            self._parameters[group[-1]].register_post_accumulate_grad_hook(partial(_call, arrived, group))
            for group in groups
            if group
        ]

    def turn(
        self,
        views: Sequence[Tensor] | None,
        factor: float,
        copies: DeviceCopies | None = None,
        filling: Filling | None = None,
        ended: Callable[[Turn], None] = _nothing,
    ) -> Turn:
        """Move gradients, times `factor`, into `views` (see `Buckets.views`) until the context ends; None: let be.

        ended: called with the turn after it.
        """
        for parameter in self._parameters:
            parameter.grad = None
        self._turn = Turn(self._names, self._parameters, views, factor, copies, filling, ended)
        return self._turn

    def _arrived(self, group: Sequence[int]) -> None:
        if self._turn is not None and not self._turn.is_over and not self._accumulating():
            self._turn.take(group)


def _call(method: WeakMethod[Any], group: Sequence[int], _: Tensor) -> None:
    alive = method()
    if alive is not None:
        alive(group)
