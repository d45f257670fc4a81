"""`fleet train`, `trace-tensors` and `replay`: one job, from a task class or of a run, elastic or under stock DDP."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleet.commands.arguments import RunFolder, Trust
from fleet.commands.compare import compare_states_of
from fleet.commands.entry import mendable
from fleet.commands.train_options import TrainError, TrainOptions, inside_torchrun
from fleet.machine.launch.launched import BAD_INPUT, DONE, STOPPED, StopFlag, inside_launcher
from fleet.machine.launch.local_launch import LaunchError, LocalLaunch
from fleet.machine.standard_streams import tell
from fleet.report.terminal import terminal_size
from fleet.spec.references import ReferenceProblem, importable, resolve

if TYPE_CHECKING:
    from fleet.models.replay import ReplayedJob
    from trainers.proof.tensor_trace import TensorHash


TaskArgument = Annotated[
    str, typer.Argument(help="the task's class, module:Name", metavar="MODULE:TASK", show_default=False)
]
VirtualWorkers = Annotated[int, typer.Option(help="virtual workers of the job", show_default=False)]
Steps = Annotated[
    int, typer.Option(help="steps done at the end, counted from the job's first step", show_default=False)
]
TrainerCount = Annotated[int | None, typer.Option(help="processes; default: as many as there are devices, at most N")]
Resume = Annotated[Path | None, typer.Option(help="the checkpoint to go on from, made on any number of trainers")]
DeterminismLevel = Annotated[str, typer.Option(help="D0, D1 or D2")]
Ddp = Annotated[bool, typer.Option("--ddp", help="train under stock DDP over gloo instead, a process for each worker")]
Reduce = Annotated[
    str,
    typer.Option(
        help="what carries gradients between trainers: mpi, torch, device (from GPU to GPU), horovod",
        callback=lambda name: "device" if name == "nccl" else name,  # its older name
    ),
]
Threads = Annotated[int, typer.Option(help="CPU threads of each process; results depend on it")]
Device = Annotated[str, typer.Option(help="auto, cpu, or torch's name of a kind: cuda, xpu")]
InstructionSetName = Annotated[
    str, typer.Option(help="for D2 on CPUs: avx2, or sse4 where some machines have no AVX2", metavar="NAME")
]
Matmul = Annotated[str, typer.Option(help="in what GPUs multiply matrices: ieee or tf32; CPUs have no choice")]
Convolutions = Annotated[str, typer.Option(help="the same for convolutions and recurrent layers: tf32 or ieee")]


def train(
    task: TaskArgument,
    virtual_workers: VirtualWorkers,
    steps: Steps,
    checkpoint: Annotated[Path, typer.Option(help="where the job's state goes", show_default=False)],
    trainers: TrainerCount = None,
    resume: Resume = None,
    determinism: DeterminismLevel = "D1",
    ddp: Ddp = False,
    reduce: Reduce = "mpi",
    threads: Threads = 1,
    device: Device = "auto",
    instruction_set: InstructionSetName = "avx2",
    matmul: Matmul = "ieee",
    convolutions: Convolutions = "tf32",
) -> None:
    """Train one job from a task class, with the bits of stock DDP on any number of trainers.

    With --reduce horovod, weights agree with stock DDP's within rounding, and not bit for bit.

    Starts local MPI ranks if it takes more than one trainer, or joins those that mpirun, srun or jsrun started.
    """
    options = TrainOptions(
        task,
        virtual_workers,
        steps,
        trainers,
        checkpoint,
        resume,
        determinism,
        ddp,
        reduce,
        threads,
        device,
        instruction_set,
        None,
        matmul,
        convolutions,
    )
    sys.exit(run_job(options))


def run_job(options: TrainOptions) -> int:
    """Train as the options say; return the exit code."""
    from trainers.repeatable.instruction_sets import InstructionSetError, PinsTooLate
    from trainers.state.checkpoint import CheckpointError

    try:
        options.check()
        with importable([Path.cwd()]):
            _check_task(options.task, options.made_with)
            if "D2" in options.level:
                from trainers.repeatable.instruction_sets import restart

                restart(options.instruction_set, options.threads)
            return _run(options)
    except (TrainError, ReferenceProblem, LaunchError, InstructionSetError, PinsTooLate, CheckpointError) as error:
        tell(str(error))
        return BAD_INPUT


def _run(options: TrainOptions) -> int:
    if options.ddp:
        return _train_with_ddp(options)
    if inside_launcher():
        from fleet.commands.train_rank import train_in_world

        return train_in_world(options)
    if options.reduce != "mpi" and inside_torchrun():
        from fleet.commands.train_rank import train_in_torchrun

        return train_in_torchrun(options)
    trainers = options.trainers or _devices(options)
    if trainers > 1:
        return LocalLaunch(trainers, options.arguments(trainers), terminal_size()).run()
    from fleet.commands.train_rank import train_alone

    return train_alone(options)


def _devices(options: TrainOptions) -> int:
    from fleet.machine.devices import local_trainers

    return min(local_trainers(options.device), options.virtual_workers)


def _check_task(reference: str, made_with: Mapping[str, str]) -> None:
    """Find the class, and what it must have, before any rank starts."""
    from trainers.task.task_options import needed_by

    found = resolve(reference)
    needed = ("model", *needed_by(found), "dataset")
    missing = [name for name in needed if not callable(getattr(found, name, None))]
    if not callable(found) or missing:
        raise TrainError(
            f"{reference} is no task: it has no {', no '.join(missing) or 'way to be called'}; a task is a class with "
            "the methods model(self), optimizer(self, model) and dataset(self, train), or, for several optimizers, "
            "optimizers(self, model) and step(self, model, batch) in place of the second"
        )
    try:
        signature(found).bind(**made_with)
    except TypeError as error:
        raise TrainError(
            f"{reference} cannot be made: {error}; a task is made without arguments, so give each one a default"
        ) from None
    except ValueError:  # some builtins tell none
        return


def _train_with_ddp(options: TrainOptions) -> int:
    """The yardstick. What it makes has a checkpoint's form."""
    from fleet.commands.train_errors import LastWords, tell_all
    from fleet.commands.train_rank import TrainView
    from trainers.proof.ddp import DdpJob, ProcessFailed, Stopped, train_with_ddp
    from trainers.state.checkpoint import write

    if inside_launcher():
        raise TrainError("--ddp starts its own processes on this machine: call it without mpirun, srun or jsrun")
    stop = StopFlag()
    stop.install()
    job = DdpJob(
        options.task,
        options.virtual_workers,
        options.steps,
        _kind(options.device),
        options.threads,
        options.level,
        options.trace is not None,
        float32=options.float32,
        arguments=dict(options.made_with),
    )
    with TrainView("ddp", options.steps, stop.set) as view:
        try:
            state = train_with_ddp(job, view, stop, lambda events: _write_trace(options, events))
        except ProcessFailed as error:
            return tell_all({error.rank: LastWords.of_process(error)}, options.virtual_workers)
        except Stopped:
            view.say("stopped; stock DDP cannot go on with the same bits, so nothing is kept")
            return STOPPED
        if options.checkpoint is not None:
            write(options.checkpoint, state)
            view.say(f"{options.steps} steps under stock DDP: {options.checkpoint}")
    return DONE


def _kind(device: str) -> str:
    from fleet.machine.devices import NoSuchDevice, device_of

    try:
        return device_of(device, 0).partition(":")[0]
    except NoSuchDevice as error:
        raise TrainError(f"--device {device}: {error}") from None


def _write_trace(options: TrainOptions, events: Iterator[TensorHash]) -> None:
    from trainers.proof.tensor_trace import TraceFile

    assert options.trace is not None
    file = TraceFile(options.trace, **options.trace_header())
    file.add(events)
    file.close()


def trace_tensors(
    task: TaskArgument,
    virtual_workers: VirtualWorkers,
    steps: Steps,
    out: Annotated[Path, typer.Option(help="where the hashes go, as JSON lines", show_default=False)],
    trainers: TrainerCount = None,
    checkpoint: Annotated[Path | None, typer.Option(help="where the job's state goes; default: nowhere")] = None,
    resume: Resume = None,
    determinism: DeterminismLevel = "D1",
    ddp: Ddp = False,
    reduce: Reduce = "mpi",
    threads: Threads = 1,
    device: Device = "auto",
    instruction_set: InstructionSetName = "avx2",
    matmul: Matmul = "ieee",
    convolutions: Convolutions = "tf32",
) -> None:
    """Train as `fleet train` does, with the same bits, and record a hash of every module's outputs and gradients.

    `fleet compare` of two such files finds the first module that differs.
    """
    options = TrainOptions(
        task,
        virtual_workers,
        steps,
        trainers,
        checkpoint,
        resume,
        determinism,
        ddp,
        reduce,
        threads,
        device,
        instruction_set,
        out,
        matmul,
        convolutions,
    )
    sys.exit(run_job(options))


_REPLAYED_TASK = "fleet.models.replay:ReplayedTask"


def replay(
    directory: RunFolder,
    job: Annotated[str, typer.Argument(help="one of the run's jobs", metavar="JOB", show_default=False)],
    ddp: Ddp = False,
    trainers: TrainerCount = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="where the state goes; default: it is not kept", show_default=False)
    ] = None,
    trust: Trust = False,
) -> None:
    """Train a job of a run again, alone and from its first step, and compare every bit with the run's checkpoint.

    It trains up to the step of the job's newest checkpoint, on the samples of the run and with its batch.

    Exit codes: 0 if all bits agree, 1 if not, 2 if there is nothing to compare with, 75 after a signal.
    """
    from fleet.models.errors import ModelsError
    from fleet.spec import SpecError
    from fleet.workers.agreement import BadInput
    from trainers import CheckpointError

    with (
        mendable(BadInput, ModelsError, SpecError, CheckpointError),
        tempfile.TemporaryDirectory(prefix="fleet-replay-") as folder,
    ):
        sys.exit(_replay(directory, job, ddp, trainers, checkpoint or Path(folder) / "replayed.h5", trust))


def _replay(directory: Path, name: str, ddp: bool, trainers: int | None, target: Path, trust: bool) -> int:
    from fleet.models.recorded_spec import check_trusted
    from fleet.models.replay import ReplayedJob, newest_checkpoint

    check_trusted(directory, trust)
    recorded = ReplayedJob.read(directory, name)
    newest, steps = newest_checkpoint(recorded)
    if not inside_launcher():
        for change in recorded.unlike:
            tell(f"job {name}: {change}; a replay trains all of it on what is there now, and may come to other bits")
    code = run_job(_replay_options(recorded, steps, ddp, trainers, target, trust))
    if code != DONE or inside_launcher():
        return code
    return compare_states_of(newest, target)


def _replay_options(
    recorded: ReplayedJob, steps: int, ddp: bool, trainers: int | None, target: Path, trust: bool
) -> TrainOptions:
    """As `fleet train` would be told all that the run's spec says."""
    spec, job = recorded.spec, recorded.job
    asked, directory = spec.determinism, str(recorded.directory.path.absolute())
    words = ("replay", *(["--trust"] if trust else []), directory, job.name)
    return TrainOptions(
        _REPLAYED_TASK,
        job.virtual_workers,
        steps,
        trainers,
        target.absolute(),
        None,
        asked.level,
        ddp,
        threads=spec.resources.threads,
        device=spec.resources.device,
        instruction_set=asked.instruction_set,
        matmul=asked.matmul,
        convolutions=asked.convolutions,
        made_with={"directory": directory, "job": job.name},
        command=words,
    )
