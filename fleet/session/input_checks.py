"""Everything that can be wrong with a run before anything of it is begun."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fleet.machine.cluster_map import ClusterMap
from fleet.profiling.batch_sizing import SizeByBatch, size_by_batch
from fleet.profiling.sizing import Size
from fleet.report.wording import readable_bytes
from fleet.search.of_spec import search_problems
from fleet.session.devices_to_plan import devices_to_plan
from fleet.session.lanes import RingPlan, ring_of
from fleet.session.last_batches import last_batch_problems
from fleet.session.lending_checks import check_lending, lending_problems
from fleet.session.memory_checks import Room, memory_problem
from fleet.session.metric_trial import BatchTrials
from fleet.session.mixed_kinds import mixes_kinds
from fleet.session.priced_devices import prices_of
from fleet.spec import EnsembleSpec, Job, Problem, SpecError, check
from fleet.spec.problem import in_order
from fleet.spec.subsets import part_problems
from fleet.spec.trials import most_workers
from fleet.workers.agreement import BadInput
from fleet.workers.runtime import KnownSizes, Runtime
from trainers.device.memory import share_of


def check_input(
    runtime: Runtime, cluster: ClusterMap, trials: BatchTrials, known: KnownSizes | None = None
) -> dict[str, Size]:
    """Check the spec against its data and the machine; returns the jobs' sizes.

    Args:
        known: where sizes that are found are kept.

    Raises:
        SpecError, BadInput: with all that is wrong with the spec, or the first thing that the machine cannot carry.
    """
    spec = runtime.spec
    check_against_data(runtime, trials)
    _check_trainers(spec, cluster)
    check_minimum(runtime, cluster)
    check_lending(runtime, cluster)
    prices_of(spec, cluster)
    sizes = least_sizes(runtime, known)
    check_memory(spec, cluster, sizes)
    _check_shared_memory(spec, cluster, ring_of(runtime, cluster))
    return sizes


def check_against_data(runtime: Runtime, trials: BatchTrials) -> None:
    """Check the spec with its data, which are open, and try metrics and losses; SpecError with all that is wrong."""
    problems = (
        *check(runtime.spec, lengths_of(runtime)), *search_problems(runtime.spec), *_own_data_problems(runtime),
        *lending_problems(runtime),
    )  # fmt: skip
    problems = problems or tuple(last_batch_problems(runtime)) or tuple(trials.problems(runtime))
    if problems:
        raise SpecError(in_order(problems))


def lengths_of(runtime: Runtime) -> dict[str, tuple[int, int | None]]:
    """Samples of each data set, by data key: to train on, and held out, where there are any."""
    return {key: (facts.samples, facts.held_out or None) for key, facts in runtime.facts.items()}


def _own_data_problems(runtime: Runtime) -> Iterator[Problem]:
    """What is wrong with parts of data sets that tasks bring along, whose lengths the spec alone does not tell."""
    for position, job in enumerate(runtime.spec.jobs):
        if job.data is None:
            yield from part_problems(runtime.spec, position, runtime.data_of(job.name).samples)


def _check_trainers(spec: EnsembleSpec, cluster: ClusterMap) -> None:
    trainers, workers = len(cluster.trainers), most_workers(spec)
    if trainers > workers:
        raise BadInput(
            f"{trainers} trainers are more than the {workers} virtual workers of all jobs together: "
            f"{trainers - workers} could never work; start at most {workers} trainers, "
            "or give jobs more virtual_workers"
        )


def check_minimum(runtime: Runtime, cluster: ClusterMap) -> None:
    """Raise SpecError with all jobs that could never have as many devices as they need or are promised."""
    found = [
        problem
        for position, job in enumerate(runtime.spec.jobs)
        for problem in _shortages(position, job, runtime, cluster)
    ]
    if found:
        raise SpecError(tuple(found))


def _shortages(position: int, job: Job, runtime: Runtime, cluster: ClusterMap) -> Iterator[Problem]:
    origins, more = runtime.spec.origins, "or start the run with more trainers"
    short = minimum_problem(job, runtime, cluster)
    if short is not None:
        rule, most = short
        path = ("jobs", position, "minimum_devices")
        yield origins.problem(path, job.minimum_devices, rule, str(most), f"set it to at most {most}, {more}")
    lacking = service_problem(job, runtime, cluster)
    if job.service_level is not None and lacking is not None:
        path, (rule, most) = ("jobs", position, "service_level"), lacking
        mend = f"set its devices to at most {most}, {more}"
        yield origins.problem(path, job.service_level.model_dump(), rule, str(most), mend)


def minimum_problem(job: Job, runtime: Runtime, cluster: ClusterMap) -> tuple[str, int] | None:
    """Why the job could never have as many devices as it needs, and the most that it can have; None: it can."""
    return _short_of(job.minimum_devices, job, runtime, cluster)


def service_problem(job: Job, runtime: Runtime, cluster: ClusterMap) -> tuple[str, int] | None:
    """The same of the devices that its service level promises it."""
    return None if job.service_level is None else _short_of(job.service_level.devices, job, runtime, cluster)


def _short_of(devices: float, job: Job, runtime: Runtime, cluster: ClusterMap) -> tuple[str, int] | None:
    if devices <= 1:
        return None
    counts = devices_to_plan(cluster).counts()
    mixed, _ = mixes_kinds(runtime, cluster, job.name)
    most = sum(counts.values()) if mixed else max(counts.values())
    if devices <= most:
        return None
    if len(counts) > 1 and not mixed:
        there = ", ".join(f"{count} of kind {kind}" for kind, count in counts.items())
        return f"it trains on devices of one kind, and there are {there}", most
    return f"there are {most} trainers", most


def least_sizes(runtime: Runtime, known: KnownSizes | None = None) -> dict[str, Size]:
    """All jobs' needs, see `least_size`; those that differ in nothing on which these depend are sized once."""
    known = known or KnownSizes()
    return {job.name: least_size(runtime, job, known) for job in runtime.spec.jobs}


def least_size(runtime: Runtime, job: Job, known: KnownSizes | None = None) -> Size:
    """A job's needs; with a batch that is yet to be chosen, those of the smallest one."""
    if job.largest_batch is not None:
        return grown_size(runtime, job.name).at(1)
    return (known or KnownSizes()).of(runtime, job.name)


def grown_size(runtime: Runtime, job: str) -> SizeByBatch:
    """A job's needs by its batch."""
    layout = runtime.data_of(job).layout
    return size_by_batch(lambda size: runtime.with_batch(job, size).task(job), layout)


def check_memory(spec: EnsembleSpec, cluster: ClusterMap, sizes: Mapping[str, Size]) -> None:
    """Raise BadInput if a job does not fit a device or its host, or the largest do not fit a host together."""
    workers = {job.name: job.virtual_workers for job in spec.jobs}
    for room in rooms_of(spec, cluster):
        found = memory_problem(sizes, workers, room)
        if found is not None:
            raise BadInput(found.text)


def rooms_of(spec: EnsembleSpec, cluster: ClusterMap) -> Sequence[Room]:
    """The nodes that have trainers, as jobs have to fit them."""
    limit, rooms = spec.resources.memory_gib, []
    for node in cluster.nodes:
        trainers = [place for place in cluster.trainers if place.node == node]
        if not trainers:
            continue
        host = trainers[0].node_bytes if limit is None else int(limit * 2**30)
        device, members = trainers[0].device_bytes, cluster.members
        own = None if device is None else device * share_of(members)
        rooms.append(Room(len(trainers), host, own, members))
    return rooms


def _check_shared_memory(spec: EnsembleSpec, cluster: ClusterMap, ring: RingPlan) -> None:
    problem = ring_problem(spec, cluster, ring)
    if problem is not None:
        raise BadInput(problem)


def ring_problem(spec: EnsembleSpec, cluster: ClusterMap, ring: RingPlan) -> str | None:
    """Why a node cannot have such a ring; None: all can."""
    for node in cluster.nodes:
        ranks = cluster.ranks_of(node)
        place = cluster.places[ranks[0]]
        needed = ring.node_bytes(len(ranks))
        if needed > place.shared_bytes:
            return (
                f"the rings need {readable_bytes(needed)} of shared memory on {place.host}, and /dev/shm has "
                f"{readable_bytes(place.shared_bytes)} free: {ring.lanes} lanes of {ring.samples} samples; lower "
                f"resources.ring_samples (now {spec.resources.ring_samples}) or resources.trainers, "
                "or give the node more "
                "(a container: --shm-size; as root: mount -o remount,size=... /dev/shm)"
            )
    return None
