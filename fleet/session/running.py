"""The part of a session in which networks train: rings, the coordinator's hooks, and jobs that are added meanwhile."""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from fleet.coordination.coordinator import Coordinator
from fleet.coordination.executor import RunHooks
from fleet.coordination.job_record import JobRecord, Standing, settle_best
from fleet.coordination.live_executor import EnergyShares, LiveExecutor
from fleet.coordination.open_lanes import AwaitedEpochs, KeptEpochs, LaneGrouping, OpenLanes
from fleet.coordination.protocol import AddJob, MakeRing, ReadEnergy
from fleet.coordination.worker_channel import WorkerChannel
from fleet.journal import events
from fleet.journal.run_requests import AddedJobs, JobMapping, StopRequests
from fleet.journal.work_note import Death, take_deaths
from fleet.models.provenance import Fingerprints, Found, references_of
from fleet.profiling.sizing import Size
from fleet.report.journal_scan import Snapshots
from fleet.scheduling import Policy
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.policies.wrappers import Backfill, LeastLaxity, for_kinds
from fleet.session.books import record_of, stands
from fleet.session.input_checks import FittingJobs, minimum_problem, rooms_of, service_problem
from fleet.session.lanes import LaneBook, RingPlan, largest_batch, ring_of
from fleet.session.opened import SessionContext, write_job
from fleet.session.plannable_devices import devices_to_plan, prices_of
from fleet.session.rated import PROFILE_SECONDS, guess, keep_learnt
from fleet.session.search.searching import Halted
from fleet.spec import Job
from fleet.spec.digest import code_of
from fleet.spec.directions import direction_problems
from fleet.spec.job import data_key
from fleet.spec.policies import breaks_minimum, breaks_service_level
from fleet.spec.subsets import part_problems
from fleet.spec.trials import has_folds
from fleet.workers.agreement import BadInput
from fleet.workers.runtime import Runtime
from fleet.workers.watchdog import stuck_ranks, waits_for_others

_GRACE_SECONDS = 0.5  # within it, a rank that has waited in vain says for whom, before its group is called silent


@dataclass(frozen=True)
class Running(RunHooks):
    """A run whose ranks train; it is what its coordinator knows of the run around it.

    Attributes:
        session: with its books.
        executor: carries the policy's allocations out.
        newcomers: are taken in meanwhile.
        guessed: jobs that began with guessed rates, which training has told since.
        wishes: which jobs shall not go on.
        writing: writes run.json and the rates that were learnt.
        showing: writes what `fleet status` reads.
    """

    session: SessionContext
    executor: LiveExecutor
    newcomers: Newcomers
    guessed: Collection[str]
    wishes: Halted
    writing: Throttle
    showing: Throttle

    def train(self) -> None:
        """Drive the policy until the jobs are done, or a stop is asked for."""
        session = self.session
        self.save()
        silence = session.rank.runtime.timeout + _GRACE_SECONDS
        prices = prices_of(session.rank.runtime.spec, session.rank.cluster)
        policy: Policy = session.policy
        if session.searching is not None:
            policy = Backfill(LeastLaxity(for_kinds(policy, devices_to_plan(session.rank.cluster))))
        following = self.executor if session.searching is None else None
        books = session.books.keeper
        Coordinator(policy, self.executor, books, self, silence, prices=prices, following=following).run()
        if session.searching is not None:
            session.searching.settle(self.executor.save_held)
        samples = self.executor.count_samples()
        session.books.keeper.record(events.Samples(read=samples.read, laid=samples.laid, made=samples.made))
        with suppress(OSError):  # the journal has them, too
            keep_learnt(session, self.guessed)

    def stop_requested(self) -> bool:
        return self.session.walltime()

    def halted(self) -> Collection[str]:
        return self.wishes.jobs()

    def take_in(self) -> None:
        self.newcomers.take_in()
        if self.session.searching is not None:
            self.session.searching.look(self.newcomers.admit, self.executor.save_held)

    def undecided(self) -> Collection[str]:
        return self.newcomers.undecided

    def decided(self, job: str, promised: bool, why: str) -> None:
        self.newcomers.decided(job, promised, why)

    def guess(self, job: str) -> float | None:
        size = self.session.sizes.get(job)
        return None if size is None else guess(self.session, size)

    def tell_batch(self, job: str) -> None:
        self.session.books.batches.tell_of(self.session.books.ledger.jobs[job])

    def save(self) -> None:
        with suppress(OSError):  # the journal has it all, and the last run.json is written whatever happens
            self.writing()
        with suppress(OSError):  # whoever asks how the run stands reads all of the journal then
            self.showing()

    def stands(self, job: str) -> Standing:
        rank, found = self.session.rank, stands(self.session.rank, job)
        if rank.runtime.keeps_best:
            settle_best(self.session.books.keeper.record, rank.directory.checkpoints(job), job, found)
        return found

    def death(self, devices: tuple[int, ...]) -> Death | None:
        rank, lost = self.session.rank, self.session.broadcast.lost()
        gone = lost.intersection(rank.cluster.rank_of(device) for device in devices)
        deaths = take_deaths(rank.directory.at_work, gone)
        return next((death for death in deaths if death.stack), None)

    def stuck(self) -> str:
        return "".join(stuck_ranks(self.session.rank.directory.stacks).values())

    def waits(self, devices: tuple[int, ...]) -> bool:
        rank = self.session.rank
        ranks = {rank.cluster.rank_of(device) for device in devices}
        stacks = [text for number, text in stuck_ranks(rank.directory.stacks).items() if number in ranks]
        return bool(stacks) and all(map(waits_for_others, stacks))


def start(session: SessionContext, guessed: Collection[str]) -> Running:
    """Have the rings made on all nodes.

    Args:
        guessed: jobs that begin with guessed rates.
    """
    rank, broadcast = session.rank, session.broadcast
    ring = ring_of(rank.runtime, rank.cluster)
    broadcast.check_lanes(ring.lanes)
    order = MakeRing(ring.lanes, ring.lane_bytes, ring.slot_samples, ring.writers, ring.makers)
    broadcast.to_trainers(order)
    broadcast.to_preprocessors(order)
    settings = rank.runtime.spec.profile
    effort = (settings.batches, settings.timed, PROFILE_SECONDS)
    lent = ring.writers - len(rank.cluster.preprocessors)
    crew = WorkerChannel(broadcast.mailbox, rank.cluster, broadcast.failure, broadcast.lost, lent)
    ledger = session.books.ledger
    awaited = AwaitedEpochs(ledger, session.searching is not None)
    book = LaneBook(rank, ring, awaited.first)
    kept = KeptEpochs(crew, awaited) if session.searching is None else None  # any trial may yet come to any epoch
    lanes = OpenLanes(crew, book, ring.lanes, LaneGrouping(ledger), kept, ring.makers)
    executor = LiveExecutor(
        crew, lanes, broadcast.next_tag, rank.stop, session.books.skipped.take, effort, _energy(session, crew)
    )
    guessed = guessed if rank.runtime.rehearsal is None else ()
    directory = session.output.directory
    wishes = Halted(StopRequests(directory.path), session.searching)
    writing = Throttle(partial(_write, session, guessed))  # it grows with jobs and rounds
    showing = Throttle(Snapshots(directory.journal).renew)
    return Running(session, executor, Newcomers(session, ring), guessed, wishes, writing, showing)


def _write(session: SessionContext, guessed: Collection[str]) -> None:
    session.save()
    keep_learnt(session, guessed)


def _energy(session: SessionContext, crew: WorkerChannel) -> EnergyShares:
    """What shares out the energy of hosts; of none where nobody wants it read, or nothing is computed."""
    rank, cluster = session.rank, session.rank.cluster
    wanted = rank.runtime.spec.resources.energy.read and rank.runtime.rehearsal is None
    readers = {cluster.lowest_rank(node) for node in cluster.nodes} if wanted else ()

    def ask(ranks: Iterable[int]) -> None:
        crew.send_to_keepers(ranks, ReadEnergy())

    return EnergyShares(readers, ask, session.books.keeper.record)


SECONDS_BETWEEN_LOOKS = 1.0
TRAINED = 2
"""Epochs after which a job's rates are those of its training."""


@dataclass(frozen=True)
class _Newcomer:
    """A job that can be taken in. runtime: with it; curves: none if it is to be measured; source: of its rates."""

    job: Job
    runtime: Runtime
    size: Size
    record: JobRecord
    curves: Mapping[str, RateCurve]
    source: str


class Newcomers:
    """Rank 0's part in `fleet add`.

    Args:
        session: the run, whose books and ranks learn of them.
        ring: the plan of every node's; what it cannot carry is refused.
    """

    def __init__(self, session: SessionContext, ring: RingPlan) -> None:
        self._session, self._ring = session, ring
        self._rank, self._sizes = session.rank, session.sizes
        self._ledger, self._journal = session.books.ledger, session.output.journal
        self._offers = AddedJobs(session.output.directory.path)
        spec = self._rank.runtime.spec
        workers = {job.name: job.virtual_workers for job in spec.jobs}
        self._fitting = FittingJobs(rooms_of(spec, self._rank.cluster), self._sizes, workers)
        self._looked, self._named = -float("inf"), set(session.prints.named)
        self.undecided = {name for name in self._offers.undecided() if name in self._ledger.jobs}

    def decided(self, job: str, promised: bool, why: str) -> None:
        """Leave word for whoever added a job, whether its deadline is promised, and why not."""
        self.undecided.discard(job)
        self._offers.decide(job, promised, why)

    def take_in(self) -> None:
        """Look for offers, at most once a second while there is other work; take in what fits, refuse the rest."""
        now = time.monotonic()
        if self._ledger.unfinished and now - self._looked < SECONDS_BETWEEN_LOOKS:
            return
        self._looked = now
        for name, job in self._offers.offers().items():
            if not self._has_room():
                return  # until a job has ended
            try:
                newcomer = self._judged(self._offered(name, job))
            except Exception as error:  # whatever a newcomer's code does, the run goes on
                why = _why(error)
                self._offers.refuse(name, why)
                self._journal.write(events.Warned(text=f"{name} was offered and not taken in: {why}"))
            else:
                self._take_in(newcomer)

    def admit(self, job: Job) -> str:
        """Take in a trial of the run's search; returns why that cannot be, "" if it is done."""
        try:
            newcomer = self._judged(job)
        except Exception as error:  # whatever a trial's code does, the run goes on
            return _why(error)
        self._take_in(newcomer)
        return ""

    def _has_room(self) -> bool:
        """Whether each of the run's jobs, and one more, could have a lane at the same time."""
        groups = min(self._ledger.cluster.size, len(self._ledger.unfinished) + 1)
        return groups < self._ring.lanes

    def _offered(self, name: str, mapping: JobMapping | None) -> Job:
        """The job of an offer; an error says why there is none."""
        if mapping is None:
            raise BadInput("the file holds no job; use `fleet add`")
        importlib.invalidate_caches()  # its module may be younger than this process
        return Job.model_validate(mapping)

    def _judged(self, offered: Job) -> _Newcomer:
        """Return what the run has to know of a job that is offered; an error says why it cannot be taken in."""
        name = offered.name
        if name in self._ledger.jobs:
            raise BadInput("the run has a job of this name; choose another")
        job = offered.model_copy(update={"arrival": self._journal.seconds() + offered.arrival})
        runtime = self._rank.runtime.with_job(job)
        size = self._check(runtime, job)
        books = self._session.books
        record = record_of(job, runtime, self._rank.cluster, books.batches, books.clock)
        known = {kind: rates for kind, each in self._session.known.items() if (rates := each.of(runtime, name))}
        alike = {} if job.deadline is None or known else self._alike(runtime, name)
        if alike:
            return _Newcomer(job, runtime, size, record, alike, "alike")
        if job.deadline is not None and not known and runtime.rehearsal is None:
            return _Newcomer(job, runtime, size, record, {}, "profile")  # nothing is promised by a guess
        guessed = {next(iter(self._session.known)): {1: guess(self._session, size)}}
        curves = {kind: self._curve(job, kind, rates) for kind, rates in (known or guessed).items()}
        return _Newcomer(job, runtime, size, record, self._ledger.completed(curves), "file" if known else "guessed")

    def _alike(self, runtime: Runtime, name: str) -> Mapping[str, RateCurve]:
        """By kind, how fast the last job of the run trains that is as this one would be; empty: none has for so long.

        Training tells more than a measurement: where trainers share cores, who makes room for that waits meanwhile.
        """
        own = runtime.fingerprint(name, "")
        for other in reversed(list(self._ledger.jobs.values())):
            has_trained = other.epoch >= TRAINED and not other.guessed and bool(other.curves)
            if has_trained and runtime.fingerprint(other.name, "") == own:
                return other.curves
        return {}

    def _take_in(self, new: _Newcomer) -> None:
        """Let everybody know, the run directory first."""
        job, mapping = new.job, new.job.model_dump(mode="json")
        self._offers.take(mapping)
        self._rank.runtime = new.runtime
        self._sizes[job.name] = new.size
        self._fitting.joined(job.name, new.size, job.virtual_workers)
        self._session.broadcast.to_trainers(AddJob(mapping))
        self._session.books.keeper.note(self._ledger.added, new.record)
        self._note_code(new)
        write_job(self._journal, new.runtime, job, new.size, new.record.state.deadline, self._rank.cluster)
        if new.curves:
            self._session.books.keeper.record_rates(job.name, new.curves, new.source)
        if job.deadline is not None:
            self.undecided.add(job.name)

    def _note_code(self, new: _Newcomer) -> None:
        """Write down the code that comes with a job."""
        named = set(references_of(new.runtime.spec, new.job)) - self._named
        if named:
            self._named |= named
            Found(Fingerprints(code=code_of(named, new.runtime.spec.folder, [Path.cwd()]))).write(self._journal)

    def _check(self, runtime: Runtime, job: Job) -> Size:
        """Return the job's size; BadInput if this run cannot carry it."""
        key, ring = data_key(job), self._ring.samples
        if key not in runtime.facts:
            raise BadInput(f"its data, {key}, is none of those that the run has open: {', '.join(runtime.facts)}")
        self._check_part(runtime, job, key)
        for problem in direction_problems(runtime.spec, (), job) if runtime.rehearsal is None else ():
            raise BadInput(f"{problem.path}: {problem.rule}; {problem.mend}")
        for problem in self._session.trials.newcomer_problems(runtime, job):
            raise BadInput(f"{problem.path}: {problem.rule}; {problem.mend}")
        needed = 2 * largest_batch(job) + runtime.spec.resources.slot_samples
        if needed > ring:
            raise BadInput(
                f"its batch of {largest_batch(job)} samples needs a ring of {needed}, that of this run holds {ring}; "
                "give it a smaller batch, or add it while the run stands still: the next start makes a larger ring"
            )
        broken = breaks_minimum(runtime.spec.policy.name) if job.minimum_devices > 1 else None
        if broken is not None:
            raise BadInput(f"its minimum_devices is {job.minimum_devices}, but {broken}; take minimum_devices away")
        broken = breaks_service_level(runtime.spec.policy.name) if job.service_level is not None else None
        if broken is not None:
            raise BadInput(f"it has a service_level, but {broken}; take service_level away")
        short = minimum_problem(job, runtime, self._rank.cluster)
        if short is not None:
            raise BadInput(
                f"its minimum_devices is {job.minimum_devices}, but {short[0]}; set it to at most {short[1]}"
            )
        short = service_problem(job, runtime, self._rank.cluster)
        if short is not None:
            raise BadInput(f"its service_level promises too much: {short[0]}; set its devices to at most {short[1]}")
        size = self._rank.sizes.of(runtime, job.name)
        found = self._fitting.problem(job.name, size, job.virtual_workers)
        if found is not None:
            raise BadInput(found.text)
        return size

    def _check_part(self, runtime: Runtime, job: Job, key: str) -> None:
        """BadInput if the run has no such part of the job's data open."""
        position = len(runtime.spec.jobs) - 1
        for problem in part_problems(runtime.spec, position, runtime.facts[key].samples):
            raise BadInput(f"{problem.path}: {problem.rule}; {problem.mend}")
        if job.folds is not None and not has_folds(self._rank.runtime.spec, key):
            raise BadInput(
                f"it holds out a fold of {key}, and this run began without folds of it; "
                "add the job while the run stands still: the next start has them"
            )

    def _curve(self, job: Job, kind: str, rates: Mapping[int, float]) -> RateCurve:
        return RateCurve(rates, per_node=self._ledger.cluster.per_node(kind), workers=job.virtual_workers)


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"


PART = 0.002


@dataclass
class Throttle:
    """Calls `action` unless its last call was so short a time ago that calls would take more than `part` of the time.

    A caller that needs the last of the calls makes it directly.
    """

    action: Callable[[], None]
    part: float = PART
    clock: Callable[[], float] = time.monotonic
    _next: float = field(default=-math.inf, init=False)

    def __call__(self) -> None:
        begin = self.clock()
        if begin >= self._next:
            self.action()
            end = self.clock()
            self._next = end + (end - begin) / self.part
