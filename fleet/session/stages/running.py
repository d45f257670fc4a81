"""The fourth stage of a session: the rings are made, and the policy's allocations are trained."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from fleet.coordination.coordinator import Coordinator
from fleet.coordination.executor import RunHooks
from fleet.coordination.job_record import Standing, settle_best
from fleet.coordination.live_executor import EnergyShares, LiveExecutor
from fleet.coordination.open_lanes import AwaitedEpochs, KeptEpochs, LaneGrouping, OpenLanes
from fleet.coordination.protocol import MakeRing, ReadEnergy
from fleet.coordination.worker_channel import WorkerChannel
from fleet.journal import events
from fleet.journal.run_requests import StopRequests
from fleet.journal.work_note import Death, take_deaths
from fleet.report.journal_scan import Snapshots
from fleet.scheduling.policies import Policy
from fleet.scheduling.policies.kind_by_kind import for_kinds
from fleet.scheduling.policies.least_laxity import LeastLaxity
from fleet.scheduling.policies.what_is_left import WhatIsLeft
from fleet.session.devices_to_plan import devices_to_plan
from fleet.session.lanes import LaneBook, ring_of
from fleet.session.priced_devices import prices_of
from fleet.session.search.searching import Halted
from fleet.session.stages.books import stands
from fleet.session.stages.guessing import guess
from fleet.session.stages.learnt_rates import keep_learnt
from fleet.session.stages.newcomers import Newcomers
from fleet.session.stages.opened import Opened
from fleet.session.stages.rated import PROFILE_SECONDS, Rated
from fleet.session.throttle import Seldom
from fleet.workers.watchdog import stuck_ranks, waits_for_others

_GRACE_SECONDS = 0.5  # within it, a rank that has waited in vain says for whom, before its group is called silent


@dataclass(frozen=True)
class Running(RunHooks):
    """A run whose ranks train; it is what its coordinator knows of the run around it.

    Attributes:
        opened: with its books.
        executor: carries the policy's allocations out.
        newcomers: are taken in meanwhile.
        guessed: jobs that began with guessed rates, which training has told since.
        wishes: which jobs shall not go on.
        writing: writes run.json and the rates that were learnt.
        showing: writes what `fleet status` reads.
    """

    opened: Opened
    executor: LiveExecutor
    newcomers: Newcomers
    guessed: Collection[str]
    wishes: Halted
    writing: Seldom
    showing: Seldom

    def train(self) -> None:
        """Drive the policy until the jobs are done, or a stop is asked for."""
        opened = self.opened
        self.save()
        silence = opened.rank.runtime.timeout + _GRACE_SECONDS
        prices = prices_of(opened.rank.runtime.spec, opened.rank.cluster)
        policy: Policy = opened.policy
        if opened.searching is not None:
            policy = WhatIsLeft(LeastLaxity(for_kinds(policy, devices_to_plan(opened.rank.cluster))))
        following = self.executor if opened.searching is None else None
        books = opened.books.keeper
        Coordinator(policy, self.executor, books, self, silence, prices=prices, following=following).run()
        if opened.searching is not None:
            opened.searching.settle(self.executor.save_held)
        samples = self.executor.count_samples()
        opened.books.keeper.record(events.Samples(read=samples.read, laid=samples.laid, made=samples.made))
        with suppress(OSError):  # the journal has them, too
            keep_learnt(opened, self.guessed)

    def stop_requested(self) -> bool:
        return self.opened.walltime()

    def halted(self) -> Collection[str]:
        return self.wishes.jobs()

    def take_in(self) -> None:
        self.newcomers.take_in()
        if self.opened.searching is not None:
            self.opened.searching.look(self.newcomers.admit, self.executor.save_held)

    def undecided(self) -> Collection[str]:
        return self.newcomers.undecided

    def decided(self, job: str, promised: bool, why: str) -> None:
        self.newcomers.decided(job, promised, why)

    def guess(self, job: str) -> float | None:
        size = self.opened.ready.sizes.get(job)
        return None if size is None else guess(self.opened, size)

    def tell_batch(self, job: str) -> None:
        self.opened.books.batches.tell_of(self.opened.books.ledger.jobs[job])

    def save(self) -> None:
        with suppress(OSError):  # the journal has it all, and the last run.json is written whatever happens
            self.writing()
        with suppress(OSError):  # whoever asks how the run stands reads all of the journal then
            self.showing()

    def stands(self, job: str) -> Standing:
        rank, found = self.opened.rank, stands(self.opened.rank, job)
        if rank.runtime.keeps_best:
            settle_best(self.opened.books.keeper.record, rank.directory.checkpoints(job), job, found)
        return found

    def death(self, devices: tuple[int, ...]) -> Death | None:
        rank, lost = self.opened.rank, self.opened.wire.lost()
        gone = lost.intersection(rank.cluster.rank_of(device) for device in devices)
        deaths = take_deaths(rank.directory.at_work, gone)
        return next((death for death in deaths if death.stack), None)

    def stuck(self) -> str:
        return "".join(stuck_ranks(self.opened.rank.directory.stacks).values())

    def waits(self, devices: tuple[int, ...]) -> bool:
        rank = self.opened.rank
        ranks = {rank.cluster.rank_of(device) for device in devices}
        stacks = [text for number, text in stuck_ranks(rank.directory.stacks).items() if number in ranks]
        return bool(stacks) and all(map(waits_for_others, stacks))


def start(rated: Rated) -> Running:
    """Have the rings made on all nodes."""
    opened = rated.opened
    rank, wire = opened.rank, opened.wire
    ring = ring_of(rank.runtime, rank.cluster)
    wire.check_lanes(ring.lanes)
    order = MakeRing(ring.lanes, ring.lane_bytes, ring.slot_samples, ring.writers)
    wire.to_trainers(order)
    wire.to_preprocessors(order)
    settings = rank.runtime.spec.profile
    effort = (settings.batches, settings.timed, PROFILE_SECONDS)
    lent = ring.writers - len(rank.cluster.preprocessors)
    crew = WorkerChannel(wire.mailbox, rank.cluster, wire.failure, wire.lost, lent)
    ledger = opened.books.ledger
    awaited = AwaitedEpochs(ledger, opened.searching is not None)
    book = LaneBook(rank, ring, awaited.first)
    kept = KeptEpochs(crew, awaited) if opened.searching is None else None  # any trial may yet come to any epoch
    lanes = OpenLanes(crew, book, ring.lanes, LaneGrouping(ledger), kept, ring.makers)
    executor = LiveExecutor(
        crew, lanes, wire.next_tag, rank.stop, opened.books.skipped.take, effort, _energy(opened, crew)
    )
    guessed: Collection[str] = rated.guessed if rank.runtime.rehearsal is None else ()
    directory = opened.output.directory
    wishes = Halted(StopRequests(directory.path), opened.searching)
    writing = Seldom(partial(_write, opened, guessed))  # it grows with jobs and rounds
    showing = Seldom(Snapshots(directory.journal).renew)
    return Running(opened, executor, Newcomers(opened, ring), guessed, wishes, writing, showing)


def _write(opened: Opened, guessed: Collection[str]) -> None:
    opened.save()
    keep_learnt(opened, guessed)


def _energy(opened: Opened, crew: WorkerChannel) -> EnergyShares:
    """What shares out the energy of hosts; of none where nobody wants it read, or nothing is computed."""
    rank, cluster = opened.rank, opened.rank.cluster
    wanted = rank.runtime.spec.resources.energy.read and rank.runtime.rehearsal is None
    readers = {cluster.lowest_rank(node) for node in cluster.nodes} if wanted else ()

    def ask(ranks: Iterable[int]) -> None:
        crew.send_to_keepers(ranks, ReadEnergy())

    return EnergyShares(readers, ask, opened.books.keeper.record)
