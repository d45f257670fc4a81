"""One trainer's part in `fleet train`: alone, or as one rank of several."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch

from fleet.commands.one_job import torch_world
from fleet.commands.one_job.last_words import MENDABLE, TOLD, LastWords, NotKept, tell_all
from fleet.commands.one_job.options import TrainError, TrainOptions, too_many_trainers
from fleet.commands.one_job.places import check_places, compute_near, own_device
from fleet.commands.one_job.same_samples import datasets_alike
from fleet.commands.one_job.told_together import tell_together
from fleet.commands.one_job.view import TrainView
from fleet.machine.devices import ON_DEVICES
from fleet.machine.horovod import NOT_BIT_FOR_BIT, load_horovod
from fleet.machine.launch.launched import (
    BAD_INPUT,
    DONE,
    FAILED,
    STOPPED,
    copy_small_messages,
    launch_folder,
    leave,
    leave_code,
)
from fleet.machine.launch.leftovers import made_by_mpi, sweep, write_note
from fleet.machine.signals import StopFlag
from fleet.machine.standard_streams import tell
from fleet.spec.references import resolve
from trainers import Checkpoint, CheckpointError, Float32, ForwardBackward, Group, Trainer, read, write
from trainers.job.single_job import News, SingleJob, TaskDatasets
from trainers.messages.device_channel import why_not
from trainers.proof.tensor_trace import GroupTrace, TracedCompute, TraceFile
from trainers.reduce.adder import InOrder
from trainers.reduce.communicators import Communicators
from trainers.reduce.horovod import HorovodHangs, horovod_sum
from trainers.reduce.until_met import DeviceSums
from trainers.repeatable import determinism
from trainers.task.parts import is_parted
from trainers.task.task import made_task
from trainers.task.task_checks import check_task

if TYPE_CHECKING:
    from mpi4py import MPI

_T = TypeVar("_T")

_TAG = 2


def train_alone(options: TrainOptions) -> int:
    """Train in this process, without MPI; return the exit code."""
    stop = StopFlag()
    stop.install()
    return _guarded(options, stop, Group.alone, 0, _tell_alone)


def train_in_world(options: TrainOptions) -> int:
    """Train as one of the ranks that a launcher started; return this rank's exit code."""
    sweep()  # before MPI starts, which needs the room
    copy_small_messages()
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    note = write_note([*made_by_mpi(), *launch_folder()])
    stop = StopFlag()
    stop.install()
    if world.rank == 0:
        leave("pid", os.getpid())
    node = world.Split_type(MPI.COMM_TYPE_SHARED)
    try:
        join = partial(_join, options, world, cast("MPI.Intracomm", node))
        code = _guarded(options, stop, join, node.rank, partial(tell_together, world))
    except HorovodHangs as error:  # Horovod's threads would keep this process from its end
        before = f"{error.__context__}; then " if isinstance(error.__context__, TOLD) else ""
        tell(f"rank {world.rank}: {before}{error}")
        leave_code(world.rank, FAILED)
        world.Abort(FAILED)
        raise
    code = leave_code(world.rank, code)
    note.remove()
    return code


def train_in_torchrun(options: TrainOptions) -> int:
    """Train as one of the processes that torchrun started; return this one's exit code."""
    stop = StopFlag()
    stop.install()
    rank, size, local = torch_world.torchrun_place()

    def join() -> Group:
        _check_size(options, size)
        return Group.over(torch_world.transport_of_torchrun())

    def tell_of(said: LastWords) -> int:
        """Tell it on rank 0, and elsewhere what is this rank's own: torchrun ends the others at once."""
        known = said.echo or said.code == BAD_INPUT
        return said.code if rank and known else tell_all({rank: said}, size)

    return _guarded(options, stop, join, local, tell_of)


def _join(options: TrainOptions, world: MPI.Intracomm, node: MPI.Intracomm) -> Group:
    _check_size(options, world.size)
    if options.reduce != "torch" or world.size == 1:
        return Group.form(world, range(world.size), _TAG)
    return Group.over(torch_world.transport_of_world(world, node.size == world.size))


def _place(options: TrainOptions, group: Group, local: int) -> torch.device:
    """This member's device; all members have one of their own, or all share the CPUs. TrainError."""
    device = _agreed(group, lambda: own_device(options.device, local))
    compute_near(group, device)
    check_places(group, device, options)
    why = why_not(device) if options.reduce == "device" else ""
    if why:
        raise TrainError(ON_DEVICES.format(why=why))
    return device


def _check_size(options: TrainOptions, size: int) -> None:
    if options.trainers not in (None, size):
        raise TrainError(f"--trainers {options.trainers}, but the launcher started {size} ranks; leave --trainers out")
    if size > options.virtual_workers:
        raise TrainError(too_many_trainers(size, options.virtual_workers))


def _guarded(
    options: TrainOptions, stop: StopFlag, join: Callable[[], Group], local: int, end: Callable[[LastWords], int]
) -> int:
    """Train; turn whatever happens into an exit code. end: tells of an error, and returns its code."""
    try:
        with join() as group:
            return _train(options, stop, group, local)
    except HorovodHangs:
        raise
    except (Exception, SystemExit) as error:
        said = LastWords.of(error)
    return end(said)


def _tell_alone(said: LastWords) -> int:
    return tell_all({0: said}, 1)


def _train(options: TrainOptions, stop: StopFlag, group: Group, local: int) -> int:
    device = _place(options, group, local)
    task = _agreed(group, lambda: _task(options))
    if options.trace is not None and is_parted(task):
        raise TrainError(f"{options.task} has a step of its own; trace-tensors follows tasks with one optimizer alone")
    compute = TracedCompute(ForwardBackward()) if options.trace is not None else None
    arithmetic = determinism.Arithmetic(options.level, Float32(**options.float32))
    _agreed(group, lambda: determinism.pin(options.threads, options.level, device, arithmetic.float32))
    determinism.check_group(group, [f"rank {rank}" for rank in group.ranks], device)
    over_horovod = options.reduce == "horovod" and group.size > 1
    if over_horovod:
        _agreed(group, load_horovod)
    communicators = Communicators()
    adder = horovod_sum if over_horovod else DeviceSums(communicators) if options.reduce == "device" else InOrder
    trainer = Trainer(task, options.virtual_workers, group, device, compute, arithmetic, adder)
    told: list[str] = []
    data = datasets_alike(task, group, lambda: _agreed(group, lambda: TaskDatasets(task)), told.append)
    if options.resume is not None:
        trainer.restore(_saved(options, trainer) if group.is_master else None)
    trace = _trace(options, trainer, compute)
    with TrainView(trainer.name, options.steps, stop.set) if group.is_master else _Silent() as view:
        for text in [*told, *([NOT_BIT_FOR_BIT] if over_horovod else [])]:
            view.say(text)
        job = SingleJob(trainer, data, view, stop, trace.after_step if trace else _nothing)
        with trainer.adding():
            finished = job.run(options.steps)
        trainer.settle()
        trainer.check_finite()
        group.barrier()
        communicators.end()
        if trace is not None:
            trace.close()
        _save(options, trainer, view)
        if not finished:
            where = f"; go on with --resume {options.checkpoint}" if options.checkpoint else ""
            view.say(f"stopped after step {trainer.steps} of {options.steps}{where}")
        return DONE if finished else STOPPED


def _task(options: TrainOptions) -> Any:
    task = made_task(resolve(options.task), options.made_with)
    try:
        check_task(task)
    except ValueError as error:
        raise TrainError(f"{options.task}: {error}") from error
    return task


def _saved(options: TrainOptions, trainer: Trainer) -> Checkpoint:
    """The checkpoint to go on from. Raises CheckpointError, TrainError."""
    assert options.resume is not None
    saved = read(options.resume)
    if saved.steps > options.steps:
        raise TrainError(
            f"--steps {options.steps}: {options.resume} has done {saved.steps} steps already, and steps count from the "
            f"job's first; give at least {saved.steps}, or an earlier checkpoint"
        )
    trainer.check_fit(saved)
    return saved


def _trace(options: TrainOptions, trainer: Trainer, compute: TracedCompute | None) -> GroupTrace | None:
    if options.trace is None or compute is None:
        return None
    file = TraceFile(options.trace, **options.trace_header()) if trainer.group.is_master else None
    return GroupTrace(trainer, compute, file)


def _save(options: TrainOptions, trainer: Trainer, view: Any) -> None:
    snapshot = trainer.snapshot()
    if snapshot is None or options.checkpoint is None:
        return
    try:
        saved = write(options.checkpoint, snapshot)
    except CheckpointError as error:
        raise NotKept(str(error)) from error
    view.say(f"{trainer.steps} steps, {trainer.epoch} epochs: {saved.path}, {saved.bytes / 1e6:.1f} MB")


def _agreed(group: Group, find: Callable[[], _T]) -> _T:
    """What `find` gives on this member; what a person got wrong, on any member, is every member's error."""
    said, found = "", None
    try:
        found = find()
    except MENDABLE as error:
        said = str(error)
    told = [part.decode() for part in group.gather_bytes(said.encode())]
    first = next((f"rank {rank}: {text}" if rank else text for rank, text in zip(group.ranks, told) if text), "")
    first = group.bcast_bytes(first.encode()).decode()
    if first:
        raise TrainError(first)
    return found  # type: ignore[return-value]


class _Silent:
    """The view of those that are not the master."""

    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def __call__(self, news: News) -> None:
        return

    def say(self, text: str) -> None:
        return


def _nothing() -> None:
    return
