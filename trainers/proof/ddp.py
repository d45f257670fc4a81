"""The yardstick: a task under torch's own DistributedDataParallel over gloo, DistributedSampler and DataLoader.

Nothing here uses virtual workers, ordered reduction or this package's loader. What comes out has a checkpoint's form,
so that it can be held against an elastic run tensor by tensor.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from trainers.job.single_job import EpochDone, News, Pace, StepsDone, TaskDatasets, at_epoch, shuffles_itself
from trainers.proof.tensor_trace import Recorder
from trainers.reduce.buckets import Layout
from trainers.repeatable import determinism
from trainers.repeatable.plain_attributes import PlainAttributes
from trainers.repeatable.random_state import RandomState, seed_everything
from trainers.state.checkpoint import Checkpoint
from trainers.state.history import History
from trainers.state.tree import on_host
from trainers.step.compiled import compile_model
from trainers.step.compute import BatchLoss, PartSteps, backward, known_weights
from trainers.step.losses import FiniteWeights
from trainers.step.virtual_worker import VirtualWorker
from trainers.task import task as tasks
from trainers.task.batch_schedule import as_lists, learning_rates_times
from trainers.task.loss import Loss, Weight
from trainers.task.metrics import mean_of, values
from trainers.task.parts import Rule, rules_of
from trainers.task.task import Batch, Sums, Task, called_through, samples_in
from trainers.task.task_options import StepOptions, TaskState


class DdpRank:
    """One rank's process of a DDP job. torch.distributed's default group has to be there.

    model, optimizer, schedule: as the task built them.
    """

    def __init__(self, task: Task, rank: int, ranks: int, device: torch.device, tell: Callable[[News], None]) -> None:
        """Seed Python, NumPy and torch with the task's seed to build all, then with seed + 1 + rank.

        tell: takes the news on rank 0.
        """
        self._task, self._rank, self._ranks, self._device, self._tell = task, rank, ranks, device, tell
        self._own_options = self._options = StepOptions.of(task)
        self._batches, self._by_epoch = tasks.batch_schedule_of(task), tasks.steps_schedule_by_epoch(task)
        self._data = TaskDatasets(task)
        self._seed, self._batch_size = tasks.seed_of(task), tasks.batch_size_of(task)
        seed_everything(self._seed)
        self.model = tasks.model_of(task).to(device)
        self._compiler = compile_model(tasks.name_of(task), self.model, self._options.compile, False, device)
        self._finite = FiniteWeights(tasks.name_of(task), self.model)
        self._attributes = PlainAttributes(self.model, frozenset(tasks.scratch_of(task)), tasks.code_of(task))
        self.optimizer, self.schedule = self._wrap()
        seed_everything(self._seed + 1 + rank)
        self._sampler: DistributedSampler[Any] = DistributedSampler(
            self._data.train, ranks, rank, not shuffles_itself(self._data.train), tasks.order_seed_of(task)
        )
        self._loader = self._loading(self._batch_size)
        self._layout: Layout | None = None
        self._pace = Pace()
        self.steps = self.epoch = self.step_in_epoch = 0
        self.loss_sum: float = 0.0
        self.samples: float = 0
        self._epochs: list[dict[str, Any]] = []

    def train(
        self, until: int, recorder: Recorder | None = None, after_step: Callable[[], None] = lambda: None
    ) -> None:
        """Train from the first step up to step `until`."""
        while self.steps < until:
            self._sampler.set_epoch(self.epoch)
            at_epoch(self._data.train, self.epoch)
            self._change_batch()
            for batch in self._loader:
                begin = time.perf_counter()
                batch = tasks.move(batch, self._device)
                loss = self._step(batch, recorder)
                tasks.after_step(self._task, self.model)
                after_step()
                self._count(loss, time.perf_counter() - begin)
                if self.steps == until:
                    break
            if self.step_in_epoch == len(self._loader):
                self._end_epoch()
        self._finite.check(self.model)

    def _loading(self, batch_size: int) -> DataLoader[Any]:
        collate = tasks.collate_of(self._task)
        left = tasks.drops_last(self._task)
        return DataLoader(self._data.train, batch_size, sampler=self._sampler, collate_fn=collate, drop_last=left)

    def _change_batch(self) -> None:
        """Take the batches of this epoch, as a script does that makes a new loader at its epochs' ends."""
        if self._batches is not None:
            change = self._batches.at(self.epoch)
            self._loader, self._options = self._loading(change.size), self._own_options.cut(change.parts)

    def as_tree(self) -> dict[str, Any]:
        """Return this rank's context as a virtual worker's, and on rank 0 what all ranks share."""
        random = RandomState.now(self._device)
        context = VirtualWorker(self._rank, self._seed, self.model, self._device)
        context.attributes = self._attributes.changed()
        context.random, context.loss_sum, context.samples = random, self.loss_sum, self.samples
        tree: dict[str, Any] = {"worker": context.as_tree(), "epochs": self._epochs}
        if self._rank == 0:
            tree["shared"] = self._shared()
        return tree

    def _wrap(self) -> Rule:
        """Build the optimizer and its schedule, then what runs forward and backward."""
        rule = rules_of(self._task, self.model)[""]
        self._parallel = DistributedDataParallel(self.model)
        return rule

    @property
    def _callable(self) -> nn.Module:
        """The network as a loss calls it: anew for each loss."""
        return seen_through_ddp(self._parallel)

    def _step(self, batch: Batch, recorder: Recorder | None) -> BatchLoss:
        """Forward, backward and update; return the loss."""
        with recorder.turn(self._rank) if recorder else nullcontext():
            loss = self._gradients(batch)
        self._options.before_update(self._task, self.model)
        self._let(self.optimizer, self.schedule)
        return loss

    def _let(self, optimizer: torch.optim.Optimizer, schedule: torch.optim.lr_scheduler.LRScheduler | None) -> None:
        """Update, with the learning rate that goes with this epoch's batch."""
        here, batches = (self.epoch, self.step_in_epoch, self._ranks), self._batches
        with learning_rates_times(optimizer, 1.0 if batches is None else batches.factor(*here)):
            optimizer.step()
        if schedule is not None and not self._by_epoch:
            for _ in range(1 if batches is None else batches.turns(*here)):
                schedule.step()

    def _gradients(self, batch: Batch) -> BatchLoss:
        """Forward and backward; return the loss."""
        self.optimizer.zero_grad()
        orders: list[list[int]] = []

        @contextmanager
        def taking(is_last: bool) -> Iterator[None]:
            with nullcontext() if is_last else self._parallel.no_sync(), self._ready_order() as order:
                yield
            orders.append(order)

        def forward(part: Batch, weight: Weight | None) -> Loss:
            with self._options.precision(self._device):
                return tasks.weighed_loss_of(self._task, self._callable, part, weight)

        steps = PartSteps(self._task, forward, backward, taking, self.model.parameters)
        loss = steps.run(batch, self._options.parts(batch), known_weights(self._task, batch, self._options))
        self._learn_layout(orders[-1])
        return loss

    def _ready_order(self) -> AbstractContextManager[list[int]]:
        return recorded_order(self._trainable()) if self._layout is None else nullcontext([])

    def _learn_layout(self, order: Sequence[int]) -> None:
        """After step 0: the buckets that DDP makes from rank 0's order; its own log tells their sizes alone."""
        if self._layout is None:
            used = [parameter.grad is not None for parameter in self._trainable()]
            self._layout = Layout.rebuilt(self._trainable(), order, used)

    def _schedules(self) -> list[torch.optim.lr_scheduler.LRScheduler]:
        return [] if self.schedule is None else [self.schedule]

    def _updates(self) -> dict[str, Any]:
        """Return the state of the optimizer, its schedule and its buckets, as a checkpoint has them."""
        if self._layout is None:
            raise ValueError("there is nothing to save before the first step")
        return {
            "optimizer": self.optimizer.state_dict(),
            "schedule": None if self.schedule is None else self.schedule.state_dict(),
            "layout": self._layout.as_tree(),
        }

    def _trainable(self) -> list[nn.Parameter]:
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    def _count(self, given: BatchLoss, seconds: float) -> None:
        self.steps += 1
        self.step_in_epoch += 1
        loss, weight = float(given.mean), float(given.weight) if isinstance(given.weight, Tensor) else given.weight
        if weight:
            self.loss_sum += loss * weight
            self.samples += weight
        self._pace.count(seconds)
        if self._rank == 0 and self._pace.is_time_for_news():
            rate = self._ranks * (self._loader.batch_size or 0) / self._pace.seconds_a_step
            self._tell(StepsDone(self.steps, self.epoch, self.step_in_epoch, len(self._loader), loss, rate))

    def _end_epoch(self) -> None:
        """Rank 0 measures the held-out samples, unseen by its random state."""
        self._epochs.append({"loss": (self.loss_sum, float(self.samples)), "metrics": self._evaluated()})
        self._finite.check(self.model)
        for schedule in self._schedules() if self._by_epoch else ():
            schedule.step()
        self.loss_sum, self.samples = 0.0, 0
        self.epoch += 1
        self.step_in_epoch = 0
        if self._rank == 0:
            self._tell(EpochDone(self.epoch, self.steps, self._epochs[-1]["metrics"]))

    def _evaluated(self) -> dict[str, float]:
        if self._rank != 0 or self._data.held_out is None:
            return {}
        random = RandomState.now(self._device)
        buffers = [buffer.clone() for buffer in self.model.buffers()]
        modes = [(module, module.training) for module in self.model.modules()]
        self.model.eval()
        sums: list[Sums] = []
        own = self._attributes.changed()
        shapes: set[tuple[int, ...]] | None = set() if self._data.has_several_batches else None
        with torch.no_grad():
            for _, batch in self._data.held_out_batches():
                seed_everything(self._seed)
                with self._attributes.for_a_while(own):
                    moved = tasks.move(batch, self._device)
                    sums.append(tasks.evaluation_sums(self._task, self.model, moved, shapes))
            for buffer, before in zip(self.model.buffers(), buffers):
                buffer.copy_(before)
        for module, mode in modes:
            module.training = mode
        random.set(self._device)
        return values(sums, tasks.metric_objects(self._task))

    def _shared(self) -> dict[str, Any]:
        return {
            "job": tasks.name_of(self._task),
            "seed": self._seed,
            "order_seed": tasks.own_order_seed(self._task),
            "virtual_workers": self._ranks,
            "batch_size": self._batch_size,
            "epoch": self.epoch,
            "step": self.step_in_epoch,
            "steps": self.steps,
            "parameters": on_host(dict(self.model.named_parameters())),
            **on_host(self._updates()),
            "pins": determinism.pins(self._device) | self._compiler,
            "task_state": on_host(TaskState(self._task).now()),
            "batches": as_lists(self._batches.changes) if self._batches and self._batches.changes else None,
        }


def assemble(trees: Sequence[Mapping[str, Any]]) -> Checkpoint:
    """Return the checkpoint of a job from what all its ranks gave, in rank order (see `DdpRank.as_tree`)."""
    history = []
    for entries in zip(*(tree["epochs"] for tree in trees)):
        history.append({"loss": mean_of(entry["loss"] for entry in entries), **entries[0]["metrics"]})
    return Checkpoint(**trees[0]["shared"], workers=[tree["worker"] for tree in trees], history=History(history))


@contextmanager
def recorded_order(parameters: Sequence[nn.Parameter]) -> Iterator[list[int]]:
    """Give a list that fills with the parameters' indices as their gradients become ready."""
    order: list[int] = []
    hooks = [
        parameter.register_post_accumulate_grad_hook(lambda _, index=index: order.append(index))
        for index, parameter in enumerate(parameters)
    ]
    try:
        yield order
    finally:
        for hook in hooks:
            hook.remove()


def seen_through_ddp(parallel: DistributedDataParallel) -> nn.Module:
    """Return what stands for `parallel`'s network while one loss is computed.

    To call it is to call DDP. Whatever else a loss takes from it, a method, a layer or a weight, comes from the network
    itself, and DDP's forward is entered before, if it was not yet: DDP gives buffers and awaits gradients from there,
    as it does where Lightning's strategy has `training_step` for its forward. isinstance finds the network's class.
    """
    network = parallel.module
    kind = nn.Module if isinstance(network, torch.jit.ScriptModule) else type(network)
    entered = False

    def call(_: Any, *arguments: Any, **named: Any) -> Any:
        nonlocal entered
        entered = True
        return parallel(*arguments, **named)

    def get(_: Any, name: str) -> Any:
        nonlocal entered
        if not entered and not (name.startswith("__") or name == "training"):
            entered = True
            with called_through(network, lambda: None):
                parallel()
        return getattr(network, name)

    def put(_: Any, name: str, value: Any) -> None:
        setattr(network, name, value)

    methods = {"__call__": call, "__getattribute__": get, "__setattr__": put}
    view = type(kind.__name__, (kind,), methods)
    made: nn.Module = object.__new__(view)
    return made


class DdpRankOfParts(DdpRank):
    """One rank's process; the optimizer and the schedule are those of the first part."""

    def _wrap(self) -> Rule:
        self._rules = rules_of(self._task, self.model)
        self._plain = {name: self.model.get_submodule(name) for name in self._rules}
        self._wrapped = {name: DistributedDataParallel(part) for name, part in self._plain.items()}
        self._trained = {name: [p for p in part.parameters() if p.requires_grad] for name, part in self._plain.items()}
        self._layouts: dict[str, Layout] = {}
        return next(iter(self._rules.values()))

    def _step(self, batch: Batch, recorder: Recorder | None) -> BatchLoss:
        """Run the phases of the task's own step, each with an update of its part; return the sum of their losses."""
        task: Any = self._task
        phases, total = task.step(self.model, batch), 0.0
        while True:
            self._put(self._wrapped)
            with self._options.precision(self._device):
                phase = next(phases, None)
            if phase is not None:
                self._backward(*phase)
            self._put(self._plain)
            if phase is None:
                return BatchLoss(torch.tensor(total, dtype=torch.float64), samples_in(batch))
            self._update(phase[0])
            total += phase[1].item()

    def _backward(self, name: str, loss: Any) -> None:
        trained = self._trained[name]
        self._rules[name][0].zero_grad()
        order: AbstractContextManager[list[int]] = nullcontext([]) if name in self._layouts else recorded_order(trained)
        with order as ready:
            loss.backward(inputs=[parameter for parameter in trained if parameter.requires_grad])
        if name not in self._layouts:
            used = [parameter.grad is not None for parameter in trained]
            self._layouts[name] = Layout.rebuilt(trained, ready, used)

    def _update(self, name: str) -> None:
        optimizer, schedule = self._rules[name]
        self._options.before_update(self._task, self.model)
        self._let(optimizer, schedule)
        self._plain[name].zero_grad()

    def _schedules(self) -> list[torch.optim.lr_scheduler.LRScheduler]:
        return [schedule for _, schedule in self._rules.values() if schedule is not None]

    def _put(self, parts: Mapping[str, nn.Module]) -> None:
        """Let the model's parts be these."""
        for name, part in parts.items():
            self.model._modules[name] = part

    def _updates(self) -> dict[str, Any]:
        trees = {
            name: {
                "optimizer": optimizer.state_dict(),
                "schedule": None if schedule is None else schedule.state_dict(),
                "layout": (self._layouts.get(name) or Layout.first(self._trained[name])).as_tree(),
            }
            for name, (optimizer, schedule) in self._rules.items()
        }
        first, *others = trees
        return {**trees[first], "parts": {name: trees[name] for name in others} or None}
