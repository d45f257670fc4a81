"""A session from its checked input to its open books: the first lines that it writes, and when it must stop."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from typing import Any

import fleet
from fleet.cluster.batch_systems import BatchAllocation, find_allocation
from fleet.coordination.coordinator import apply_stop_requests
from fleet.coordination.failures import CannotGoOnError
from fleet.coordination.job_record import settle_best, told_bests
from fleet.coordination.live_state import LiveState, run_summary
from fleet.journal import events
from fleet.journal.directory import DirectoryHeldError, RunDirectory
from fleet.journal.journal import Journal, read_journal
from fleet.journal.lock import BEAT_SECONDS
from fleet.journal.run_requests import AddedJobs, StopRequests
from fleet.journal.whole_files import EnsembleFile, read_extensions, write_extensions
from fleet.machine.cluster_map import ClusterMap
from fleet.machine.horovod import NOT_BIT_FOR_BIT
from fleet.machine.launch.launched import LOST, StopFlag
from fleet.machine.standard_streams import tell
from fleet.models.provenance import Found, check_unchanged
from fleet.profiling.sizing import Size, refused_on
from fleet.scheduling import Policy
from fleet.search.of_spec import seed_of
from fleet.session.books import Books, Output, open_books, write_deaths
from fleet.session.console import binding_table, rank_console
from fleet.session.input_checks import BatchTrials, check_input, lengths_of
from fleet.session.options import RunOptions
from fleet.session.plannable_devices import order_problems, prices_of, stays_on_one
from fleet.session.prediction import KnownRates
from fleet.session.rank_messages import Broadcast
from fleet.session.search.first_trials import searching_of, take_first_trial
from fleet.session.search.searching import Halted, Searching
from fleet.session.whole_spec import extensions
from fleet.spec import ABSENT, Job, difference, results_mapping, spec_hash
from fleet.spec.digest import Difference
from fleet.spec.directions import compared_by, recorded_directions
from fleet.spec.job import data_key
from fleet.spec.policies import policy
from fleet.spec.semantics import schedule_notes
from fleet.spec.subsets import part_in_words
from fleet.workers.agreement import BadInput
from fleet.workers.rank import GuardedThread, Rank
from fleet.workers.runtime import Runtime
from fleet.workers.watchdog import forget_stacks
from preprocess.files.writing import write_whole
from trainers.state.kept_checkpoints import best_file


@dataclass(frozen=True)
class CheckedRun:
    """A run whose input is checked and whose directory is its own: it may begin, or go on.

    Attributes:
        rank: this one.
        options: the options of the command line.
        directory: the run's; it is locked.
        sizes: by the names of the jobs; those of newcomers are added.
        known: by kind of device, "" where all are alike, the rates that need not be measured.
        prints: what is to be written down of data and code.
        trials: have tried metrics and losses, and try those of newcomers.
    """

    rank: Rank
    options: RunOptions
    directory: RunDirectory
    sizes: dict[str, Size]
    known: Mapping[str, KnownRates]
    prints: Found
    trials: BatchTrials


def make_ready(rank: Rank, options: RunOptions) -> CheckedRun:
    """Check all that can be wrong before the journal is touched.

    Raises:
        SpecError, BadInput, RunDirectoryError, ProfileError: what a person can mend.
        OvertakenError: another run has written there while this one started.
    """
    directory = rank.directory
    trials = BatchTrials(rank.datasets)
    sizes = check_input(rank.runtime, rank.cluster, trials, rank.sizes)
    directory.open(rank.runtime.spec.resources.lock_wait, tell, rank.stop)
    if options.profile is None:  # a profile may be of a part of the jobs
        _see_all_jobs(rank)
    spec, ignored = rank.runtime.spec, [directory.path, options.stood / "runs"]
    prints = check_unchanged(directory.journal, spec, rank.datasets, options.accept, ignored)
    forget_stacks(directory.stacks)
    take_first_trial(directory, rank.runtime.spec)
    AddedJobs(directory.path).take_all(job.model_dump(mode="json") for job in rank.runtime.spec.jobs)
    if options.extend is not None:
        write_extensions(directory.path, extensions(options, directory.path))
    keep_to_spec(directory, rank.runtime)
    cluster, again = rank.cluster, options.profile is not None
    known = {
        kind: KnownRates(rank.runtime, directory, model, again, "" if kind else cluster.device_name, kind)
        for kind, model in cluster.rated.items()
    }
    for each in known.values():
        each.of_all()
    return CheckedRun(rank, options, directory, sizes, known, prints, trials)


def _see_all_jobs(rank: Rank) -> None:
    """Raise OvertakenError if the run has taken in a job since its jobs were looked for."""
    known = {job.name for job in rank.runtime.spec.jobs}
    new = [job["name"] for job in AddedJobs(rank.directory.path).taken() if job["name"] not in known]
    if new:
        raise OvertakenError(f"{', '.join(new)}: taken in by the run while this start waited for it")


@dataclass(frozen=True)
class SessionContext(CheckedRun):
    """A run that has begun or gone on: what the stages of a session share.

    Attributes:
        broadcast: sends orders to the other ranks.
        output: what is written as the run goes.
        policy: the spec's.
        books: the run's account.
        walltime: says when the run must stop.
        searching: the search for which its trials train; None: the run has none.
    """

    broadcast: Broadcast
    output: Output
    policy: Policy
    books: Books
    walltime: Walltime
    searching: Searching | None = None

    def save(self, status: str = "stopped", **more: Any) -> None:
        """Write run.json as it were if the run ended now, with this status; more: of its keys."""
        self.output.directory.write_run_json({**self._run_json(status), **more})

    def write_ensemble(self) -> None:
        """Write down what jobs that are added have to fit."""
        spec, facts = self.rank.runtime.own_spec, self.rank.runtime.facts
        lengths = {key: (one.samples, one.held_out or None) for key, one in facts.items()}
        EnsembleFile(str(spec.folder), spec.to_mapping(), lengths).write(self.output.directory.path)

    def _run_json(self, status: str) -> dict[str, Any]:
        spec = self.rank.runtime.spec
        more = {
            "name": spec.name,
            "rehearsal": self.rank.runtime.rehearsal is not None,
            "samples": self.books.ledger.samples.to_json(),
            "skipped_samples": self.books.skipped.counts,
            "reduce": self.options.reduce,
        }
        if self.searching is not None:
            more["search"], more["unused_epochs"] = self.searching.to_json(), self.searching.unused
        if self.books.ledger.energy:
            more["energy"] = self.books.ledger.energy.to_json()
        seconds = self.output.journal.seconds()
        summary = run_summary(self.books.ledger, status, spec.policy.name, seconds, **more)
        for name in self.searching.stopped if self.searching is not None else ():
            told = summary["jobs"][name]
            told["status"] = "stopped" if told["status"] == "paused" else told["status"]
        for job, best in self.books.ledger.bests.items():
            if best is not None:
                path = best_file(self.output.directory.checkpoints(job), best.epoch)
                summary["jobs"][job]["best"] = {**asdict(best), "path": str(path)}
        return summary


def open_run(ready: CheckedRun, broadcast: Broadcast, output: Output) -> SessionContext:
    """Open the books, and write down what the run is and where it stands."""
    rank = ready.rank
    spec = rank.runtime.spec
    chosen = policy(spec.policy.name, **spec.policy.parameters)
    books = open_books(rank, broadcast, output, chosen)
    measures = ready.options.profile is not None
    searching = None if measures else searching_of(rank, books.keeper)  # before anything is written
    if searching is not None:
        books = replace(books, found={**books.found, **searching.mend_copies()})
    write_first_words(ready, chosen, books)
    write_deaths(output.directory, books.keeper)
    wishes = StopRequests(output.directory.path)
    if searching is not None:
        searching.begin()
    apply_stop_requests(Halted(wishes, searching).jobs(), books.keeper)
    walltime = Walltime(
        rank.stop, find_allocation(), spec.checkpoints.margin, books.ledger, output.journal, asked=wishes.who_stops
    )
    session = SessionContext(
        **vars(ready),
        broadcast=broadcast,
        output=output,
        policy=chosen,
        books=books,
        walltime=walltime,
        searching=searching,
    )
    session.write_ensemble()
    return session


_END_SECONDS = 10.0


class OvertakenError(CannotGoOnError):
    """Another run has come between; the same command goes on after it."""

    code = LOST


@contextmanager
def kept(directory: RunDirectory, broadcast: Broadcast, beat: float = BEAT_SECONDS) -> Iterator[None]:
    """Renew the directory's lock every `beat` seconds; where another run has taken it, the broadcast's waits fail."""
    over = threading.Event()

    def renew() -> None:
        while not over.wait(beat):
            try:
                with suppress(OSError):  # a file system that hangs for once: the next beat may come through
                    directory.renew()
            except DirectoryHeldError as error:
                raise OvertakenError(str(error)) from error

    thread = GuardedThread(renew, "lock")
    broadcast.also_fails(lambda: thread.failure)
    try:
        yield
    finally:
        over.set()
        thread.join(_END_SECONDS)


def write_first_words(ready: CheckedRun, policy: Policy, books: Books) -> None:
    """Write what the run is, on which machine, and what its checkpoints say that the journal does not."""
    rank, journal = ready.rank, books.keeper.journal
    _write_session(ready, policy, books.ledger.sessions, journal)
    machine = rank.cluster.record()
    journal.write(events.Cluster(**{**machine, "ranks": tuple(events.Rank(**each) for each in machine["ranks"])}))
    prices = prices_of(rank.runtime.spec, rank.cluster)
    if prices is not None:
        journal.write(
            events.PricesTold(courses=prices.by_kind, worth=prices.worth if prices.worth < math.inf else None)
        )
    for job in rank.runtime.spec.jobs:
        size, due = ready.sizes[job.name], books.ledger.jobs[job.name].state.deadline
        write_job(journal, rank.runtime, job, size, due, rank.cluster)
    for job in books.batches.idle(rank.runtime.spec.jobs):
        text = f"policy {policy.name} chooses no batches: that of the job is {job.global_batch} samples"
        journal.write(events.Warned(text=text, job=job.name))
    ready.prints.write(journal)
    for name, epochs in books.longer.items():
        journal.write(events.Extended(job=name, epochs=epochs))
    _settle_bests(rank, books)
    _write_found(books)
    for event in read_journal(ready.directory.journal):
        if isinstance(event, events.Warned) and event.damaged_line:  # whoever reads the journal sees it there
            journal.announce(event)
    for text in _warnings(ready):
        journal.write(events.Warned(text=text))
    if books.ledger.sessions == 0:
        rank_console().print(binding_table(rank.cluster))


def write_job(journal: Journal, runtime: Runtime, job: Job, size: Size, due: float, cluster: ClusterMap) -> None:
    """Write down what a job is, and what its code cannot do on its devices.

    Args:
        due: second of the run at which it should be done; infinite: none.
    """
    describe_job(journal, runtime, job, size, due)
    for text in (*refused_on(cluster.device_name, job.name, size), *stays_on_one(runtime, cluster, job.name)):
        journal.write(events.Warned(text=text, job=job.name))


def describe_job(journal: Journal, runtime: Runtime, job: Job, size: Size, due: float) -> None:
    """Write down what a job is, as `write_job`."""
    level = job.service_level
    journal.write(
        events.Job(
            job=job.name,
            model=str(job.model or job.task),
            parameters=size.parameters,
            parameter_bytes=size.parameter_bytes,
            virtual_workers=job.virtual_workers,
            batch_size=job.batch_size,
            seed=job.weights_seed,
            order_seed=job.order_seed,
            data=data_key(job),
            samples=runtime.trained_in_epoch(job.name),
            part=part_in_words(job),
            max_epochs=job.stop.epochs,
            arrival=job.arrival,
            deadline=job.deadline,
            due=due if due < math.inf else None,
            priority=job.priority,
            guaranteed=job.guaranteed,
            minimum_devices=job.minimum_devices,
            service_level=None if level is None else events.ServiceLevel(level.devices, level.window),
            better=recorded_directions(runtime.spec, job),
        )
    )


def _write_session(ready: CheckedRun, policy: Policy, number: int, journal: Journal) -> None:
    rank, spec, rehearsal = ready.rank, ready.rank.runtime.spec, ready.rank.runtime.rehearsal
    versions = {name: version(name) for name in ("torch", "numpy", "mpi4py", "h5py")}
    journal.write(
        events.Session(
            session=number,
            fleet=fleet.__version__,
            versions=versions,
            host=rank.cluster.places[0].host,
            spec_hash=spec_hash(spec),
            policy=policy.name,
            policy_parameters=dict(spec.policy.parameters),
            rehearsal=events.Rehearsal(rehearsal.time_scale) if rehearsal else None,
            name=spec.name,
            reduce=ready.options.reduce,
            search_seed=None if spec.search is None else seed_of(spec),
            compared_by=compared_by(spec),
        )
    )


def _settle_bests(rank: Rank, books: Books) -> None:
    """Let best checkpoints and what the journal says of them agree, of jobs that go on."""
    if not rank.runtime.keeps_best:
        return
    told = told_bests(read_journal(rank.directory.journal))
    for name, found in books.found.items():
        settle_best(books.keeper.record, rank.directory.checkpoints(name), name, found, told)


def _write_found(books: Books) -> None:
    """Write down which jobs were done before the journal could say so, and whose checkpoints are all damaged."""
    for name, found in books.found.items():
        if found.ended:
            books.keeper.record(
                events.Done(job=name, epoch=found.epoch, why=found.ended, metrics=found.metrics, checkpoint=found.path)
            )
    for name, found in books.found.items():
        if found.rejected and found.path is None:
            damage = "; ".join(map(str, found.rejected))
            text = f"no checkpoint of {name} can be used, it begins anew: {damage}"
            books.keeper.journal.write(events.Warned(text=text, job=name))


def _warnings(ready: CheckedRun) -> Iterator[str]:
    """What a person should know of how the run was started."""
    rank = ready.rank
    yield from rank.warnings
    yield from ready.prints.notes
    yield from order_problems(rank.runtime, len(rank.cluster.preprocessors))
    yield from schedule_notes(rank.runtime.spec, lengths_of(rank.runtime))
    if ready.options.reduce == "horovod":
        yield NOT_BIT_FOR_BIT
    wanted, trainers = rank.runtime.spec.resources.trainers, len(rank.cluster.trainers)
    if wanted is not None and wanted != trainers:
        yield f"the spec asks for {wanted} trainers, the launcher started ranks for {trainers}: {trainers} train"


@dataclass
class Walltime:
    """Whether to stop now: a signal came, or what is left is just enough for a step and the checkpoints, or for the
    measurement that would begin now.

    Args:
        stop: raised by signals; raised here once time is up.
        allocation: None outside of all.
        margin: seconds to be left at the end.
        asked: tells who wants the run to stop; "": nobody.
    """

    stop: StopFlag
    allocation: BatchAllocation | None
    margin: float
    ledger: LiveState
    journal: Journal
    clock: Callable[[], float] = time.time
    asked: Callable[[], str] = str
    #: Seconds kept for stopping: a run that stopped when it begins would begin for ever.
    _most: float = field(default=math.inf, init=False)

    def __call__(self, measuring: float = 0.0) -> bool:
        """Whether to stop now; `measuring`: seconds that a measurement takes, while rates are measured."""
        left = self.left
        if not self.stop.raised and (who := self.asked()):
            self.stop.raised = True
            self.journal.write(events.Warned(text=f"{who} wants it to stop; the same command goes on"))
        if not self.stop.raised and left is not None and left <= min(self.needed + measuring, self._most):
            self.stop.raised = True
            what = "no further measurement" if measuring else "stopping for checkpoints"
            text = f"the allocation ends in {left:.0f} s: {what}; the same command goes on"
            self.journal.write(events.Warned(text=text))
        return self.stop.raised

    @property
    def left(self) -> float | None:
        """Seconds until the allocation ends; None where it does not."""
        if self.allocation is None or self.allocation.end is None:
            return None
        return self.allocation.end - self.clock()

    @property
    def needed(self) -> float:
        """Seconds from a decision to stop until all checkpoints are written, as measured, and the margin; at most half
        of those that were left when the run began.
        """
        return min(self.ledger.seconds_to_stop() + self.margin, self._most)

    def announce(self) -> None:
        """Write down when the allocation ends, as far as it is known."""
        known = self.allocation
        if known is None:
            return
        left = self.left
        self.journal.write(events.Allocation(scheduler=known.scheduler, id=known.job, left=left))
        if left is not None:
            self._keep_half(left)
        if known.problem:
            text = f"{known.scheduler} does not say when the allocation ends ({known.problem}): only a signal stops it"
            self.journal.write(events.Warned(text=text))

    def _keep_half(self, left: float) -> None:
        """Train in at least half of the time left, however long it may take to stop."""
        wanted = self.needed
        self._most = max(0.0, left) / 2
        if wanted > self._most:
            text = (
                f"{left:.0f} s are left of the allocation, and stopping may take {wanted:.0f} s: the run stops "
                f"{self._most:.0f} s before the end; longer allocations, or a lower checkpoints.margin "
                f"(now {self.margin:g} s), leave more"
            )
            self.journal.write(events.Warned(text=text))


_MOST_SHOWN = 12
_CHANGEABLE = ("metrics", "evaluation_batch_size")
"""Keys of a job that may change as a run goes on: no weight depends on them."""


def keep_to_spec(directory: RunDirectory, runtime: Runtime) -> None:
    """Hold the spec, without the jobs that were added, against that of the run's first start; write it down.

    Raises:
        BadInput: naming what differs.
    """
    mine, float32 = _mapping(directory, runtime), runtime.spec.determinism.float32
    if directory.spec.exists() and directory.journal.exists():
        theirs = {"rehearsal": False, **directory.read_spec()}  # the first runs could be none
        # In what older runs multiply, their checkpoints alone say.
        theirs["determinism"] = {**float32, **theirs.get("determinism", {})}
        differs = [found for found in difference(theirs, mine) if not _may_change(found)]
        if differs:
            shown = "\n  ".join(_told(found, directory) for found in differs[:_MOST_SHOWN])
            raise BadInput(
                f"--out {directory.path} holds a run of another spec:\n  {shown}\n"
                "name another directory, or take the change back to go on with that run"
            )
    write_whole(directory.spec, json.dumps(mine, indent=1))


def _may_change(found: Difference) -> bool:
    """Whether a run may go on with it: with more jobs, with more metrics, with other batches of evaluation."""
    section, job, *keys = [*found.parts, "", ""][:4]
    if section == "data" and not keys[0]:
        return found.first is ABSENT  # of jobs that are new
    if section not in ("jobs", "search"):
        return False
    if section == "jobs" and not keys[0]:
        return found.first is ABSENT
    key = next((part for part in found.parts[1:] if part in _CHANGEABLE), None)
    if key == "metrics":
        before, now = ([] if value is ABSENT else value for value in (found.first, found.second))
        return isinstance(before, list) and isinstance(now, list) and all(one in now for one in before)
    return key == "evaluation_batch_size" and found.parts[-1] == key


def _told(found: Difference, directory: RunDirectory) -> str:
    """A difference, and what to do where that is not the same for all."""
    if found.parts[0] != "jobs" or len(found.parts) < 2:
        return str(found)
    job, *keys = found.parts[1:]
    if not keys and found.second is ABSENT:
        return (
            f"job {job} is part of the run, and not of this spec; leave it there (one that is done trains no more), or "
            f"end it with `fleet stop {directory.path} {job}` and leave it there"
        )
    if keys == ["stop", "epochs"]:
        return f"{found}; `fleet extend {directory.path} {job} --epochs {found.second}` trains it longer"
    if keys == ["metrics"]:
        return f"{found}; metrics may be added, and none taken away"
    return str(found)


def write_chosen(directory: RunDirectory, runtime: Runtime) -> None:
    """Write the spec down anew, once numbers that it left open are chosen."""
    write_whole(directory.spec, json.dumps(_mapping(directory, runtime), indent=1))


def _mapping(directory: RunDirectory, runtime: Runtime) -> dict[str, Any]:
    """What decides the results of the run, without the jobs that were added."""
    added = {job["name"] for job in AddedJobs(directory.path).taken()}
    own = runtime.spec.with_jobs(tuple(job for job in runtime.spec.jobs if job.name not in added))
    mine = results_mapping(own)
    for name, extension in read_extensions(directory.path).items():
        if name in mine["jobs"] and mine["jobs"][name]["stop"] == extension.stop:
            mine["jobs"][name]["stop"] = dict(extension.before)
    mine["determinism"] = {**mine.get("determinism", {}), **own.determinism.float32}
    mine["rehearsal"] = runtime.rehearsal is not None
    return mine
