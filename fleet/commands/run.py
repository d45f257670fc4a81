"""`fleet run`, `profile` and `extend`: this process joins ranks that a launcher started, or starts local ones."""

from __future__ import annotations

import sys
import traceback
from math import ceil
from pathlib import Path
from typing import Annotated

import typer

from fleet.commands.arguments import (
    AcceptChanges,
    ClusterShape,
    PolicyName,
    Preprocessors,
    RunFolder,
    Settings,
    SpecFile,
    Trainers,
    Trust,
    changes_of,
    cluster_shape,
)
from fleet.commands.entry import mendable
from fleet.journal.whole_files import ENSEMBLE_NAME
from fleet.machine.launch.launched import ABORTED, FAILED, QuickEnd, StopFlag, inside_launcher, leave_first, loading
from fleet.machine.standard_streams import tell
from fleet.session.options import ExtendOrder, ProfileOrder, RunOptions
from fleet.spec.resources import Resources

_Out = Annotated[Path | None, typer.Option(help="the run directory; default: runs/NAME. A run that it holds goes on")]
_Rehearse = Annotated[
    bool, typer.Option("--rehearse", help="replace each device's compute by a wait taken from rate curves")
]
_TimeScale = Annotated[float | None, typer.Option(help="seconds that a rehearsal takes for one second of a real run")]
_Restarts = Annotated[
    int, typer.Option(min=0, help="starts in a row after ranks were lost, without a new checkpoint between")
]
_InPlace = Annotated[bool, typer.Option(help="let the others go on when a trainer is lost, where MPI can: Open MPI 5")]
_Reduce = Annotated[
    str | None,
    typer.Option(
        help="what adds gradients: device or mpi, in the order of DDP, on accelerators or on hosts; or horovod, whose "
        "bits are its own; default: device where accelerators can send to each other, else mpi"
    ),
]

_Folder = Annotated[
    Path | None, typer.Option(help="where the spec's modules and relative paths are looked for; default: beside it")
]


def run(
    spec: SpecFile,
    out: _Out = None,
    trainers: Trainers = None,
    preprocessors: Preprocessors = None,
    policy: PolicyName = None,
    settings: Settings = None,
    rehearse: _Rehearse = False,
    cluster: ClusterShape = None,
    time_scale: _TimeScale = None,
    restarts: _Restarts = 3,
    in_place: _InPlace = True,
    reduce: _Reduce = None,
    folder: _Folder = None,
    accept_changes: AcceptChanges = False,
) -> None:
    """Train the ensemble; go on with it if the run directory holds it already.

    Starts local MPI ranks, or joins those that mpirun, srun or jsrun started. Exit codes: 0 done, 1 something failed,
    2 bad input, 70 ranks were lost, 75 stopped early on purpose (after both, run the same command again).
    """
    with mendable():
        shape = cluster_shape(cluster)
        if shape is not None and not rehearse:
            raise ValueError("--cluster pretends nodes, which only a rehearsal can: add --rehearse")
    if shape is not None and trainers is None:
        trainers = sum(shape)
    changes = changes_of(trainers, preprocessors, policy, settings)
    if time_scale is not None:
        changes = (*changes, f"rehearse.time_scale={time_scale}")
    options = RunOptions(spec, changes, out, rehearse, shape, reduce=reduce, beside=folder, accept=accept_changes)
    sys.exit(run_on_ranks(options, restarts, in_place and reduce != "horovod"))  # Horovod needs all it was started with


def profile(
    spec: SpecFile,
    out: Annotated[Path, typer.Option(help="where the rates are written", show_default=False)],
    trainers: Trainers = None,
    preprocessors: Preprocessors = None,
    settings: Settings = None,
    part: Annotated[
        str | None, typer.Option(help="measure only the I-th of K parts of the jobs, for job arrays", metavar="I/K")
    ] = None,
) -> None:
    """Offline profiling run: measure how fast each job trains on how many devices, and write the rates to a file."""
    with mendable():
        numbered = part_of_jobs(part)
    changes = changes_of(trainers, preprocessors, None, settings)
    sys.exit(run_on_ranks(RunOptions(spec, changes, profile=ProfileOrder(out, numbered))))


def part_of_jobs(text: str | None) -> tuple[int, int] | None:
    """`2/4` is the second of four parts."""
    if text is None:
        return None
    number, _, parts = text.partition("/")
    if not (number.isdigit() and parts.isdigit() and 1 <= int(number) <= int(parts)):
        raise ValueError(f"--part {text}: write I/K, such as 2/4 for the second of four parts")
    return int(number), int(parts)


_Job = Annotated[str, typer.Argument(help="one of the run's jobs", metavar="JOB", show_default=False)]
_Epochs = Annotated[int, typer.Option(min=1, help="after so many epochs, from its first, it ends", show_default=False)]
_OnlyEpochs = Annotated[bool, typer.Option("--only-epochs", help="its target and its patience count no more")]


def extend(
    directory: RunFolder,
    job: _Job,
    epochs: _Epochs,
    only_epochs: _OnlyEpochs = False,
    trainers: Trainers = None,
    preprocessors: Preprocessors = None,
    settings: Settings = None,
    trust: Trust = False,
    accept_changes: AcceptChanges = False,
) -> None:
    """Go on with a run in which a job trains until more epochs: with the bits of a run that was longer from the start.

    What else of the run is not done goes on, too. Starts local MPI ranks, or joins those that mpirun, srun or jsrun
    started. A schedule of a fixed length is refused. Exit codes: those of `fleet run`.
    """
    changes = changes_of(trainers, preprocessors, None, settings)
    order = ExtendOrder(job, epochs, only_epochs, trust)
    options = RunOptions(directory / ENSEMBLE_NAME, changes, directory, extend=order, accept=accept_changes)
    sys.exit(run_on_ranks(options, restarts=3, in_place=True))


def run_on_ranks(options: RunOptions, restarts: int = 0, in_place: bool = False) -> int:
    """Run what the options ask for; return the exit code.

    Args:
        restarts: starts in a row without a new checkpoint between, after ranks were lost.
        in_place: let the others go on when a trainer is lost, where this MPI can.
    """
    with mendable():
        options.check()
    return _join(options) if inside_launcher() else _start(options, restarts, in_place)


def _join(options: RunOptions) -> int:
    end, stop = QuickEnd(), StopFlag()
    stop.install()  # what follows takes seconds, in which a signal would kill this rank
    from fleet.session.options import pin_rank

    with mendable():
        pin_rank(options)
    with loading():
        from fleet.session.main import run_rank

    try:
        return end.with_code(run_rank(options, stop))
    except ImportError:  # of a library, before MPI has started: the others will fare no better
        traceback.print_exc()
        leave_first(ABORTED, FAILED)
        return FAILED


def _start(options: RunOptions, restarts: int, in_place: bool) -> int:
    """Check what can be checked without ranks, then start them."""
    from fleet.journal.directory import RunDirectory
    from fleet.machine.launch.local_launch import LaunchError, LocalLaunch, Restarts
    from fleet.report.terminal import terminal_size
    from fleet.session.options import variables_of

    with mendable():
        spec = options.load()
        _check_extension(options)
        variables = variables_of(spec)
    trainers = _trainers(options, spec.resources)
    ranks = trainers + spec.resources.preprocessors
    with mendable(LaunchError):
        again = Restarts(restarts, RunDirectory(options.directory(spec)).progress)
        launch = LocalLaunch(ranks, options.arguments(trainers), terminal_size(), variables, again, in_place)
    return launch.run()


def _check_extension(options: RunOptions) -> None:
    """See whether a job can be extended, if that is asked for: only then is torch needed, which takes a second."""
    if options.extend is not None:
        from fleet.session.whole_spec import check_extension

        check_extension(options)


def _trainers(options: RunOptions, resources: Resources) -> int:
    """Count the trainers to start: those that the command asks for; of a spec's, no more than the GPUs here take.

    A spec comes from other machines, and no result depends on how many there are.
    """
    from fleet.machine.devices import local_trainers, trainers_on_gpus

    device, members = resources.device, resources.members_per_device
    if resources.trainers is None:
        return local_trainers(device, members)
    most = None if options.rehearse or options.sets_trainers else trainers_on_gpus(device, members)
    if most is None or resources.trainers <= most:
        return resources.trainers
    sharing = ceil(resources.trainers * members / most)
    tell(
        f"this machine's GPUs take {most} of the spec's {resources.trainers} trainers: so many are started, which "
        f"changes no result; --set resources.members_per_device={sharing} lets them share GPUs"
    )
    return most
