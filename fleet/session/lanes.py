"""Which lane a job reads, and how large the node's ring must be for all of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from fleet.coordination.open_lanes import StreamPlace
from fleet.machine.cluster_map import ClusterMap
from fleet.session.search.first_trials import largest_trial_batch, trials_at_once
from fleet.spec import Job
from fleet.spec.job import data_key
from fleet.workers.preprocessor_rank import divides
from fleet.workers.rank import Rank
from fleet.workers.runtime import Runtime
from preprocess.ring.lane_memory import bytes_needed, lane_bytes
from preprocess.ring.shared_memory import window_bytes
from preprocess.samples.stream import LaneSchedule, LaneSpec, StreamKey
from trainers import BatchPlan

SPARE_LANES = 4  # for jobs that are added while all others still train
MOST_FOLLOWING = 64 << 20  # bytes of lanes for jobs that are told to follow others, where there are more than devices
AHEAD, PART_AHEAD = 1024, 16
"""So many samples may lie ready for the foremost reader, or this part of the ring where that is more: the rest is for
readers that fall back. What is made and not read is lost when a lane closes.
"""
SHARE = 0.25  # of a node's free shared memory: lanes that would take more together are made shorter


@dataclass(frozen=True)
class RingPlan:
    """The dimensions of every node's ring.

    Attributes:
        lanes: as many groups as there can be at once, a few jobs that are added counted, and one that is closing; twice
            as many where samples are small and jobs follow one another.
        samples: samples of one lane; at least two steps of the job with the largest global batch, and no more than all
            lanes together have room for.
        lane_bytes: bytes of one lane, for the data set with the largest samples.
        slot_samples: samples of a slot.
        writers: preprocessors, and trainers that prepare samples at the same time.
        ahead: samples of a lane that may lie ready for its foremost reader.
        makers: how many of the writers can fill one lane: all, or so many as its memory has room for.
    """

    lanes: int
    samples: int
    lane_bytes: int
    slot_samples: int
    writers: int
    ahead: int
    makers: int

    def node_bytes(self, ranks: int) -> int:
        """Shared memory of a node with so many ranks."""
        shape = self.lanes, self.lane_bytes, self.slot_samples, ranks, self.writers, self.makers
        return window_bytes(bytes_needed(*shape))


def ring_of(runtime: Runtime, cluster: ClusterMap) -> RingPlan:
    """Size the rings for the runtime's jobs and data, within what the nodes of a cluster have for them."""
    room = int(SHARE * min(place.shared_bytes for place in cluster.places))
    return ring_plan(runtime, len(cluster.trainers), len(cluster.preprocessors), room)


def ring_plan(runtime: Runtime, trainers: int, preprocessors: int, room: int | None = None) -> RingPlan:
    """Size the rings for the runtime's jobs and data.

    Args:
        room: bytes of shared memory on each node that all lanes may take: where they would take more they are made
            shorter, down to two steps of the largest batch and two slots of each maker, and if that is not enough fewer
            preprocessors fill one; None: not known.
    """
    resources = runtime.spec.resources
    writers = preprocessors + min(resources.preparing_trainers, trainers - 1)
    largest = max([largest_trial_batch(runtime.spec), *(largest_batch(job) for job in runtime.spec.jobs)])
    needed = 2 * largest + resources.slot_samples
    groups = len(runtime.spec.jobs) + trials_at_once(runtime.spec) + SPARE_LANES
    lanes = min(trainers, groups) + 1

    def bytes_of(samples: int, makers: int) -> int:
        return max(lane_bytes(f.layout, samples, resources.slot_samples, makers) for f in runtime.facts.values())

    samples, makers = max(resources.ring_samples, needed), writers
    if room is not None:
        while makers > 1 and lanes * bytes_of(needed, makers) > room:  # each maker has two slots at least
            makers //= 2
        if (taken := lanes * bytes_of(samples, makers)) > room:
            samples = max(needed, samples * room // taken)
        while samples > needed and lanes * bytes_of(samples, makers) > room:  # a lane has whole slots of each maker
            samples = max(needed, samples - resources.slot_samples)
    size = bytes_of(samples, makers)
    following = lanes if len(runtime.spec.jobs) > trainers and lanes * size <= MOST_FOLLOWING else 0
    ahead = min(samples, max(AHEAD, needed, samples // PART_AHEAD))
    return RingPlan(lanes + following, samples, size, resources.slot_samples, writers, ahead, makers)


def largest_batch(job: Job) -> int:
    """The most samples that the job takes at once, in a step or as it is evaluated."""
    step = job.global_batch if job.batches is None else max(job.global_batch, job.batches[1])
    return max(step, job.evaluation_batch_size or 0)


class LaneBook:
    """Says where a job's samples lie, and makes the lanes that carry them.

    Args:
        rank: whose runtime tells of jobs and data.
        ring: the plan of every node's.
        awaited_from: tells the first epoch of a stream that others than these jobs read, see `AwaitedEpochs`.
    """

    def __init__(
        self, rank: Rank, ring: RingPlan, awaited_from: Callable[[StreamKey, Collection[str]], int | None]
    ) -> None:
        self._rank, self._ring, self._awaited_from = rank, ring, awaited_from
        self._generation = 0

    def place_of(self, job: str, epoch: int, step: int) -> StreamPlace:
        """Where the samples of the job's next step lie."""
        spec, plan = self._rank.runtime.job(job), self._rank.runtime.plan(job)
        number = _samples_before(plan, step)
        own = self._rank.runtime.own_order(job) if number else None
        if own is None:
            place = number
        elif number < plan.padded:
            place = int(own.padded_places(epoch, plan.padded)[number])
        else:
            place = own.length
        return StreamPlace(StreamKey(data_key(spec), spec.order_seed, epoch), place)

    def lane(
        self, number: int, first: StreamPlace, jobs: Mapping[str, int | None], readers: tuple[int, ...]
    ) -> LaneSpec:
        """The opening of lane `number` that begins at `first` and ends with the last epoch that a job may read."""
        facts = self._rank.runtime.facts[first.key.data]
        tail = max(self._tail(job, first.key.epoch) for job in jobs)
        last = max(until or self._rank.runtime.job(job).stop.epochs for job, until in jobs.items()) - 1
        last = max(last, first.key.epoch)
        schedule = LaneSchedule(facts.samples, tail, facts.held_out, first.key.epoch, first.place, last)
        self._generation += 1
        spec = LaneSpec(
            number, self._generation, first.key, schedule, facts.layout, self._by_node(readers), self._ring.samples
        )
        all_fill = self._ring.makers == self._ring.writers
        divided = all_fill and divides(self._rank.runtime, first.key.data, self._ring.writers)
        awaited = self._awaited_from(first.key, jobs)
        return replace(spec, divided=divided, blocks=facts.blocks, ahead=self._ring.ahead, awaited_from=awaited)

    def samples_between(self, job: str, begin: tuple[int, int], end: tuple[int, int]) -> int:
        """How many samples the job reads from one (epoch, step) to another; the head that pads epochs counts again."""
        plan = self._rank.runtime.plan(job)
        epochs = (end[0] - begin[0]) * (plan.taken + self._rank.runtime.held_out_of(job))
        before = (min(_samples_before(plan, step), plan.taken) for _, step in (begin, end))
        return epochs - next(before) + next(before)

    def _tail(self, job: str, epoch: int) -> int:
        """How far an epoch must reach into its order again for the job; one with a part of its own keeps the samples
        that it needs again, but may first come in the midst of this epoch.
        """
        plan, own = self._rank.runtime.plan(job), self._rank.runtime.own_order(job)
        return plan.padded - plan.samples if own is None else own.tail(epoch, plan.padded)

    def _by_node(self, readers: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
        """Readers by the number of their node, each by its rank in the node's communicator."""
        cluster = self._rank.cluster
        found: dict[int, list[int]] = {}
        for rank in sorted(readers):
            node = cluster.places[rank].node
            found.setdefault(cluster.number_of(node), []).append(cluster.ranks_of(node).index(rank))
        return {number: tuple(ranks) for number, ranks in sorted(found.items())}


def _samples_before(plan: BatchPlan, step: int) -> int:
    """Training samples of an epoch before one of its steps; all, where only the held-out ones are left."""
    return plan.step_range(step).start if step < plan.steps_per_epoch else plan.padded
