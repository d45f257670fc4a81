"""One optimizer of a job, and the way of its parameters' gradients to it: hooks, buckets, sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, empty_like, nn, optim
from torch.optim import optimizer as of_torch

from trainers.device.device_memory import forget_peak, give_pinned_memory_back, room_on
from trainers.messages.group import Group
from trainers.reduce import gradients
from trainers.reduce.buckets import HOST, Buckets, Layout, agreed_layout, check_uses
from trainers.reduce.reduction import Reduction
from trainers.task.batch_plan import learning_rates_times
from trainers.task.loss import UnfitTask, Weight
from trainers.task.task_options import NOTHING


class TurnResult(NamedTuple):
    """What one worker's turn gave.

    update: what its gradients go to; None if it gave none, as its step is over. loss: its batch's mean. samples: what
    that was divided by, the samples where nobody says more; a tensor where a device has it.
    used, order: see `trainers.reduce.gradients.Turn`.
    """

    update: Update | None = None
    loss: Tensor | float = 0.0
    samples: Weight = 0
    used: tuple[bool, ...] = ()
    order: Sequence[int] = ()


class Update:
    """What one optimizer trains.

    part: the name of the model's part that it trains, "" for the whole model.
    optimizer, schedule: the task's.
    layout: the make-up of the buckets.
    names, parameters: all of the part that require gradients, in the order of definition.
    gradients: each own worker's scaled gradients, one flat tensor a bucket (see `trainers.reduce.buckets`); none where
        the job has one virtual worker.
    """

    def __init__(
        self,
        job: str,
        part: str,
        model: nn.Module,
        optimizer: optim.Optimizer,
        schedule: optim.lr_scheduler.LRScheduler | None,
        accumulating: Callable[[], bool],
        alone: bool,
    ) -> None:
        """UnfitTask if there is nothing to train.

        accumulating: see `trainers.reduce.gradients.Gradients`. alone: whether the job has one virtual worker.
        """
        self._job, self.part, self.optimizer, self.schedule = job, part, optimizer, schedule
        named = model.get_submodule(part).named_parameters(part)
        trainable = [(name, parameter) for name, parameter in named if parameter.requires_grad]
        if not trainable:
            what = f"part {part} of the model" if part else "the model"
            raise UnfitTask(f"job {job}: {what} has no parameter that requires a gradient")
        self.names, self.parameters = [name for name, _ in trainable], [parameter for _, parameter in trainable]
        self._alone = alone
        self._hooks = gradients.Gradients(self.names, self.parameters, accumulating)
        self.lay_out(Layout.first(self.parameters), 0)

    def lay_out(self, layout: Layout, workers: int) -> None:
        """Make buckets for so many own virtual workers, on the host until an update has shown what it needs."""
        self._is_settled = False
        device = self.parameters[0].device
        if device.type != "cpu":
            forget_peak(device)
        self._lay_out(layout, workers, HOST)

    def settle(self, layout: Layout, place: torch.device) -> None:
        """Make the buckets of the updates to come, after one: at `place` (see `Reducer.place`) if there is room.

        EasyScale (SC'23, 3.2) has gradients leave the device so that its memory does not grow with the number of
        virtual workers. Where it may grow, they stay. An only worker's stay where they are.
        """
        workers, before = len(self.gradients), self._buckets.place
        is_offered_device = place.type != "cpu"
        if self._is_settled or self._alone:
            place = before
        elif is_offered_device and room_on(place) < (workers + 1) * self._buckets.bytes:
            place = HOST
        self._is_settled = self._is_settled or is_offered_device
        if (layout is not self.layout and layout != self.layout) or place != before:
            self._lay_out(layout, workers, place)
            if place != before:
                torch.accelerator.synchronize(place)  # the last gradients are on their way from there
                give_pinned_memory_back()

    def _lay_out(self, layout: Layout, workers: int, place: torch.device) -> None:
        self.layout, self._buckets = (
            layout,
            Buckets(self.parameters, layout, self.parameters[0].device if self._alone else place),
        )
        is_small = layout.is_rebuilt and not self._alone and workers > 0 and self._buckets.are_small
        self._small = gradients.SmallGradients(self.parameters, layout.buckets[0], workers) if is_small else None
        if self._small is not None:
            self.gradients = [[vector] for vector in self._small.vectors]
        else:
            self.gradients = [[] if self._alone else self._buckets.empty() for _ in range(workers)]
        stay = self._alone or is_small
        self._views = [None if stay else self._buckets.views(vectors) for vectors in self.gradients]
        self._hooks.watch(self._watched(layout))

    def _watched(self, layout: Layout) -> Sequence[Sequence[int]]:
        """Which gradients are taken together: until a step has shown their order, each by itself."""
        if layout.used is None:
            return [(index,) for index in range(len(self.parameters))]
        if self._alone or self._small is not None:
            return []
        buckets = [[index for index in bucket if layout.used[index]] for bucket in layout.buckets]
        if self.parameters[0].device.type != "cpu":
            return buckets
        sizes = [parameter.nbytes for parameter in self.parameters]
        return [group for bucket in buckets for group in gradients.still_cached(bucket, sizes)]

    def turn(self, place: int, rank: int, factor: float, reduction: Reduction, step: int) -> gradients.Turn:
        """Leave the gradients that are made inside, times `factor`, in the buckets of the own worker `place`.

        The last worker's begin to be summed. rank: the worker's, step: the job's, for errors. UnevenGradients.
        """
        is_last, small = place == len(self._views) - 1, self._small
        filling = self._filling(reduction) if is_last and small is None else None

        def ended(turn: gradients.Turn) -> None:
            if self.layout.used is not None:
                check_uses(self._job, self.names, [tuple(turn.used)], self.layout.used, rank, step)
            if filling is not None:
                filling.finish()
            if small is not None:
                small.take(place)
            if small is not None and is_last:
                small.fill(factor)
                self._start(reduction, 0)

        return self._hooks.turn(self._views[place], factor, self._buckets.copies, filling, ended)

    @property
    def needs_no_hooks(self) -> bool:
        """Whether the gradients of the turns to come may stay in the parameters until `collect`."""
        return self.layout.used is not None and (self._alone or self._small is not None)

    def collect(self, place: int, rank: int, step: int) -> None:
        """Take the gradients that the own worker `place` has left in the parameters; see `turn`."""
        used = self.layout.used or ()
        for parameter, is_used in zip(self.parameters, used):
            gradient = parameter.grad
            if (gradient is not None) is not is_used:
                uses = tuple(parameter.grad is not None for parameter in self.parameters)
                check_uses(self._job, self.names, [uses], used, rank, step)
            if gradient is not None and gradient.is_sparse:
                gradients.refuse_sparse(self.names[self.parameters.index(parameter)])
        if self._small is not None:
            self._small.take(place)

    def give_collected(self, factor: float, total_of: Callable[[Sequence[Tensor]], Tensor]) -> None:
        """Make the sums of what `collect` took, times `factor`, the parameters' gradients."""
        if self._small is not None:
            self._small.fill(factor)
            self.give([total_of(self._small.vectors)], self.layout.used or ())

    def agree(self, group: Group, turns: Sequence[TurnResult], step: int) -> Layout:
        """Return the buckets of the updates after this one; all members learn them from the first."""
        if self.layout.used is not None:
            return self.layout
        uses, order = [turn.used for turn in turns], list(turns[0].order)
        return agreed_layout(self._job, group, self.names, self.parameters, uses, order, step)

    def start_all(self, reduction: Reduction) -> None:
        """Begin the sums that no turn has begun: in the first update, whose only bucket is full at its end."""
        if not self.layout.is_rebuilt and not self._alone:
            for number in range(len(self.layout.buckets)):
                self._start(reduction, number)

    def give(self, totals: Sequence[Tensor], used: Sequence[bool]) -> None:
        """Make the sums the gradients of the used parameters."""
        if not self._alone:
            self._buckets.give(totals, used)

    def step(self, factor: float = 1.0, turns: int = 1) -> None:
        """Let the optimizer update the parameters, and the schedule follow; a part's gradients are gone then.

        factor: the learning rate is multiplied by it. turns: how often the schedule is stepped.
        """
        with NOTHING if factor == 1.0 else learning_rates_times(self.optimizer, factor):
            self.optimizer.step()
        self.step_schedule(turns)
        for parameter in self.parameters if self.part else ():
            parameter.grad = None  # else the next part's phase would find them

    def step_schedule(self, turns: int = 1) -> None:
        """Let the schedule, if there is one, come so many turns further."""
        if self.schedule is not None:
            for _ in range(turns):
                self.schedule.step()

    def as_tree(self) -> dict[str, Any]:
        """Return the state that outlives a step; tensors are the optimizer's own, not copies."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "schedule": None if self.schedule is None else self.schedule.state_dict(),
            "layout": self.layout.as_tree(),
        }

    def load_state(self, tree: dict[str, Any], keeps_layout: bool, workers: int) -> None:
        """Take over the state that `as_tree` described; the optimizer keeps its tensors, most of them uncopied."""
        self.optimizer.load_state_dict(tree["optimizer"])
        lay_out_as_parameters(self.optimizer)
        if self.schedule is not None and tree["schedule"] is not None:
            self.schedule.load_state_dict(tree["schedule"])
        self.lay_out_again(Layout.from_tree(tree["layout"]), keeps_layout, workers)

    def lay_out_again(self, layout: Layout, keeps_layout: bool, workers: int) -> None:
        """Make buckets after a restart or a move; without `keeps_layout` the job begins anew, as DDP does."""
        self.lay_out(layout if keeps_layout else Layout.first(self.parameters), workers)

    def _filling(self, reduction: Reduction) -> gradients.Filling | None:
        """Return what begins sums as buckets fill; None in the first update, and where there is nothing to add."""
        if self.layout.used is None or self._alone:
            return None
        return gradients.Filling(self.layout.buckets, self.layout.used, lambda number: self._start(reduction, number))

    def _start(self, reduction: Reduction, number: int) -> None:
        vectors = [worker[number] for worker in self.gradients]
        if self._buckets.copies is None:
            reduction.start(vectors)
        else:
            reduction.start(vectors, self._buckets.copies.mark())


def lay_out_as_parameters(optimizer: optim.Optimizer) -> None:
    """Give each tensor of the state that is shaped like its parameter the parameter's memory order.

    Optimizers make them so, and their fused kernels go through both in memory order: after a parameter in channels_last
    beside momenta in C order each element would be updated with another's. Checkpoints and messages keep values alone.
    """
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape and value.stride() != parameter.stride():
                state[key] = empty_like(parameter, dtype=value.dtype, device=value.device).copy_(value)


_KNOWN = {
    optim.SGD,
    optim.Adam,
    optim.AdamW,
    optim.Adamax,
    optim.NAdam,
    optim.RAdam,
    optim.RMSprop,
    optim.Adadelta,
    optim.Adagrad,
}


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
