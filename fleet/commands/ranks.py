"""The ranks of a run: this process joins those that a launcher started, or starts local ones."""

from __future__ import annotations

import traceback
from math import ceil

from fleet.commands.ending import mendable
from fleet.machine.launch.launched import ABORTED, FAILED, QuickEnd, inside_launcher, leave_first, loading
from fleet.machine.signals import StopFlag
from fleet.machine.standard_streams import tell
from fleet.session.options import RunOptions
from fleet.spec.resources import Resources


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
