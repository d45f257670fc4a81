"""One trainer's part in `fleet train`, alone or as one rank of several: its device, samples, training and view."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch

from fleet.commands.train_errors import MENDABLE, TOLD, LastWords, NotKept, tell_all, tell_together
from fleet.commands.train_options import (
    TrainError,
    TrainOptions,
    too_many_trainers,
    torchrun_place,
    transport_of_torchrun,
    transport_of_world,
)
from fleet.machine.binding import RankFacts, check_binding, from_mapping, own_facts
from fleet.machine.cluster_map import Place
from fleet.machine.devices import ON_DEVICES, NoSuchDevice, cores_near, device_of, settle_cores
from fleet.machine.horovod import NOT_BIT_FOR_BIT, load_horovod
from fleet.machine.launch.launched import (
    BAD_INPUT,
    DONE,
    FAILED,
    STOPPED,
    StopFlag,
    copy_small_messages,
    launch_folder,
    launched_by_us,
    leave,
    leave_code,
)
from fleet.machine.launch.leftovers import made_by_mpi, sweep, write_note
from fleet.machine.standard_streams import tell
from fleet.report.terminal import progress_bar
from fleet.spec.references import resolve
from preprocess.making.fingerprints import of_its_own
from preprocess.samples.fingerprint import MEND, Fingerprint
from preprocess.samples.order import HELD_OUT, TRAIN
from trainers import Checkpoint, CheckpointError, Float32, ForwardBackward, Group, Trainer, read, write
from trainers.device.device_streams import select
from trainers.job.single_job import News, SingleJob, TaskDatasets, sample_of
from trainers.messages.torch_backend import why_not
from trainers.proof.tensor_trace import GroupTrace, TracedCompute, TraceFile
from trainers.reduce.device_reduce import Communicators, DeviceReducers
from trainers.reduce.horovod import HorovodHangs, horovod_reduce
from trainers.reduce.ordered_reduce import OrderedReduce
from trainers.repeatable import determinism
from trainers.task.parts import is_parted
from trainers.task.task import Task, made_task, name_of, order_seed_of
from trainers.task.task_options import check_task

if TYPE_CHECKING:
    from mpi4py import MPI
    from rich.console import Console

    from trainers.job.single_job import News


_T = TypeVar("_T")

_TAG = 2


def train_alone(options: TrainOptions) -> int:
    """Train in this process, without MPI; return the exit code."""
    stop = StopFlag()
    stop.install()
    return _guarded(options, stop, Group.alone, 0, lambda said: tell_all({0: said}, 1))


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
    rank, size, local = torchrun_place()

    def join() -> Group:
        _check_size(options, size)
        return Group.over(transport_of_torchrun())

    def tell_of(said: LastWords) -> int:
        """Tell it on rank 0, and elsewhere what is this rank's own: torchrun ends the others at once."""
        known = said.echo or said.code == BAD_INPUT
        return said.code if rank and known else tell_all({rank: said}, size)

    return _guarded(options, stop, join, local, tell_of)


def _join(options: TrainOptions, world: MPI.Intracomm, node: MPI.Intracomm) -> Group:
    _check_size(options, world.size)
    if options.reduce != "torch" or world.size == 1:
        return Group.form(world, range(world.size), _TAG)
    return Group.over(transport_of_world(world, node.size == world.size))


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
    reducer = (
        horovod_reduce
        if over_horovod
        else DeviceReducers(communicators)
        if options.reduce == "device"
        else OrderedReduce
    )
    trainer = Trainer(task, options.virtual_workers, group, device, compute, arithmetic, reducer)
    told: list[str] = []
    data = datasets_alike(task, group, lambda: _agreed(group, lambda: TaskDatasets(task)), told.append)
    if options.resume is not None:
        trainer.restore(_saved(options, trainer) if group.is_master else None)
    trace = _trace(options, trainer, compute)
    with TrainView(trainer.name, options.steps, stop.set) if group.is_master else _Silent() as view:
        for text in [*told, *([NOT_BIT_FOR_BIT] if over_horovod else [])]:
            view.say(text)
        job = SingleJob(trainer, data, view, stop, trace.after_step if trace else lambda: None)
        with trainer.reducing():
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
    """Return what `find` gives on this member; what a person got wrong, on any member, is every member's error."""
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


def own_device(kind: str, local: int) -> torch.device:
    """The device of the `local`-th trainer of this machine, as this thread's.

    Raises:
        TrainError: there is none of this kind.
    """
    try:
        device = torch.device(device_of(kind, local))
    except NoSuchDevice as error:
        raise TrainError(f"--device {kind}: {error}") from None
    select(device)
    return device


def compute_near(group: Group, device: torch.device) -> None:
    """Let members compute on cores near their devices, as far as they have some; all members call it."""
    properties = None if device.type == "cpu" else torch.get_device_module(device).get_device_properties(device)
    mine = {
        "host": socket.gethostname(),
        "cores": sorted(os.sched_getaffinity(0)),
        "near": [] if properties is None else cores_near(properties),
    }
    told = gather_all(group, mine)
    hosts = [each["host"] for each in told]
    cores, near = ([each[name] for each in told] for name in ("cores", "near"))
    settle_cores(partial(gather_all, group), group.index, cores, near, [hosts.index(host) for host in hosts])


def gather_all(group: Group, mine: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what all members give, in their order, on each of them."""
    everything: list[dict[str, Any]] = group.bcast_tree(group.gather_trees(mine))
    return everything


def check_places(group: Group, device: torch.device, options: TrainOptions) -> None:
    """Refuse, as `fleet run` does, ranks that share a GPU, or that have none where others have. All members call it.

    Raises:
        TrainError: on every member alike.
    """
    if group.size == 1:
        return
    own = json.dumps(asdict(_facts(group.ranks[group.index], device))).encode()
    everyone = _on_nodes([from_mapping(json.loads(part)) for part in group.gather_bytes(own)])
    findings = check_binding(everyone, options.threads) if everyone else []
    refused = "\n  ".join(finding.text for finding in findings if finding.refuses)
    refused = group.bcast_bytes(refused.encode()).decode()
    if refused:
        raise TrainError(refused)


def _facts(rank: int, device: torch.device) -> RankFacts:
    cores = tuple(sorted(os.sched_getaffinity(0)))
    return own_facts(Place(rank, 0, socket.gethostname(), "trainer", rank, str(device), cores, 0, 0, None))


def _on_nodes(facts: list[RankFacts]) -> list[RankFacts]:
    """The facts of all ranks, each with the number of its node: that of its lowest rank."""
    hosts = [rank.host for rank in facts]
    return [replace(rank, node=hosts.index(rank.host)) for rank in facts]


def datasets_alike(
    task: Task, group: Group, find: Callable[[], TaskDatasets], say: Callable[[str], None]
) -> TaskDatasets:
    """Return the task's data sets, once all members have found theirs to be the same.

    A data set whose samples draw from a generator of its own is told of, and constructed anew: nothing was drawn then.

    Args:
        find: constructs them; all members call it.
        say: is told, on the master.

    Raises:
        TrainError: they are others elsewhere, or the held-out part is another one when it is constructed again.
    """
    data, job = find(), name_of(task)
    prints = _prints(task, data)
    told = _unlike_again(task, data, prints) if group.is_master else ""
    gathered = group.gather_bytes(json.dumps({kind: asdict(each) for kind, each in prints.items()}).encode())
    if group.is_master and not told:
        told = next((text for rank, each in enumerate(gathered) if (text := _unlike(prints, each, rank))), "")
    told = group.bcast_bytes(told.encode()).decode()
    if told:
        raise TrainError(f"task {job}: {told}. {MEND}")
    unsteady = [kind for kind, each in prints.items() if "" in each.digests]
    for kind in unsteady:
        say(of_its_own(f"task {job}", kind))
    return find() if group.bcast_bytes(b"1" if unsteady else b"") else data


def _prints(task: Task, data: TaskDatasets) -> dict[str, Fingerprint]:
    parts = {TRAIN: data.train, HELD_OUT: data.held_out}
    seed = order_seed_of(task)
    return {
        kind: Fingerprint.of(len(part), partial(sample_of, part), seed)
        for kind, part in parts.items()
        if part is not None and len(part)
    }


def _unlike_again(task: Task, data: TaskDatasets, prints: dict[str, Fingerprint]) -> str:
    if HELD_OUT not in prints:
        return ""
    again = data.constructed(task, False)
    unlike = prints[HELD_OUT].unlike(Fingerprint.of(len(again), partial(sample_of, again), order_seed_of(task)))
    return unlike and f"constructed a second time, the held-out part {unlike}, so held-out samples are trained on"


def _unlike(prints: dict[str, Fingerprint], said: bytes, rank: int) -> str:
    for kind, values in json.loads(said).items():
        theirs = Fingerprint(values["length"], tuple(values["numbers"]), tuple(values["digests"]))
        unlike = prints[kind].unlike(theirs, "on rank 0", f"on rank {rank}") if kind in prints else ""
        if unlike:
            return f"its {'training' if kind == TRAIN else 'held-out'} part {unlike}"
    return ""


class TrainView:
    """Shows news of a job of `steps` steps. A context: the bar goes away at its end.

    unread: called when the terminal, or the reader of a pipe, is gone; nothing is shown from then on.
    """

    def __init__(self, name: str, steps: int, unread: Callable[[], None]) -> None:
        self._console, self._unread = _console(), unread
        self._steps = steps
        self._bar = progress_bar(self._console)
        self._task = self._bar.add_task(name, total=steps, note="")

    def __enter__(self) -> TrainView:
        with self._showing():
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        with self._showing():
            self._bar.stop()

    def __call__(self, news: News) -> None:
        """Show where the job stands, or what an epoch came to."""
        from trainers.job.single_job import EpochDone

        if isinstance(news, EpochDone):
            self._bar.update(self._task, completed=news.steps)
            self.say(f"epoch {news.epoch} done at step {news.steps}: {_metrics(news.metrics)}")
            return
        note = f"epoch {news.epoch + 1}, loss {news.loss:.4g}, {news.rate:.4g} samples/s"
        self._bar.update(self._task, completed=news.steps, note=note)
        if self._bar.disable:
            self.say(f"step {news.steps} of {self._steps}: {note}")

    def say(self, text: str) -> None:
        """Print a line, above the bar if there is one."""
        with self._showing():
            self._console.print(text, soft_wrap=True, markup=False, highlight=False)

    @contextmanager
    def _showing(self) -> Iterator[None]:
        try:
            yield
        except (OSError, SystemExit):  # what rich raises where a pipe has no reader
            self._console.quiet = True
            self._unread()


def _metrics(metrics: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in metrics.items()) or "no metrics"


def _console() -> Console:
    """Standard output. Only the process that started ranks knows whether it is a terminal."""
    from rich.console import Console

    from fleet.session.console import rank_console

    return rank_console() if launched_by_us() else Console()
