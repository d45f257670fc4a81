"""Trains one job on one member of a group, with the results of plain DDP.

Each step does what N processes of torch.nn.parallel.DistributedDataParallel over gloo do, though M <= N trainers take
part, each running its virtual workers in turn (EasyScale, SC'23, 3.2 and 3.3).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from trainers.device.device_memory import keep_freed_memory
from trainers.device.device_streams import with_index
from trainers.messages.group import Group
from trainers.reduce.buckets import Layout
from trainers.reduce.device_reduce import HostThenDeviceReduce
from trainers.reduce.ordered_reduce import OrderedReduce, Reducer, ReducerOf
from trainers.reduce.reduction import Reduction
from trainers.repeatable import determinism
from trainers.repeatable.determinism import PinsDiffer
from trainers.repeatable.process_settings import evaluating
from trainers.repeatable.random_state import seed_everything
from trainers.repeatable.scan import check_refusal
from trainers.repeatable.shared_state import SharedState
from trainers.state.checkpoint import Checkpoint, CheckpointError
from trainers.state.history import History
from trainers.state.tree import on_host
from trainers.step.compute import Compute, ForwardBackward, backward, compile_model, known_weights
from trainers.step.losses import FiniteWeights, StepLosses, finite, with_losses_read
from trainers.step.update import TurnResult, Update, is_unread
from trainers.step.virtual_worker import VirtualWorker, place_workers
from trainers.task import task as tasks
from trainers.task.batch_plan import BatchPlan, BatchSchedule, as_lists, from_lists
from trainers.task.loss import Weight
from trainers.task.metrics import values
from trainers.task.parts import Parts, Phase, PhaseRun, is_parted, rules_of
from trainers.task.task import Batch, Sums, Task
from trainers.task.task_options import StepOptions, TaskState

_TakeTurn = Callable[[Sequence[Tensor], Reduction, int, VirtualWorker], TurnResult]


class Progress:
    """The place of a job between two steps.

    epoch: finished epochs; step_in_epoch: steps done since; steps: steps done since the job began.
    history: the metrics of the finished epochs, as far as they are kept.
    batches: which batch each epoch has, where that changes; else None.
    """

    def __init__(self, task: Task, virtual_workers: int) -> None:
        self.task, self.name, self.virtual_workers = task, tasks.name_of(task), virtual_workers
        self.seed, self.batches = tasks.seed_of(task), tasks.batch_schedule_of(task)
        self._options, self._by_epoch = StepOptions.of(task), tasks.steps_schedule_by_epoch(task)
        self.epoch = self.step_in_epoch = self.steps = 0
        self.history = History()

    @property
    def options(self) -> StepOptions:
        """What the task asks of a step of this epoch."""
        return self._options if self.batches is None else self._options.cut(self.batches.at(self.epoch).parts)

    @property
    def batch_size(self) -> int:
        """Samples of one virtual worker in a step of this epoch."""
        return tasks.batch_size_of(self.task) if self.batches is None else self.batches.at(self.epoch).size

    @property
    def rate_factor(self) -> float:
        """By what the learning rate of the next step is multiplied."""
        return 1.0 if self.batches is None else self.batches.factor(*self._here)

    @property
    def place(self) -> str:
        """The next step, for errors."""
        return f"step {self.step_in_epoch} of epoch {self.epoch}"

    @property
    def _here(self) -> tuple[int, int, int]:
        return self.epoch, self.step_in_epoch, self.virtual_workers

    def plan(self, samples: int) -> BatchPlan:
        """Return which positions of an epoch like this one, of `samples` samples, each virtual worker takes a step."""
        return BatchPlan(samples, self.virtual_workers, self.batch_size, tasks.drops_last(self.task))

    def follow(self, batches: BatchSchedule | None) -> None:
        """Go on with these batches from the next epoch on. ValueError if they differ in what was trained already."""
        if batches is not None:
            past = () if self.batches is None else self.batches.changes
            self.batches = batches.going_on(past, self.epoch, self.step_in_epoch)

    def apply_update(self, update: Update) -> None:
        """Let an optimizer update the parameters with the gradients of the next step."""
        turns = 1 if self.batches is None else self.batches.turns(*self._here)
        update.step(self.rate_factor, 0 if self._by_epoch else turns)

    def count_step(self) -> None:
        """A step is done."""
        self.step_in_epoch += 1
        self.steps += 1

    def begin_epoch(self, updates: Sequence[Update]) -> None:
        """Go on to the next epoch; schedules that count epochs are stepped."""
        for update in updates if self._by_epoch else ():
            update.step_schedule()
        self.epoch += 1
        self.step_in_epoch = 0

    def batch_changes(self) -> list[list[int]] | None:
        """Return the changes of the batch as a checkpoint has them."""
        return as_lists(self.batches.changes) if self.batches and self.batches.changes else None

    def load_progress(self, saved: Checkpoint) -> None:
        """Stand where a checkpoint says. ValueError if its batches were others than are known."""
        self.epoch, self.step_in_epoch, self.steps = saved.epoch, saved.step, saved.steps
        self.history = saved.history
        if self.batches is not None:
            self.batches = self.batches.going_on(from_lists(saved.batches or ()), self.epoch, self.step_in_epoch)


class Trainer(Progress):
    """One member's part in the training of a job.

    model: as the task built it, the same on every member after every step.
    updates: its optimizers and schedules, likewise; one, but for tasks with steps of their own (`task.parts`).
    workers: this member's virtual workers, in rank order.
    reducer_of: makes what adds the gradients of each group that it joins.
    accumulating: whether gradients are not yet whole, as more parts of a worker's batch follow.
    weights: of these parts, as far as their targets tell what their losses divide by.
    computed_seconds, waited_seconds: time in this class's methods without, and in, waits for other members.
    """

    def __init__(
        self,
        task: Task,
        virtual_workers: int,
        group: Group,
        device: torch.device | str = "cpu",
        compute: Compute | None = None,
        level: str | determinism.Arithmetic = "D1",
        reducer: ReducerOf = OrderedReduce,
    ) -> None:
        """Build the job anew: seed Python, NumPy and torch with the task's seed, then model, optimizer and schedule.

        Every member of `group` does the same. Sets the process's determinism to `level`, with torch's own float32 if it
        is a name alone (see `trainers.repeatable.determinism`), and lets it keep the memory that a step frees (see
        `trainers.device.device_memory`).

        reducer: what adds gradients; with any but the ring, steps are taken inside `reducing()`.
        """
        keep_freed_memory()
        asked = determinism.Arithmetic(level) if isinstance(level, str) else level
        self.level = determinism.pin(level=asked.level, device=device, float32=asked.float32)
        super().__init__(task, virtual_workers)
        self.device = with_index(torch.device(device))
        self.reducer_of = reducer
        self._buffers: list[Tensor] | None = None  # those of virtual worker 0, for the next step
        self._is_short = False  # whether steps are taken in one piece
        self._join(group)
        self.compute: Compute = compute or ForwardBackward()
        self.accumulating, self.weights = False, list[Weight | None]()
        seed_everything(self.seed)
        self.model = tasks.model_of(task).to(self.device)
        self._compiler = compile_model(self.name, self.model, self.options.compile, self.level.mixed_kinds, self.device)
        self._finite, self._own = FiniteWeights(self.name, self.model), TaskState(task)
        self._shared = SharedState(self.name, self.model, tasks.scratch_of(task), self._own.digest, tasks.code_of(task))
        rules = rules_of(task, self.model)
        self.workers = [
            VirtualWorker(rank, self.seed, self.model, self.device) for rank in group.block(virtual_workers)
        ]
        self.updates = [
            Update(self.name, part, self.model, *rule, lambda: self.accumulating, virtual_workers == 1)
            for part, rule in rules.items()
        ]
        self._parts = Parts(self.name, self.model, list(rules)) if is_parted(task) else None
        place_workers(self.workers, self._parts is None)
        for update in self.updates:
            update.lay_out(update.layout, len(self.workers))
        self.computed_seconds = self.waited_seconds = 0.0
        self._losses = StepLosses(self.name, [], [], "")

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The task's optimizer, or the first of several."""
        return self.updates[0].optimizer

    def step(self, batches: Sequence[Batch | Callable[[], Batch]]) -> StepLosses:
        """Train one step on one batch for each own virtual worker; return each worker's loss times its samples.

        A batch may be a function that gives it: then it is called under the worker's random state, as a DataLoader
        without worker processes would. The sums over all workers begin while the last one's backward pass goes on.
        Losses come from a device while it does the next step: to look at one of this step is to wait for it. Diverged
        if a loss is not finite, on a device one of the step before; UnevenGradients, SparseGradient, GradientTwice,
        UntoldState and NonDeterministicOperator where the model cannot be trained so; PeerFailed, PeerSilent.
        """
        if len(batches) != len(self.workers):
            raise ValueError(f"{len(batches)} batches for {len(self.workers)} virtual workers; give each its own")
        begin, waited = time.perf_counter(), self.group.waited
        if self._is_short:
            self._losses = self._short_step(batches)
            self._count_time(begin, waited)
            return self._losses
        phases = self._parts and getattr(self.compute, "phases", None)
        turns = self._by_parts(batches, phases) if phases else self._update(partial(self._turn, batches))
        before, self._losses = self._losses, StepLosses(self.name, turns, self.workers, self.place)
        before.settle()
        with self._shared.between_turns(self.task, "after_step", self.workers):
            tasks.after_step(self.task, self.model)
        self.count_step()
        is_plain = type(self._reducer) is OrderedReduce and self.group.size == 1 and self.device.type == "cpu"
        self._is_short = is_plain and self._parts is None and self.updates[0].needs_no_hooks
        if self._reads_at_once:
            self.settle()
        self._count_time(begin, waited)
        return self._losses

    def settle(self) -> None:
        """Have all losses counted; a device's last ones are waited for. Diverged."""
        self._losses.settle()

    def connect(self) -> Callable[[], None]:
        """Begin what `reducing` waits for; all members call it at once. Return what ends it. PeerFailed, PeerSilent."""
        self._reducer.prepare()
        return partial(self._reducer.stop, False)

    @property
    def is_connecting(self) -> bool:
        """Whether devices still meet, so that steps are slower than later ones."""
        return self._reducer.is_connecting

    @contextmanager
    def reducing(self, at_once: bool = False) -> Iterator[None]:
        """Let steps be taken inside this context; all members enter and leave it together. It ends before a move.

        at_once: take steps over hosts while devices meet. PeerFailed, PeerSilent; what else, the reducer says.
        """
        reducer, together = self._reducer, False
        try:
            reducer.start(at_once)
            yield
            together = True
        finally:
            self._buffers = None
            self._shared.leave()
            reducer.stop(together)

    def evaluate(self, batches: Iterable[tuple[int, Batch]], of_several: bool = False) -> dict[int, Sums]:
        """Return what this member's held-out batches say of metrics, each given with its index in the held-out set.

        All members call it, perhaps with no batches; of_several: of a set that has more than one. The model is in eval
        mode, with worker 0's buffers and attributes.
        """
        with self._clock(), torch.no_grad(), evaluating(self.model), self.workers[0].lending():
            attributes = self.group.bcast_tree(self.workers[0].attributes if self.group.is_master else None)
            for buffer, shared in zip(self.model.buffers(), self._first_workers_buffers()):
                buffer.copy_(shared)
            sums, shapes = dict[int, Sums](), set[tuple[int, ...]]() if of_several else None
            for index, batch in batches:
                seed_everything(self.seed)
                with self._shared.evaluation(attributes):
                    sums[index] = tasks.evaluation_sums(self.task, self.model, tasks.move(batch, self.device), shapes)
        return sums

    def reduce_sums(self, sums: Mapping[int, Sums]) -> dict[str, float]:
        """Return the metrics of all members' batches, on every member, put together in the order of their indices."""
        with self._clock():
            trees = self.group.gather_trees(dict(sums))
            if not self.group.is_master:
                return dict(self.group.bcast_tree())
            everything = {index: entry for member in trees for index, entry in member.items()}
            found = values([entry for _, entry in sorted(everything.items())], tasks.metric_objects(self.task))
            return dict(self.group.bcast_tree(found))

    def finish_epoch(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Close the epoch: add the mean training `loss` to `metrics`, append them to the history, return them."""
        self.settle()
        losses = {worker.rank: {"loss": worker.take_losses()} for worker in self.workers}
        self.history.append({**self.reduce_sums(losses), **metrics})
        self.check_finite()
        self.begin_epoch(self.updates)
        return self.history[-1]

    def check_finite(self) -> None:
        """Raise Diverged if a parameter, or a buffer of an own worker, holds NaN or infinite values."""
        self._finite.check(self.model, [worker.named_buffers() for worker in self.workers])

    def snapshot(self) -> Checkpoint | None:
        """Return the job's whole state on the master, None elsewhere. All members call it, between two steps."""
        with self._clock():
            self.settle()
            own = {"workers": [worker.as_tree() for worker in self.workers], "state": self._own.digest()}
            gathered = self.group.gather_trees(own)
            if not self.group.is_master:
                return None
            self._own.hold_equal([member["state"] for member in gathered])
            contexts = [tree for member in gathered for tree in member["workers"]]
            return Checkpoint.from_tree(on_host(self.state(contexts).as_tree()))

    def state(self, contexts: list[dict[str, Any]]) -> Checkpoint:
        """Return the job's state with these virtual workers' contexts; tensors are the trainer's own, not copies."""
        return Checkpoint(
            job=self.name,
            seed=self.seed,
            order_seed=tasks.own_order_seed(self.task),
            virtual_workers=self.virtual_workers,
            batch_size=tasks.batch_size_of(self.task),
            epoch=self.epoch,
            step=self.step_in_epoch,
            steps=self.steps,
            parameters={name: parameter.detach() for name, parameter in self.model.named_parameters()},
            workers=contexts,
            history=self.history,
            pins=determinism.pins(self.device) | self._compiler,
            task_state=self._own.now(),
            batches=self.batch_changes(),
            parts={update.part: update.as_tree() for update in self.updates[1:]} or None,
            **self.updates[0].as_tree(),
        )

    def restore(self, checkpoint: Checkpoint | None = None) -> None:
        """Take over a job's state, on any number of trainers. The master gives the checkpoint; all members call it.

        CheckpointError if it is another job's; PinsDiffer if this process runs under other settings.
        """
        with self._clock():
            if self.group.is_master:
                self.check_fit(checkpoint)
            saved = Checkpoint.from_tree(self.group.bcast_tree(checkpoint.as_tree() if checkpoint else None))
            with misfits_named(saved):
                self.load_state(Checkpoint.from_tree(on_host(saved.as_tree())))
                for worker in self.workers:
                    worker.restore(saved.workers[worker.rank])

    def load_state(self, saved: Checkpoint) -> None:
        """Take over what all members share; its tensors become the job's own, uncopied. PinsDiffer (see `restore`)."""
        determinism.compare_pins(saved.pins, determinism.pins(self.device) | self._compiler)
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                if parameter.data_ptr() != saved.parameters[name].data_ptr():  # else it was received in place
                    parameter.copy_(saved.parameters[name])
        for update, tree in zip(self.updates, saved.updates):
            update.load_state(tree, self.level.keeps_layout, len(self.workers))
        self._own.load_state(saved.task_state, self.device)
        self._buffers, self._losses = None, StepLosses(self.name, [], [], "")  # no step was taken since
        self._is_short = False
        self.load_progress(saved)

    def receive(self, tensors: Sequence[Tensor], origin: int) -> None:
        """Fill tensors on the members' devices with those of member `origin`; all members call it. PeerFailed."""
        with self._clock(), self.reducing():
            assert isinstance(self._reducer, HostThenDeviceReduce)
            self._reducer.receive(tensors, origin)

    def regroup(self, group: Group, workers: list[VirtualWorker]) -> None:
        """Go on in another group, with the virtual workers of its block; see `trainers.job.resize`."""
        self.workers = workers
        place_workers(self.workers, self._parts is None)
        self._join(group)
        for update in self.updates:
            update.lay_out_again(update.layout, self.level.keeps_layout, len(workers))

    def _short_step(self, batches: Sequence[Any]) -> StepLosses:
        """Take a step in one piece, where a CPU has all workers and no hook takes their gradients.

        To a small network calls cost as much as what they do: this does what `_update` does, with fewer of them.
        """
        update, workers, first = self.updates[0], self.workers, self._first_workers_buffers()
        means: list[float] = []
        weights: list[float] = []
        for place, worker in enumerate(workers):
            worker.begin(first)
            for parameter in update.parameters:
                parameter.grad = None
            with worker:
                with self._shared.turn(worker.attributes, place == 0):
                    mean, weight = self._computed(worker, batches[place])
                update.collect(place, worker.rank, self.steps)
            means.append(mean.item() if isinstance(mean, Tensor) else mean)
            weights.append(weight.item() if isinstance(weight, Tensor) else weight)
        means = finite(self.name, means, weights, workers[0].rank, self.place)
        update.give_collected(1.0 / self.virtual_workers, self._reducer.sum)
        with self._shared.between_turns(self.task, "before_step", workers):
            self.options.before_update(self.task, self.model)
        self.apply_update(update)
        losses = StepLosses.counted(means, weights, workers)
        with self._shared.between_turns(self.task, "after_step", workers):
            tasks.after_step(self.task, self.model)
        self.count_step()
        return losses

    # The parts of a step, in the order in which `step` uses them.

    @property
    def _reads_at_once(self) -> bool:
        """Whether losses are read before an update: a task's own step adds those of its phases."""
        return self.device.type == "cpu" or self._parts is not None

    def _first_workers_buffers(self) -> list[Tensor]:
        """Return virtual worker 0's buffers; DDP gives them to every rank before each forward."""
        if self.group.size == 1 and (first := self.workers[0]).is_at_home:
            return first.buffers
        return self._buffers or self._reducer.share(self.workers[0].buffers)

    def _update(self, turn: _TakeTurn) -> list[TurnResult]:
        """Run all own workers' turns, and update with the sum of all workers' gradients; none if they have none."""
        turns, layout = self._updated(turn)
        if layout is None or (update := turns[0].update) is None:
            return []
        update.settle(layout, self._reducer.place)  # nobody holds the sums any more
        return turns

    def _updated(self, turn: _TakeTurn) -> tuple[list[TurnResult], Layout | None]:
        """Return all own workers' turns, once the update has their sums, and the layout of those after it."""
        buffers, self._buffers = self._first_workers_buffers(), None
        with Reduction(self._reducer, self._beside) as reduction:
            turns = [turn(buffers, reduction, place, worker) for place, worker in enumerate(self.workers)]
            if (update := turns[0].update) is None:
                return turns, None
            if self._reads_at_once:
                turns = with_losses_read(self.name, turns, self.workers[0].rank, self.place)
            layout = update.agree(self.group, turns, self.steps)
            update.start_all(reduction)
            sums = reduction.begun()
            if self._parts is None:
                self._buffers = self._reducer.share_ahead(self.workers[0].buffers)
            unread = not self._reads_at_once and not self._shared.looks_closely("before_step")
            follows = unread and is_unread(self.task, update.optimizer) and self._reducer.follow()
            if sums and not follows:
                self._finish(reduction)
            update.give(sums, layout.used or ())
            with self._shared.between_turns(self.task, "before_step", self.workers):
                self.options.before_update(self.task, self.model)
            self.apply_update(update)
            if follows:
                self._finish(reduction)
        return turns, layout

    def _turn(
        self, batches: Sequence[Any], buffers: Sequence[Tensor], reduction: Reduction, place: int, worker: VirtualWorker
    ) -> TurnResult:
        """Run a worker's batch; leave its scaled gradients in its buckets. The last worker's begin to be summed."""
        worker.begin(buffers)
        update, factor = self.updates[0], 1.0 / self.virtual_workers
        taken = update.turn(place, worker.rank, factor, reduction, self.steps)
        with worker, taken as turn, self._shared.turn(worker.attributes, place == 0):
            mean, weight = self._computed(worker, batches[place])
        return TurnResult(update, mean, weight, tuple(turn.used), turn.order)

    def _computed(self, worker: VirtualWorker, batch: Any) -> tuple[Tensor | float, Weight]:
        """Leave the gradients of a worker's batch in the parameters; return its mean loss and its weight."""
        batch = self._batch(worker, batch)
        try:
            loss = self.compute.gradients(self, worker, batch)
        except RuntimeError as error:
            check_refusal(error, self.model, self.name)
            raise
        return (loss, tasks.samples_in(batch)) if isinstance(loss, float) else loss

    def _by_parts(
        self, batches: Sequence[Any], phases: Callable[[Trainer, Batch], Iterator[Phase]]
    ) -> list[TurnResult]:
        """Run the phases of the task's own step; return, for each worker, the sum of its losses."""
        courses = [PhaseRun(self.name, worker.rank) for worker in self.workers]

        def turn(buffers: Sequence[Tensor], reduction: Reduction, place: int, worker: VirtualWorker) -> TurnResult:
            course = courses[place]
            with worker:
                if not course.has_begun:
                    batch = self._batch(worker, batches[place])
                    course.begin(phases(self, batch), tasks.samples_in(batch))
                try:
                    with self._shared.turn(worker.attributes, place == 0):
                        return self._phase(course, buffers, reduction, place)
                except RuntimeError as error:
                    check_refusal(error, self.model, self.name)
                    raise

        while turns := self._update(turn):
            for course, taken in zip(courses, turns):
                course.loss += float(taken.loss)
        return [TurnResult(None, course.loss, course.samples) for course in courses]

    def _phase(self, course: PhaseRun, buffers: Sequence[Tensor], reduction: Reduction, place: int) -> TurnResult:
        """Run a worker's step up to its next loss, and that loss's gradients in the part that it is for."""
        assert self._parts is not None
        with self._parts.turn(buffers):
            with self.options.precision(self.device):
                phase = course.advance()
            number = self._parts.agreed(phase, course.rank, self.group if place == 0 else None)
            if phase is None:
                return TurnResult()
            update, factor = self.updates[number], 1.0 / self.virtual_workers
            with update.turn(place, course.rank, factor, reduction, self.steps) as turn:
                wanted = [parameter for parameter in update.parameters if parameter.requires_grad]
                backward(phase[1], inputs=wanted)
        return TurnResult(update, phase[1].detach(), course.samples, tuple(turn.used), turn.order)

    def _batch(self, worker: VirtualWorker, batch: Any) -> Any:
        """Return a worker's batch on the device, under its random state."""
        if self.step_in_epoch == 0:
            worker.open_loader()
        found = batch() if callable(batch) else batch
        self.weights = known_weights(self.task, found, self.options)
        return tasks.move(found, self.device)

    def _finish(self, reduction: Reduction) -> None:
        """Wait for the sums over all virtual workers' gradients."""
        seconds, waited = reduction.finish()[1], self._reducer.take_waited()
        self.group.waited += min(seconds, waited) if self._beside else waited

    def _join(self, group: Group) -> None:
        self.group, self._is_short = group, False
        self._reducer: Reducer = self.reducer_of(group, self.virtual_workers, self.device)
        self._beside = group.any_thread and (group.size > 1 or self.device.type != "cpu")

    @property
    def keeps_state(self) -> bool:
        """Whether the task has a state of its own."""
        return self._own.is_kept

    def check_fit(self, checkpoint: Checkpoint | None) -> None:
        """Raise CheckpointError unless the checkpoint is this job's."""
        if checkpoint is None:
            raise ValueError("the group's master restores from a checkpoint, got None")
        check_fit(checkpoint, self)

    @contextmanager
    def _clock(self) -> Iterator[None]:
        begin, waited = time.perf_counter(), self.group.waited
        yield
        self._count_time(begin, waited)

    def _count_time(self, begin: float, waited: float) -> None:
        waited = self.group.waited - waited
        self.waited_seconds += waited
        self.computed_seconds += time.perf_counter() - begin - waited


_MEND = "go on with the job as it was, or start this one anew"


_NOT_SAID = "not said: it is the state that workers share, without theirs"


def check_fit(checkpoint: Checkpoint, job: Trainer) -> None:
    """Raise CheckpointError, which says what is another job's, unless a checkpoint is this job's.

    A difference missed here would be an error inside torch, or none until the first step.
    """
    with misfits_named(checkpoint):
        saved, own = _of_checkpoint(checkpoint), _of_trainer(job)
    different = next((name for name in own if saved[name] not in (own[name], _NOT_SAID)), None)
    if different is not None:
        found = f"its {different} is {saved[different]}, that of {job.name} is {own[different]}"
        raise CheckpointError(f"checkpoint of job {checkpoint.job}", found, _MEND)


@contextmanager
def misfits_named(checkpoint: Checkpoint) -> Iterator[None]:
    """Turn what Python and torch raise at a state that does not fit, though its names do, into CheckpointError."""
    try:
        yield
    except (PinsDiffer, torch.OutOfMemoryError):
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        found = f"it cannot be gone on from ({type(error).__name__}: {error})"
        raise CheckpointError(f"checkpoint of job {checkpoint.job}", found, _MEND) from error


def _of_checkpoint(checkpoint: Checkpoint) -> dict[str, Any]:
    laid_out = sorted(index for bucket in checkpoint.layout["buckets"] for index in bucket)
    return {
        "seed": checkpoint.seed,
        "order's seed": checkpoint.seed if checkpoint.order_seed is None else checkpoint.order_seed,
        "virtual_workers": checkpoint.virtual_workers,
        "batch_size": checkpoint.batch_size,
        "parameters": {name: tuple(value.shape) for name, value in checkpoint.parameters.items()},
        "schedule": checkpoint.schedule is not None,
        "layout of buckets": _parameters(laid_out),
        "set of buffers": sorted(checkpoint.workers[0]["buffers"]) if checkpoint.workers else _NOT_SAID,
        "optimizer": _settings(checkpoint.optimizer),
        "parts with optimizers of their own": _parts(
            {part: _place(tree) for part, tree in (checkpoint.parts or {}).items()}
        ),
        "task's own state": _kept(checkpoint.task_state is not None),
    }


def _of_trainer(job: Trainer) -> dict[str, Any]:
    first, *others = job.updates
    return {
        "seed": job.seed,
        "order's seed": tasks.order_seed_of(job.task),
        "virtual_workers": job.virtual_workers,
        "batch_size": tasks.batch_size_of(job.task),
        "parameters": {name: tuple(parameter.shape) for name, parameter in job.model.named_parameters()},
        "schedule": first.schedule is not None,
        "layout of buckets": _parameters(list(range(len(first.parameters)))),
        "set of buffers": sorted(name for name, _ in job.model.named_buffers()),
        "optimizer": _settings(first.optimizer.state_dict()),
        "parts with optimizers of their own": _parts({update.part: _place(update.as_tree()) for update in others}),
        "task's own state": _kept(job.keeps_state),
    }


def _place(tree: dict[str, Any]) -> list[Any]:
    """What of a part's optimizer is compared: its settings, how many parameters are in buckets, and its schedule."""
    laid_out = sum(len(bucket) for bucket in tree["layout"]["buckets"])
    return [_settings(tree["optimizer"]), laid_out, tree["schedule"] is not None]


def _parts(places: dict[str, list[Any]]) -> str:
    return ", ".join(f"{part} {place}" for part, place in places.items()) or "none"


def _kept(is_kept: bool) -> str:
    return "kept by state()" if is_kept else "not kept"


def _parameters(indices: list[int]) -> str:
    """Which parameters take gradients; numbered from 0 on without a gap, as they should be, only how many."""
    return f"of {len(indices)} parameters" if indices == list(range(len(indices))) else f"of parameters {indices}"


def _settings(state: dict[str, Any]) -> list[tuple[list[str], int]]:
    """The names of each group's settings, and how many parameters it has."""
    return [(sorted(group), len(group["params"])) for group in state["param_groups"]]
