"""One rank's part in a run, from MPI's start to its exit code."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from fleet.coordination.failures import lost_ranks
from fleet.journal.directory import RunDirectory
from fleet.machine.cluster_map import COORDINATOR, discover
from fleet.machine.launch.launched import StopFlag, copy_small_messages, launch_folder, leave, loading, tell_up
from fleet.machine.launch.leftovers import made_by_mpi, sweep, write_note
from fleet.machine.standard_streams import tell
from fleet.session.opening.libraries import chosen_reduction, warm_up
from fleet.session.opening.opened_data import open_data
from fleet.session.opening.rank_checks import check_mpi_threads, place_warnings
from fleet.session.options import RunOptions
from fleet.spec import EnsembleSpec
from fleet.workers.agreement import THREAD_END_SECONDS, agree_on_spec, await_all, ends_all, exit_code
from fleet.workers.rank import Rank, Ties, time_limit, together
from fleet.workers.runtime import Rehearsal, Runtime
from preprocess.files.modules import at_home
from trainers.reduce.device_reduce import Communicators, DeviceReducers
from trainers.reduce.horovod import horovod_reduce
from trainers.reduce.ordered_reduce import OrderedReduce, ReducerOf
from trainers.repeatable.instruction_sets import processor

if TYPE_CHECKING:
    from mpi4py import MPI

SPEC_SECONDS = 600.0
"""In which rank 0 has read the spec: only that tells `resources.timeout`."""
SPEC_LATE = (
    f"rank 0 has not read the spec within {SPEC_SECONDS:g} s, or not every rank has come to hear it; "
    "is the file system slow, or a module that the spec names stuck?"
)


def run_rank(options: RunOptions, stop: StopFlag) -> int:
    """Take part in the run; returns the exit code. Any unexpected error ends all ranks, with its traceback.

    Args:
        stop: raised by signals already.
    """
    swept = sweep()  # before MPI starts, which needs the room
    if swept:
        tell(swept)
    copy_small_messages()
    from mpi4py import MPI

    note = write_note([*made_by_mpi(), *launch_folder()])
    late = f"rank {MPI.COMM_WORLD.rank}: not every rank has begun within {SPEC_SECONDS:g} s, one is stuck or slow"
    with time_limit(MPI.COMM_WORLD, SPEC_SECONDS, late):
        world = MPI.COMM_WORLD.Dup()
    tell_up(world.rank)
    code = exit_code(world, partial(_begin, options, world, stop))
    note.remove()
    return code


def _begin(options: RunOptions, world: MPI.Intracomm, stop: StopFlag) -> int:
    """Read the spec, and make its modules known."""
    from mpi4py import MPI

    check_mpi_threads(MPI)
    if world.rank == COORDINATOR:
        leave("pid", os.getpid())
    folder, stood = options.folder, Path.cwd()
    with time_limit(world, SPEC_SECONDS, f"rank {world.rank}: {SPEC_LATE}"):
        spec = agree_on_spec(world, partial(_read_spec, options, world.size), folder)
    with at_home(folder):  # which the options' own paths do not begin in
        return _take_part(options if Path.cwd() == stood else options.standing(stood), world, spec, stop)


def _read_spec(options: RunOptions, ranks: int) -> EnsembleSpec:
    """The spec, on rank 0: no other rank loads what reads specs, which is half of the project."""
    with loading():
        from fleet.session.opening.whole_spec import whole_spec
    return whole_spec(options, ranks)


def _take_part(options: RunOptions, world: MPI.Intracomm, spec: EnsembleSpec, stop: StopFlag) -> int:
    """Find out, with all ranks, the jobs and the devices; then play this rank's role."""
    with together(world, spec.resources.timeout, "said where it sits"):
        asked = spec.resources
        cluster = discover(
            world, asked.preprocessors, asked.device, options.pretend, asked.members_per_device, asked.kinds,
            processor(),
        )  # fmt: skip
        warnings = place_warnings(world, cluster, options, asked)
    datasets, facts, unlike = open_data(world, cluster, spec)
    warm_up(cluster.places[world.rank], cluster.members)
    with together(world, 2 * spec.resources.timeout, "tried what adds gradients"):
        options, told = chosen_reduction(world, cluster, options, spec.resources.timeout)
    rehearsal = Rehearsal(spec.rehearse.time_scale if spec.rehearse else 1.0) if options.rehearse else None
    runtime = Runtime(spec, facts, rehearsal, spec.resources.timeout)
    torch.set_num_threads(spec.resources.threads)
    with ends_all(world):  # where shared memory that was free a moment ago is not, on one node
        with together(world, spec.resources.timeout, "come to share its node's memory"):
            ties = Ties.tie(world, cluster)
        directory = RunDirectory(options.directory(spec))
        rank = Rank(directory, ties, cluster, runtime, stop, datasets, (*warnings, *unlike, *told))
        code = _play_role(rank, options)
    for thread in rank.threads:
        thread.join(THREAD_END_SECONDS)
    rank.flush()
    await_all(world, code, runtime.timeout)
    return code


def _play_role(rank: Rank, options: RunOptions) -> int:
    """Coordinate, train or make samples; returns the run's exit code. Each loads what its role takes."""
    if rank.number == COORDINATOR:
        with loading():
            from fleet.session.coordinator_rank import coordinate
        return coordinate(rank, options)
    with rank.watchdog() as watchdog:
        if not rank.cluster.places[rank.number].is_trainer:
            from fleet.workers.preprocessor_rank import PreprocessorRank

            return PreprocessorRank(rank, watchdog.moves).run()
        with loading():
            from fleet.workers.trainer_rank import TrainerRank
        communicators = Communicators(lost=partial(lost_ranks, rank.world))
        reducers: dict[str | None, ReducerOf] = {"horovod": horovod_reduce, "device": DeviceReducers(communicators)}
        reducer = reducers.get(options.reduce, OrderedReduce)
        code = TrainerRank(rank, _own_device(rank), reducer, watchdog.moves).run()
        communicators.end()
        return code


def _own_device(rank: Rank) -> torch.device:
    """The trainer's device, which `warm_up` has made the thread's."""
    return torch.device(rank.cluster.places[rank.number].device_name or "cpu")
