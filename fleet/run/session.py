"""One start of a run, on rank 0: check, resume or begin, profile, train, report."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from itertools import count
from time import perf_counter
from typing import Any

import fleet
from fleet.coordination.bookkeeper import Bookkeeper, recall
from fleet.coordination.checkpointed import Standing, standing
from fleet.coordination.coordinator import Coordinator
from fleet.coordination.crew import Crew
from fleet.coordination.job_record import UNRATED, JobRecord
from fleet.coordination.ledger import Ledger
from fleet.coordination.live_executor import LiveExecutor
from fleet.coordination.lost_ranks import RanksLost, lost_ranks
from fleet.coordination.open_lanes import OpenLanes
from fleet.coordination.outside import Outside
from fleet.coordination.protocol import (
    TO_PREPROCESSOR,
    TO_TRAINER,
    AddJob,
    Mailbox,
    MakeRing,
    SetBatch,
)
from fleet.machine.binding_table import binding_table
from fleet.machine.horovod import NOT_BIT_FOR_BIT
from fleet.machine.launch.exit_codes import DONE, FAILED, STOPPED
from fleet.machine.walltime_of_allocation import find_allocation
from fleet.profiling.batch_ends import BatchEnds
from fleet.profiling.profiler import Profiler
from fleet.profiling.session import ProfilingSession
from fleet.profiling.sizing import Size
from fleet.profiling.store import Profile
from fleet.report.live import LiveView, PlainView, view_for
from fleet.report.tracking import Tracking
from fleet.run.chosen_batches import Batches
from fleet.run.console import rank_console, show_result
from fleet.run.input_checks import check_input
from fleet.run.known_rates import KnownRates, Rates
from fleet.run.lanes import LaneBook, ring_plan
from fleet.run.mixed_kinds import mixes_kinds
from fleet.run.newcomers import Newcomers
from fleet.run.ranks.rank import Rank
from fleet.run.ranks.runtime import Runtime, data_key
from fleet.run.ranks.watchdog import forget_stacks
from fleet.run.same_spec import keep_to_spec
from fleet.run.skipped_samples import SkippedBook
from fleet.run.throttle import Seldom
from fleet.run.walltime import Walltime
from fleet.run_directory.added_jobs import AddedJobs
from fleet.run_directory.directory import RunDirectory
from fleet.run_directory.ensemble_file import EnsembleFile
from fleet.run_directory.journal import Journal, read_journal
from fleet.scheduling.model.job_state import JobState
from fleet.scheduling.policies import Policy, chooses_batches, policy
from fleet.spec import EnsembleSpec, Job, spec_hash

PROFILE_SECONDS = 8.0  # of one measurement of a slow job
GRACE_SECONDS = 0.5  # within it, a rank that has waited in vain says for whom, before its group is called silent
TAG_STEP = 2  # a group's tags are its own and the next

View = LiveView | PlainView


@dataclass
class Session:
    """One start of a run, on rank 0.

    Args:
        rank: this rank.
        mailbox: the coordinator's.
        failure: of the thread that makes samples on this rank.
    """

    rank: Rank
    mailbox: Mailbox
    failure: Callable[[], BaseException | None]
    _tags: Any = field(default_factory=lambda: count(1000, TAG_STEP))
    _lost: dict[str, str] = field(default_factory=dict)  # jobs all of whose checkpoints are damaged, and how
    _ended: dict[str, str] = field(default_factory=dict)  # jobs that were done before the journal could say so, and why
    _skipped: SkippedBook = field(init=False)
    _known: KnownRates = field(init=False)
    _batches: Batches = field(init=False)
    _walltime: Walltime = field(init=False)

    def run(self) -> int:
        """Check, resume or begin, profile, train, report; returns the exit code."""
        spec = self.spec
        directory = RunDirectory(self.rank.options.directory(spec))
        sizes = check_input(self.runtime, self.rank.cluster)
        directory.open()
        forget_stacks(directory.stacks)
        AddedJobs(directory.path).take_all(job.model_dump(mode="json") for job in spec.jobs)
        keep_to_spec(directory, self.runtime)
        self._known = KnownRates(self.runtime, directory, self._device, self.rank.options.profile is not None)
        known = self._known.of_all()
        with ExitStack() as stack:
            journal = Journal(directory.journal)
            stack.callback(journal.close)
            view = view_for(rank_console(), len(spec.jobs))
            stack.callback(view.close)
            tracking = Tracking(directory.path)
            stack.callback(tracking.close)
            journal.listen(view.event)
            journal.listen(tracking.event)
            return self._train(directory, journal, sizes, known, view)

    @property
    def spec(self) -> EnsembleSpec:
        return self.rank.runtime.spec

    @property
    def runtime(self) -> Runtime:
        return self.rank.runtime

    @property
    def _device(self) -> str:
        return self.rank.cluster.trainers[0].device_name or "cpu"

    def _train(
        self, directory: RunDirectory, journal: Journal, sizes: Mapping[str, Size], known: Rates, view: View
    ) -> int:
        plan = policy(self.spec.policy.name, **self.spec.policy.parameters)
        self._batches = Batches(self.rank, self._tell, chooses_batches(plan))
        ledger = self._books(directory)
        self._skipped = self._skipped_book(directory, journal)
        self._open_journal(journal, ledger, sizes, plan)
        lengths = {key: (facts.samples, facts.held_out or None) for key, facts in self.runtime.facts.items()}
        EnsembleFile(str(self.spec.folder), self.spec.to_mapping(), lengths).write(directory.path)
        begin = perf_counter()
        try:
            self._skipped.check()
            self._walltime = Walltime(self.rank.stop, find_allocation(), self.spec.checkpoints.margin, ledger, journal)
            self._walltime.announce()
            writers = self._rate(directory, journal, ledger, plan, known)
            ledger.charged("profiling", perf_counter() - begin)
            if self.rank.options.profile is None:
                self._run_jobs(directory, journal, ledger, plan, writers, sizes)
        except Exception:
            directory.write_run_json(self._run_json(ledger, journal, "stopped"))
            raise
        return self._end(directory, journal, ledger, view)

    def _skipped_book(self, directory: RunDirectory, journal: Journal) -> SkippedBook:
        """The book of skipped samples as earlier sessions left it; the preprocessors are told of them."""
        limits = {name: data.corrupt_limit for name, data in self.spec.data.items() if name in self.runtime.facts}
        book = SkippedBook(journal, limits, read_journal(directory.journal))
        for place in self.rank.cluster.preprocessors:
            for order in book.orders():
                self.mailbox.send(place.rank, TO_PREPROCESSOR, order)
        return book

    def _books(self, directory: RunDirectory) -> Ledger:
        """The books as the journal and the checkpoints leave them."""
        jobs = [self._record(self.runtime, job) for job in self.spec.jobs]
        chosen = self.spec.policy
        ledger = Ledger(self.rank.cluster.cluster, jobs, self.spec.seed, chosen.restart, chosen.margin)
        recall(ledger, read_journal(directory.journal))
        for job in ledger.unfinished:
            found = self._stands(job.name)
            if found.rejected and found.path is None:
                self._lost[job.name] = "; ".join(map(str, found.rejected))
            ledger.stands_at(job.name, found)
            if found.ended:
                self._ended[job.name] = found.ended
        self._batches.restore(ledger)
        return ledger

    def _stands(self, job: str) -> Standing:
        return standing(self.rank.directory.checkpoints(job), self.runtime.stop(job))

    def _tell(self, news: AddJob | SetBatch) -> None:
        """To all trainers."""
        for place in self.rank.cluster.trainers:
            self.mailbox.send(place.rank, TO_TRAINER, news)

    def _record(self, runtime: Runtime, job: Job) -> JobRecord:
        mixed_kinds, _ = mixes_kinds(runtime, job.name, self._device)
        samples = runtime.data_of(job.name).samples
        batches = self._batches.range_of(job, samples)
        state = JobState(
            job.name, UNRATED, job.virtual_workers, mixed_kinds=mixed_kinds,
            arrival=job.arrival, deadline=math.inf if job.deadline is None else job.arrival + job.deadline,
            priority=job.priority, guaranteed=job.guaranteed, batch=job.global_batch,
            remaining=job.stop.epochs * samples, epoch=samples,
        )  # fmt: skip
        return JobRecord.of(state, f"{data_key(job)}/{job.seed}", batches)

    def _open_journal(self, journal: Journal, ledger: Ledger, sizes: Mapping[str, Size], plan: Policy) -> None:
        rehearsal = self.runtime.rehearsal
        versions = {name: version(name) for name in ("torch", "numpy", "mpi4py", "h5py")}
        journal.write(
            "session", session=ledger.sessions, fleet=fleet.__version__, versions=versions,
            host=self.rank.cluster.places[0].host,
            spec_hash=spec_hash(self.spec), policy=plan.name, policy_parameters=dict(self.spec.policy.parameters),
            rehearsal=dataclasses.asdict(rehearsal) if rehearsal else None, name=self.spec.name,
            reduce=self.rank.options.reduce,
        )  # fmt: skip
        journal.write("cluster", **self.rank.cluster.record())
        for job in self.spec.jobs:
            write_job(journal, self.runtime, job, sizes[job.name])
        for job in self._batches.idle(self.spec.jobs):
            text = f"policy {plan.name} chooses no batches: that of the job is {job.global_batch} samples"
            journal.write("warning", text=text, job=job.name)
        for name, why in self._ended.items():
            record = ledger.jobs[name]
            Bookkeeper(ledger, journal).record(
                "done", round=None, job=name, devices=[], epoch=record.epoch, why=why, metrics=record.metrics,
                checkpoint=record.checkpoint,
            )  # fmt: skip
        for name, damage in self._lost.items():
            text = f"no checkpoint of {name} can be used, it begins anew: {damage}"
            journal.write("warning", text=text, job=name)
        for text in (*self.rank.warnings, *([NOT_BIT_FOR_BIT] if self.rank.options.reduce == "horovod" else [])):
            journal.write("warning", text=text, job=None)
        wanted, trainers = self.spec.resources.trainers, len(self.rank.cluster.trainers)
        if wanted is not None and wanted != trainers:
            text = f"the spec asks for {wanted} trainers, the launcher started ranks for {trainers}: {trainers} train"
            journal.write("warning", text=text, job=None)
        if ledger.sessions == 0:
            rank_console().print(binding_table(self.rank.cluster))

    def _rate(self, directory: RunDirectory, journal: Journal, ledger: Ledger, plan: Policy, known: Rates) -> int:
        """Give every unfinished job a rate curve, unless a stop is asked for; returns how many preprocessors to use."""
        cluster, runtime = self.rank.cluster, self.runtime
        profiler: Profiler | None = None
        if runtime.rehearsal is None:
            settings = self.spec.profile
            profiler = Profiler(
                self.mailbox,
                cluster,
                settings.batches,
                settings.timed,
                PROFILE_SECONDS,
                runtime.timeout,
                lambda: next(self._tags),
                self._failure_or_loss,
                self.rank.stop,
                self._walltime,
                self._skipped.take,
            )
        session = ProfilingSession(profiler, journal, ledger, known, self._known.begun())
        session.rate()
        ledger.formed(session.forming)
        ends = BatchEnds(profiler, journal, ledger, partial(self._known.alone, runtime))
        ends.rate()
        self._fail_unmeasured(session, ledger, journal)
        streams = {job.name: job.stream for job in ledger.jobs.values()}
        chosen = session.choose_preprocessors(
            sorted(runtime.facts), len(cluster.preprocessors), streams, plan.shares_streams
        )
        if profiler is not None and not self.rank.stop.raised:
            others = {self._batches.fingerprint(*key, self._device): {1: rate} for key, rate in ends.measured.items()}
            self._store(session.profile(self._fingerprints()).with_rates(others), directory)
        return chosen

    def _failure_or_loss(self) -> BaseException | None:
        """What ends the run while nothing is trained yet."""
        lost = lost_ranks(self.rank.world)
        ranks = ", ".join(map(str, sorted(lost)))
        return RanksLost(f"lost before training began: rank {ranks}") if lost else self.failure()

    def _fingerprints(self) -> dict[str, str]:
        return {job.name: self.runtime.fingerprint(job.name, self._device) for job in self.spec.jobs}

    def _fail_unmeasured(self, session: ProfilingSession, ledger: Ledger, journal: Journal) -> None:
        """A job whose code raises while it is measured is failed; the others go on."""
        for name, result in session.failures.items():
            left = result.failure
            assert left is not None
            Bookkeeper(ledger, journal).record(
                "failed",
                round=None,
                job=name,
                devices=result.devices,
                epoch=ledger.jobs[name].epoch,
                error=left.error,
                traceback=left.traceback,
            )

    def _store(self, profile: Profile, directory: RunDirectory) -> None:
        """Add what was measured to what the run knew, and write it where the user asked for it."""
        if directory.profile.exists():
            profile = Profile.read(directory.profile).updated(profile)
        profile.write(directory.profile)
        if self.rank.options.rates is not None:
            profile.write(self.rank.options.rates)

    def _run_jobs(
        self,
        directory: RunDirectory,
        journal: Journal,
        ledger: Ledger,
        plan: Policy,
        writers: int,
        sizes: Mapping[str, Size],
    ) -> None:
        """Make the rings, then drive the policy until the jobs are done."""
        cluster, runtime = self.rank.cluster, self.runtime
        ring = ring_plan(runtime, len(cluster.trainers), writers)
        order = MakeRing(ring.lanes, ring.lane_bytes, ring.slot_samples, ring.writers)
        for place in cluster.places:
            self.mailbox.send(place.rank, TO_TRAINER if place.is_trainer else TO_PREPROCESSOR, order)
        book = LaneBook(runtime, cluster, ring)
        crew = Crew(self.mailbox, cluster, writers, self.failure, partial(lost_ranks, self.rank.world))
        lanes = OpenLanes(crew, book, ring.lanes)
        executor = LiveExecutor(crew, lanes, lambda: next(self._tags), self.rank.stop, self._skipped.take)

        newcomers = Newcomers(
            AddedJobs(directory.path), self.rank, ledger, journal, book, dict(sizes),
            self._known.of, self._record, partial(write_job, journal), self._tell,
        )  # fmt: skip
        outside = _AroundTheCoordinator(
            self, newcomers, book, lambda: directory.write_run_json(self._run_json(ledger, journal, "stopped"))
        )
        outside.save()
        silence = runtime.timeout + GRACE_SECONDS
        Coordinator(plan, executor, Bookkeeper(ledger, journal), outside, silence).run()

    def _run_json(self, ledger: Ledger, journal: Journal, status: str) -> dict[str, Any]:
        more = {
            "name": self.spec.name,
            "rehearsal": self.runtime.rehearsal is not None,
            "skipped_samples": self._skipped.counts,
            "reduce": self.rank.options.reduce,
        }
        return ledger.run_json(status, self.spec.policy.name, journal.seconds(), **more)

    def _end(self, directory: RunDirectory, journal: Journal, ledger: Ledger, view: LiveView | PlainView) -> int:
        """Write how it ended, make the report, print the result."""
        status = ledger.status
        if self.rank.options.profile is not None and not self.rank.stop.raised:
            status = (
                "failed"
                if ledger.status == "failed" or any(j.status == "failed" for j in ledger.jobs.values())
                else "done"
            )
        journal.write("ended", status=status, overhead_seconds=ledger.overhead, wall_seconds=journal.seconds())
        directory.write_run_json(self._run_json(ledger, journal, status))
        view.close()
        if self.rank.options.profile is None:
            show_result(directory.path, sum(self._skipped.counts.values()))
        return {"done": DONE, "failed": FAILED}.get(status, STOPPED)


class _AroundTheCoordinator(Outside):
    """What the coordinator needs of a session."""

    def __init__(self, session: Session, newcomers: Newcomers, book: LaneBook, write: Callable[[], None]) -> None:
        self._session, self._newcomers, self._book = session, newcomers, book
        self._save = Seldom(write)  # it grows with jobs and rounds

    def stop_requested(self) -> bool:
        return self._session._walltime()

    def take_in(self) -> None:
        self._newcomers.take_in()

    def set_batch(self, job: str, batch: int) -> None:
        self._session._batches.set(job, batch)
        self._book.runtime = self._session.runtime

    def stands(self, job: str) -> Standing:
        return self._session._stands(job)

    def save(self) -> None:
        self._save()


def write_job(journal: Journal, runtime: Runtime, job: Job, size: Size) -> None:
    """Write down what a job is."""
    journal.write(
        "job", job=job.name, model=str(job.model or job.task), parameters=size.parameters,
        parameter_bytes=size.parameter_bytes,
        virtual_workers=job.virtual_workers, batch_size=job.batch_size, seed=job.seed, data=data_key(job),
        samples=runtime.data_of(job.name).samples, max_epochs=job.stop.epochs,
        arrival=job.arrival, deadline=job.deadline, priority=job.priority, guaranteed=job.guaranteed,
    )  # fmt: skip
