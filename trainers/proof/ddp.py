"""The yardstick: a task under torch's own DistributedDataParallel over gloo, DistributedSampler and DataLoader.

Nothing here uses virtual workers, ordered reduction or this package's loader. What comes out has a checkpoint's form,
so that it can be held against an elastic run tensor by tensor.

`train_with_ddp` starts a process for each rank. They meet over a file in a temporary folder, so no port is chosen, and
talk over loopback. A process whose standard input ends knows that its parent is gone, and ends. What they made comes
back in files of that folder.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from preprocess.files.modules import import_named, importable, let_forks_end, python
from preprocess.files.reading import open_file, read_json
from preprocess.files.writing import open_to_append, whole_file
from trainers.job.single_job import EpochDone, News, Pace, StepsDone, TaskDatasets, at_epoch, shuffles_itself
from trainers.messages.torch_backend import on_loopback
from trainers.proof.tensor_trace import Recorder, TensorHash, TraceFile, merged_traces, read_tensor_trace
from trainers.reduce.buckets import Layout
from trainers.repeatable import determinism
from trainers.repeatable.determinism import Float32
from trainers.repeatable.plain_attributes import PlainAttributes
from trainers.repeatable.process_settings import evaluating, settings_kept
from trainers.repeatable.random_state import RandomState, seed_everything
from trainers.state.checkpoint import Checkpoint
from trainers.state.history import History
from trainers.state.tree import decode, encode, on_host
from trainers.step.compute import BatchLoss, PartSteps, backward, compile_model, known_weights
from trainers.step.losses import FiniteWeights
from trainers.step.virtual_worker import VirtualWorker
from trainers.task import task as tasks
from trainers.task.batch_plan import as_lists, learning_rates_times
from trainers.task.loss import Loss, Weight
from trainers.task.metrics import mean_of, values
from trainers.task.parts import Rule, is_parted, rules_of
from trainers.task.task import Batch, Sums, Task, called_through, made_task, samples_in
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
        sums: list[Sums] = []
        own = self._attributes.changed()
        shapes: set[tuple[int, ...]] | None = set() if self._data.has_several_batches else None
        with torch.no_grad(), evaluating(self.model):
            for _, batch in self._data.held_out_batches():
                seed_everything(self._seed)
                with self._attributes.for_a_while(own):
                    moved = tasks.move(batch, self._device)
                    sums.append(tasks.evaluation_sums(self._task, self.model, moved, shapes))
            for buffer, before in zip(self.model.buffers(), buffers):
                buffer.copy_(before)
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


_POLL_SECONDS = 0.05
_END_SECONDS = 10.0
_KILLED_SECONDS = 60.0


@dataclass(frozen=True)
class RaisedError:
    """An error that a process of the job raised, as another process can tell of it.

    kind: of its class, the name. text: what it says. said: both, as Python prints them. stack: file, line number,
    function and line of each call, from the outermost to the innermost.
    """

    kind: str
    text: str
    said: str
    stack: Sequence[tuple[str, int | None, str, str | None]]

    @classmethod
    def of(cls, error: BaseException) -> RaisedError:
        """Tell of an error that is being handled."""
        said = "".join(traceback.format_exception_only(error)).rstrip()
        calls = traceback.extract_tb(error.__traceback__)
        stack = [(call.filename, call.lineno, call.name, call.line) for call in calls]
        return cls(type(error).__name__, str(error), said, stack)

    def lines(self) -> list[traceback.FrameSummary]:
        """Return the calls as Python's traceback has them."""
        return [traceback.FrameSummary(file, number, name, line=line) for file, number, name, line in self.stack]


class ProcessFailed(RuntimeError):
    """A process of the job failed. rank: which one; raised: the error that it raised; None where it just ended."""

    def __init__(self, rank: int, text: str, raised: RaisedError | None = None) -> None:
        super().__init__(f"rank {rank} of the DDP job {text}")
        self.rank, self.raised = rank, raised


class Stopped(Exception):
    """The job was asked to stop. Stock DDP cannot go on with the same bits, so nothing is kept."""


@dataclass(frozen=True)
class DdpJob:
    """The orders of the processes.

    task: module:Name of the task's class. arguments: the keyword arguments with which it is made. ranks: processes.
    steps: how many to train. device: "cpu", or a kind of accelerator, on which ranks take turns. threads: CPU threads
    of each process. level: the level of determinism. float32: in what GPUs multiply float32, the keyword arguments of
    `Float32`. traced: whether to record hashes of all tensors. timeout: seconds that a rank waits for the others in
    any one step.
    """

    task: str
    ranks: int
    steps: int
    device: str = "cpu"
    threads: int = 1
    level: str = "D1"
    traced: bool = False
    timeout: float = 1800.0
    float32: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)


def train_with_ddp(
    job: DdpJob,
    tell: Callable[[News], None] = lambda _: None,
    is_asked_to_stop: Callable[[], bool] = lambda: False,
    trace: Callable[[Iterator[TensorHash]], None] = lambda _: None,
) -> Checkpoint:
    """Train a task under stock DDP in processes of its own; return the job's state after its last step.

    The job is done as soon as every rank has left its state: a process that then hangs while it ends, as gloo's
    connections may, is killed. trace: takes the events if the job is traced. ProcessFailed, with all processes ended;
    Stopped.
    """
    with tempfile.TemporaryDirectory(prefix="fleet-ddp-") as name:
        folder = Path(name)
        processes = _Processes(job, folder)
        try:
            processes.watch(_NewsReader(folder / "news", tell), is_asked_to_stop)
            processes.let_end()
        finally:
            processes.end()
        if job.traced:
            trace(merged_traces([read_tensor_trace(_file(folder, rank, "trace")) for rank in range(job.ranks)]))
        return assemble([decode(_content(_file(folder, rank, "state"))) for rank in range(job.ranks)])


class _Processes:
    """The processes of one job."""

    def __init__(self, job: DdpJob, folder: Path) -> None:
        self._folder = folder
        command = python("-m", "trainers.proof.ddp", json.dumps(asdict(job)), str(folder))
        environment = {**os.environ, **on_loopback(), "PYTHONUNBUFFERED": "1"}
        self._processes = [
            subprocess.Popen([*command, str(rank)], stdin=subprocess.PIPE, env=environment, start_new_session=True)
            for rank in range(job.ranks)
        ]

    def watch(self, look_for_news: Callable[[], None], is_asked_to_stop: Callable[[], bool]) -> None:
        """Return once all have left their states. ProcessFailed as soon as one ended without; Stopped."""
        while not all(self._has_state(rank) for rank in range(len(self._processes))):
            self._check()
            look_for_news()
            if is_asked_to_stop():
                raise Stopped
            time.sleep(_POLL_SECONDS)
        look_for_news()

    def let_end(self) -> None:
        """Give those that still run a while to end by themselves."""
        deadline = time.monotonic() + _END_SECONDS
        for process in self._processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))

    def end(self) -> None:
        """End those that still run."""
        for process in self._processes:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        for process in self._processes:
            process.wait(_KILLED_SECONDS)
            if process.stdin is not None:
                process.stdin.close()

    def _check(self) -> None:
        """Raise ProcessFailed for the rank that failed first: the others only lost their connection to it."""
        ended = [rank for rank, process in enumerate(self._processes) if process.poll() is not None]
        failed = [rank for rank in ended if not self._has_state(rank)]
        killed = [rank for rank in failed if (self._processes[rank].returncode or 0) < 0]
        if killed:
            number = -(self._processes[killed[0]].returncode or 0)
            raise ProcessFailed(killed[0], f"was killed by signal {number} ({signal.Signals(number).name})")
        if failed:
            told = [rank for rank in failed if _file(self._folder, rank, "error").exists()]
            if not told:
                code = self._processes[failed[0]].returncode
                raise ProcessFailed(failed[0], f"ended with exit code {code} without a word")
            first = min(told, key=lambda rank: _file(self._folder, rank, "error").stat().st_mtime_ns)
            raised = RaisedError(**read_json(_file(self._folder, first, "error")))
            raise ProcessFailed(first, f"failed: {raised.said}", raised)

    def _has_state(self, rank: int) -> bool:
        return _file(self._folder, rank, "state").exists()


class _NewsReader:
    """Passes on the lines that rank 0 has appended to a file since the last call."""

    def __init__(self, path: Path, tell: Callable[[News], None]) -> None:
        self._path, self._tell, self._read = path, tell, 0

    def __call__(self) -> None:
        if not self._path.exists():
            return
        with open_file(self._path) as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._read += len(line)
                kind, values = json.loads(line)
                self._tell({"steps": StepsDone, "epoch": EpochDone}[kind](**values))


def _file(folder: Path, rank: int, what: str) -> Path:
    return folder / f"rank-{rank}.{what}"


def _content(path: Path) -> bytes:
    """All of a file: a state is as large as the job that left it."""
    with open_file(path) as file:
        return file.read()


def _put(path: Path, content: bytes) -> None:
    with whole_file(path) as file:
        file.write(content)


# From here on: inside a process.


def main(job: DdpJob, folder: Path, rank: int) -> int:
    """Be rank `rank` of a job; return the exit code."""
    _end_with_parent()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    for number in numbers:
        signal.signal(number, lambda *_: None)  # the parent decides; whatever is started from here takes them itself
    let_forks_end(numbers)
    try:
        _train(job, folder, rank)
    except (Exception, SystemExit) as error:
        _put(_file(folder, rank, "error"), json.dumps(asdict(RaisedError.of(error))).encode())
        return 1
    return 0


def _train(job: DdpJob, folder: Path, rank: int) -> None:
    device = _device(job.device, rank)
    module, _, path = job.task.partition(":")
    with settings_kept(), importable([os.getcwd()]):
        made: Any = import_named(module)
    for part in path.split("."):
        made = getattr(made, part)
    torch.distributed.init_process_group(
        _backend(device),
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=job.ranks,
        timeout=timedelta(seconds=job.timeout),
    )
    task = made_task(made, job.arguments)
    determinism.pin(job.threads, job.level, device, Float32(**job.float32))
    kind = DdpRankOfParts if is_parted(task) else DdpRank
    trained = kind(task, rank, job.ranks, device, lambda news: _append_news(folder / "news", news))
    if job.traced:
        recorder = Recorder(trained.model, trained.optimizer)
        trace = TraceFile(_file(folder, rank, "trace"))
        trained.train(job.steps, recorder, lambda: trace.add(recorder.take()))
        trace.close()
    else:
        trained.train(job.steps)
    _put(_file(folder, rank, "state"), encode(trained.as_tree()))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def _backend(device: torch.device) -> str:
    """gloo, where it takes the device's tensors; else what torch has for devices of this kind, one a process."""
    made: Any = torch.distributed
    if device.type in made.Backend.backend_capability["gloo"]:
        return "gloo"
    return f"cpu:gloo,{device.type}:{made.get_default_backend_for_device(device)}"


def _device(kind: str, rank: int) -> torch.device:
    if kind == "cpu":
        return torch.device("cpu")
    device = torch.device(kind, rank % torch.get_device_module(kind).device_count())
    torch.get_device_module(device).set_device(device)
    return device


def _append_news(path: Path, news: News) -> None:
    kind = "epoch" if isinstance(news, EpochDone) else "steps"
    values: Mapping[str, Any] = asdict(news)
    with open_to_append(path) as file:
        file.write(json.dumps([kind, values]).encode() + b"\n")


def _end_with_parent() -> None:
    """End this process when its standard input does: the parent holds the other end and writes nothing."""
    source = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # a task that reads input finds none

    def wait() -> None:
        os.read(source, 1)
        os._exit(1)

    threading.Thread(target=wait, name="parent", daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(DdpJob(**json.loads(sys.argv[1])), Path(sys.argv[2]), int(sys.argv[3])))
