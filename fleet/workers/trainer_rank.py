"""A trainer rank's life: wait for an order, train or profile a job, wait again."""

from __future__ import annotations

import gc
import importlib
import math
import re
import time
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch

from fleet.coordination.failures import CannotGoOnError, StorageError, survives_losses
from fleet.coordination.protocol import (
    TO_COORDINATOR,
    TO_TRAINER,
    AddJob,
    CheckpointWritten,
    CloseLane,
    FindLargest,
    Fits,
    KeepBusy,
    Left,
    MakeRing,
    Message,
    MoveGroup,
    PrepareLane,
    Profiled,
    ProfileGroup,
    Pulse,
    SaveJob,
    SetBatch,
    Shutdown,
    SkipSamples,
    StartGroup,
    StopGroup,
)
from fleet.journal.work_note import WorkNote
from fleet.machine.standard_streams import tell
from fleet.profiling.measure import can_go_on, keep_busy, largest_fitting, measure, try_batch
from fleet.spec import Job
from fleet.workers.feed import BatchFeed, FeedTimeout, Share
from fleet.workers.helper_preprocessor import HelperPreprocessor, OwnSubstitutes
from fleet.workers.job_run import JobRun, Line, Saving, TrainingTerms, formed, save
from fleet.workers.rank import Rank
from fleet.workers.runtime import Runtime, batch_set
from fleet.workers.watchdog import Lifeline
from preprocess.ring.ring import LaneReader, Ring
from preprocess.samples.errors import RingTimeout, WriterLost
from preprocess.samples.stream import LaneSpec
from trainers import (
    Arithmetic,
    Batch,
    CheckpointError,
    Float32,
    Group,
    PeerFailed,
    Trainer,
    Training,
    VirtualWorker,
    check_group,
    latest_good,
)
from trainers.device.device_memory import give_freed_memory_back
from trainers.device.device_streams import why_broken
from trainers.job.resize import coming, joining, resize
from trainers.reduce.horovod import HorovodHangs
from trainers.reduce.ordered_reduce import OrderedReduce, ReducerOf
from trainers.repeatable.process_settings import no_exit
from trainers.step.compute import forget_graphs
from trainers.task.task import batch_size_of, evaluation_batch_of

_IDLE_SECONDS = 1.0


class TrainerRank:
    """Carries out the coordinator's orders on one device.

    Args:
        rank: this rank.
        device: what to train on.
        reducer: what adds gradients in groups.
        moves: called now and then: this rank is not stuck.
    """

    def __init__(
        self,
        rank: Rank,
        device: torch.device,
        reducer: ReducerOf = OrderedReduce,
        moves: Callable[[], None] = lambda: None,
    ) -> None:
        self._rank, self._device, self._reducer, self._moves = rank, device, reducer, moves
        self._mailbox = rank.mailbox(TO_TRAINER)
        self._note = WorkNote(rank.directory.at_work, rank.number)
        self._ring: Ring | None = None
        self._lifeline = Lifeline(rank.runtime.timeout)
        self._lent = HelperPreprocessor(rank, self._mailbox, moves)
        self._substitutes = OwnSubstitutes(rank, self._mailbox, moves, self._lent.skips)
        self._held: dict[str, Trainer] = {}  # jobs in memory: those that left, those that came
        self._unmoved: dict[str, BaseException] = {}  # why a job did not come
        self._move_seconds: dict[str, float] = {}
        self._next: Message | None = None  # came while this rank kept busy
        self._later: deque[Message] = deque()  # orders that came while a job trained
        self._called_off: set[str] = set()  # of them, jobs that are not to begin
        self._done = ""  # the job that was trained last, if it is done
        self._memory = LeftMemory(device)
        self._writer = ThreadPoolExecutor(1, "checkpoint")
        self._writer_s_mailbox = rank.mailbox(TO_TRAINER)  # to send alone
        self._written: Future[None] | None = None  # the last checkpoint of a job that is done

    def run(self) -> int:
        """Serve until told to shut down; returns the exit code."""
        gc.freeze()  # what is there now stays: looking for ended jobs' memory, at each one's end, leaves it out
        while True:
            self._moves()
            message, self._next = self._next or self._next_order() or self._receive(), None
            self._rank.report_signal()
            self._lifeline.check_launcher()
            if message is None:
                self._lifeline.check_pulse()
                self._memory.rest()
                continue
            self._lifeline.heard()
            if isinstance(message, Shutdown):
                self._await_written()
                self._note.remove()
                return message.code
            if isinstance(message, MakeRing):
                self._ring = self._rank.make_ring(message)
                self._lent.learn(self._ring, message)
            elif isinstance(message, (SkipSamples, PrepareLane, CloseLane)):
                self._lent.obey(message)
            elif isinstance(message, StartGroup) and self._follows(message):
                self._serve(message.job, partial(self._train, message))
            elif isinstance(message, (AddJob, SetBatch)):
                self._learn(message)
            elif isinstance(message, MoveGroup):
                self._move(message)
            elif isinstance(message, SaveJob):
                self._save(message)
            elif isinstance(message, ProfileGroup):
                self._serve(message.job, partial(self._profile, message))
            elif isinstance(message, FindLargest):
                self._serve(message.job, partial(self._find_largest, message))
            elif isinstance(message, KeepBusy) and message.job:
                self._keep_busy(message)

    def _receive(self) -> Message | None:
        """The next message; None if there is none now. Without one, a trainer that prepares samples goes on with it."""
        if not self._lent.is_busy:
            return self._mailbox.receive(_IDLE_SECONDS)
        message = self._mailbox.poll()
        if message is None:
            self._lent.work()
        return message

    @property
    def _runtime(self) -> Runtime:
        return self._rank.runtime

    def _learn(self, news: AddJob | SetBatch) -> None:
        """Take in the news about the run's jobs."""
        if isinstance(news, SetBatch):
            self._rank.runtime = batch_set(self._runtime, news)
            return
        importlib.invalidate_caches()  # its module may be younger than this process
        self._rank.runtime = self._runtime.with_job(Job.model_validate(news.job))

    def _poll(self) -> Message | None:
        """The next message for the job that trains."""
        while isinstance(message := self._mailbox.look(), (AddJob, SetBatch)):
            self._learn(message)
        return message

    def _poll_training(self) -> Message | None:
        """The next message for the job that trains; what concerns others waits for its end."""
        while (message := self._poll()) is not None:
            waiting = {order.job for order in self._later if isinstance(order, StartGroup)}
            if isinstance(message, (StartGroup, MoveGroup, SaveJob, ProfileGroup, FindLargest)):
                self._later.append(message)
            elif isinstance(message, StopGroup) and message.job in waiting:
                self._called_off.add(message.job)
            else:
                return message
        return None

    def _next_order(self) -> Message | None:
        """What waited while a job trained, one after the other."""
        return self._later.popleft() if self._later else None

    def _follows(self, order: StartGroup) -> bool:
        """Whether a job may begin: one that was to follow another does so only if that one is done."""
        called_off = order.job in self._called_off
        self._called_off.discard(order.job)
        if order.after in ("", self._done) and not called_off:
            return True
        self._attach(order.lane).leave()  # its next opening waits for that
        self._tell(Left(order.job, self._rank.number, "stopped", "called off", order.epoch, order.step))
        return False

    def _serve(self, job: str, work: Callable[[], Left | None]) -> None:
        """Do the work; whatever a job's code raises is this job's failure, not the rank's."""
        self._lent.give_back()
        self._done = ""
        try:
            with no_exit(), self._note.of(job):
                word = work()
            self._done = job if word is None or word.why == "done" else ""
        except CannotGoOnError:
            raise
        except PeerFailed as error:
            word = Left(job, 0, "peer", error=str(error))
        except WriterLost as error:
            goes_on = survives_losses()
            word = Left(job, 0, "lost" if goes_on else "failed", error=self._no_samples(error), fatal=not goes_on)
        except CheckpointError as error:
            word = replace(last_word(job, error, _is_disk(error)), error=str(error))
        except HorovodHangs as error:
            word = Left(job, 0, "failed", error=str(error), fatal=True)
        except (RingTimeout, FeedTimeout) as error:
            word = Left(job, 0, "failed", error=self._no_samples(error), fatal=True)
        except BaseException as error:
            word = last_word(job, error)
            self._leave_if_broken(word)
        if word is None:  # it follows the checkpoint
            self._memory.leave()
            self._lifeline.heard()
            return
        if word.why != "peer":  # a group that lost a member forms anew as soon as all have said so
            self._memory.leave()
        self._tell(replace(word, rank=self._rank.number))
        if word.why == "peer":
            self._memory.leave()
        self._lifeline.fatal = word.error if word.fatal else ""
        if not word.fatal:
            self._lifeline.heard()  # pulses went by meanwhile

    def _leave_if_broken(self, word: Left) -> None:
        """End this process if a kernel of the job has made the device useless to it: a new one can use it again."""
        why = why_broken(self._device)
        if why:
            first = f"a kernel failed on {self._device}: {why.splitlines()[0]}"
            tell(f"rank {self._rank.number}: job {word.job}: {first}; only a new process can use the device again")
            self._note.end_process(word.job, f"{first}\n{word.traceback}")

    def _no_samples(self, error: Exception) -> str:
        """What a person should know of a wait for samples that was in vain; it is no job's fault."""
        return (
            f"{error}; a source of data may be stuck there (py-spy dump --pid ... shows where); if one slot of "
            f"samples really takes so long, raise resources.timeout (now {self._runtime.timeout:g} s)"
        )

    def _move(self, order: MoveGroup) -> None:
        """Give a job away, or take it; if it does not come, the order to train it tells rank 0 why."""
        self._lent.give_back()
        begin = time.perf_counter()
        self._unmoved.pop(order.job, None)
        trainer = self._held.pop(order.job, None)
        try:
            with no_exit(), self._note.of(order.job):
                if trainer is None:
                    with coming(self._rank.world, order.old, order.new, order.tag):
                        trainer = self._trainer(order.job, joining(order.new, self._rank.number, order.new_shares))
                if resize(
                    trainer,
                    self._rank.world,
                    order.old,
                    order.new,
                    order.tag,
                    self._runtime.timeout,
                    old_shares=order.old_shares,
                    new_shares=order.new_shares,
                ):
                    self._held[order.job] = trainer
        except BaseException as error:
            self._unmoved[order.job] = error
        self._move_seconds[order.job] = time.perf_counter() - begin

    def _save(self, order: SaveJob) -> None:
        """Write down a job that is in memory alone; where its own code fails at that, the job has failed."""
        try:
            trainer = self._held.pop(order.job)
            with no_exit(), self._note.of(order.job), trainer.group:
                written = save(order.job, trainer, self._saving(order.job))
            if written is not None:
                self._tell(written)
        except BaseException as error:
            word = last_word(order.job, error, fatal=isinstance(error, CheckpointError) and _is_disk(error))
            self._leave_if_broken(word)
            self._tell(replace(word, rank=self._rank.number))
            self._lifeline.fatal = word.error if word.fatal else ""

    def _train(self, order: StartGroup) -> Left | None:
        begin = time.perf_counter()
        feed: BatchFeed | None = None
        reader = self._attach(order.lane)
        try:
            with ExitStack() as stack:
                trainer, rejected = self._begin(order, stack)
                group = trainer.group
                compute = self._rehearsed(order, group)
                share = member_share(self._runtime, order.job, group, trainer)
                reading = self._runtime.reading(order.job, order.lane.layout, trainer.task)
                begin_at = (trainer.epoch, trainer.step_in_epoch)
                feed = BatchFeed(
                    reader,
                    order.lane.schedule,
                    share,
                    begin_at,
                    self._device,
                    reading,
                    self._runtime.timeout,
                    self._substitutes.of(order.job),
                )
                if compute is not None:
                    trainer.compute = compute
                    compute.watch(lambda: (feed.waited, group.waited))
                with trainer.reducing(at_once=True):
                    if group.is_master:
                        moving = self._move_seconds.pop(order.job, 0.0)
                        self._tell(formed(order.job, moving + time.perf_counter() - begin, rejected))
                    line = Line(self._tell, self._poll_training, self._moves, self._rank.world.size, self._end_beside)
                    word = JobRun(order.job, trainer, feed, self._course(order.job, order.until), line).run()
                if word is not None and word.held:
                    stack.pop_all()  # the group stays
                    self._held[order.job] = trainer
                return word
        finally:
            if feed is not None:
                feed.close()
            else:
                reader.leave()

    def _end_beside(self, write: Callable[[], CheckpointWritten], word: Left) -> None:
        """Write the last checkpoint of a job that is done in a thread, and tell then; one at a time."""
        self._await_written()
        self._written = self._writer.submit(self._write_and_tell, write, word)

    def _write_and_tell(self, write: Callable[[], CheckpointWritten], word: Left) -> None:
        try:
            self._writer_s_mailbox.send(0, TO_COORDINATOR, write())
        except CheckpointError as error:
            word = replace(last_word(word.job, error, _is_disk(error)), error=str(error))
        except BaseException as error:
            word = last_word(word.job, error)
        if word.fatal:
            self._lifeline.fatal = word.error
        self._writer_s_mailbox.send(0, TO_COORDINATOR, replace(word, rank=self._rank.number))

    def _await_written(self) -> None:
        """Wait until the last checkpoint is written; rank 0 hears of what goes wrong with it."""
        if self._written is not None:
            self._written.result(self._runtime.timeout)

    def _begin(self, order: StartGroup, stack: ExitStack) -> tuple[Trainer, list[CheckpointError]]:
        """The job's trainer: the one that came here, or a new one with the state of the checkpoint."""
        held = self._held.pop(order.job, None)
        self._held.clear()  # whatever else was held has been moved or saved, or has failed
        if order.moved:
            if held is None:
                raise self._unmoved.pop(order.job)
            check_group(stack.enter_context(held.group), order.members, self._device)
            held.follow(self._runtime.batches_of(order.job))
            return held, []
        group = Group.form(
            self._rank.world, order.members, order.tag, timeout=self._runtime.timeout, shares=order.shares
        )
        trainer = self._trainer(order.job, stack.enter_context(group))
        stack.callback(trainer.connect())
        check_group(group, order.members, self._device)
        return trainer, self._restore(order, group, trainer)

    def _saving(self, job: str) -> Saving:
        settings, folder = self._runtime.spec.checkpoints, self._rank.directory.checkpoints(job)
        return Saving(folder, settings.every, max(1, settings.keep), self._runtime.best_by(job), settings.seconds)

    def _course(self, job: str, until: int | None) -> TrainingTerms:
        """What the job's training goes by."""
        runtime = self._runtime
        samples, rehearsal = runtime.samples_of(job), runtime.rehearsal
        scale = 1.0 if rehearsal is None else rehearsal.time_scale
        return TrainingTerms(
            runtime.stop(job),
            self._saving(job),
            samples,
            rehearsal is None,
            runtime.spec.profile.timed,
            scale,
            until,
            runtime.evaluates_in_parts(job),
        )

    def _trainer(self, job: str, group: Group, runtime: Runtime | None = None) -> Trainer:
        runtime = runtime or self._runtime
        asked, workers = runtime.spec.determinism, runtime.job(job).virtual_workers
        arithmetic = Arithmetic(asked.level, Float32(**asked.float32))
        return Trainer(runtime.task(job), workers, group, self._device, level=arithmetic, reducer=self._reducer)

    def _rehearsed(self, order: StartGroup, group: Group) -> RehearsedCompute | None:
        rehearsal = self._runtime.rehearsal
        return None if rehearsal is None else RehearsedCompute(order.turn_seconds[group.index], rehearsal.time_scale)

    def _restore(self, order: StartGroup, group: Group, trainer: Trainer) -> list[CheckpointError]:
        """Go on from the newest checkpoint that is whole; the master reads it."""
        if not order.resume:
            return []
        saved, rejected = latest_good(self._rank.directory.checkpoints(order.job)) if group.is_master else (None, [])
        if group.agree(int(saved is not None)):
            trainer.restore(saved)
        if (trainer.epoch, trainer.step_in_epoch) != (order.epoch, order.step):
            folder, place = self._rank.directory.checkpoints(order.job), f"epoch {order.epoch}, step {order.step}"
            why = "; ".join(map(str, rejected)) or "another one cannot"
            raise StorageError(f"{folder}: rank 0 read {place} there, and this rank cannot: {why}; start the run again")
        return rejected

    def _attach(self, lane: LaneSpec) -> LaneReader:
        assert self._ring is not None, "lanes are opened after rings are made"
        found = self._ring.lanes[lane.lane].reader(self._rank.seat, lane.layout, lane.generation, self._runtime.timeout)
        found.on_waiting = self._rank.wake_preprocessors
        return found

    def _profile(self, order: ProfileGroup) -> Left:
        runtime = self._runtime.for_measuring(order.job, order.batch_size)
        begin = time.perf_counter()
        with Group.form(self._rank.world, order.members, order.tag, timeout=self._runtime.timeout) as group:
            trainer = self._trainer(order.job, group, runtime)
            with trainer.reducing():
                forming = time.perf_counter() - begin
                layout = self._runtime.data_of(order.job).layout
                timing = measure(trainer, layout, order.batches, order.timed, order.budget_seconds)
            if group.is_master:
                self._tell(Profiled(order.job, group.size, timing.rate, timing.batches, timing.seconds, forming))
        return Left(order.job, 0, "profiled")

    def _find_largest(self, order: FindLargest) -> Left:
        begin = time.monotonic()

        def is_late(seconds: float) -> bool:
            return time.monotonic() - begin + seconds > order.budget_seconds

        found = largest_fitting(partial(self._try, order.job), order.most, is_late, lambda: can_go_on(self._device))
        self._tell(Fits(order.job, found.size, found.why, found.tries, time.monotonic() - begin))
        return Left(order.job, 0, "profiled")

    def _try(self, job: str, batch_size: int) -> None:
        """Train a job with so many samples of each virtual worker, all of which are here."""
        self._memory.give_back()  # what the last try left
        self._moves()
        runtime, data = self._runtime.with_batch(job, batch_size), self._runtime.data_of(job)
        held_out = runtime.held_out_of(job)
        with Group.alone() as group:
            trainer = self._trainer(job, group, runtime)
            with trainer.reducing():
                try_batch(trainer, data.layout, held_out)

    def _keep_busy(self, order: KeepBusy) -> None:
        """Train beside those that are measured on this device; if the job fails, its own measurement says so."""
        runtime = self._runtime.for_measuring(order.job, order.batch_size)
        try:
            with no_exit(), self._note.of(order.job), Group.alone() as group:
                trainer = self._trainer(order.job, group, runtime)
                with trainer.reducing():
                    keep_busy(trainer, runtime.data_of(order.job).layout, self._has_order)
        except CannotGoOnError:
            raise
        except BaseException as error:
            self._leave_if_broken(last_word(order.job, error))
        self._memory.give_back()

    def _has_order(self) -> bool:
        """Whether another order came, which is carried out next, or the run's other processes are gone."""
        self._moves()
        message = self._poll()
        if message is None:
            self._lifeline.check_pulse()
        elif isinstance(message, Pulse):
            self._lifeline.heard()
        else:
            self._next = message
        return self._next is not None or self._lifeline.is_orphaned

    def _tell(self, message: Message) -> None:
        self._mailbox.send(0, TO_COORDINATOR, message)


def _is_disk(error: CheckpointError) -> bool:
    """Whether a checkpoint fails for a reason that every job will meet; else it is what this job wants to save."""
    return isinstance(error.__cause__, OSError)


_MOST_TEXT, _MOST_TRACEBACK = 2_000, 20_000  # characters
_NO_MEMORY = re.compile(r".*?Tried to allocate [\d.]+ \w+\.(?: GPU \d+ has .*? is free\.)?", re.DOTALL)
_ALLOWED = re.compile(r"[\d.]+ \w+ allowed")
"""Of what torch says when a device's memory ends; all else, such as each process's share, is in the traceback."""


def last_word(job: str, error: BaseException, fatal: bool = False) -> Left:
    """The last word of a member whose job failed, with the traceback."""
    text = "".join(traceback.format_exception(error))
    return Left(job, 0, "failed", error=_said(error), traceback=text[-_MOST_TRACEBACK:], fatal=fatal)


def _said(error: BaseException) -> str:
    """The error's kind and text; a kind whose text cannot be made is told alone."""
    kind = type(error).__name__
    try:
        text = f"{kind}: {error}"
    except BaseException as broken:
        return f"{kind}, whose text cannot be made ({type(broken).__name__})"
    if isinstance(error, torch.OutOfMemoryError):
        return _said_of_memory(text)[:_MOST_TEXT]
    if isinstance(error, Exception):
        return text[:_MOST_TEXT]
    return f"{text[:_MOST_TEXT]} (its code tried to end the process)"


def _said_of_memory(text: str) -> str:
    """What was asked for, what is free and what is allowed, with the mend."""
    begin, allowed = _NO_MEMORY.match(text), _ALLOWED.search(text)
    told = begin[0].removesuffix(".") if begin else text
    share, fewer = (f", {allowed[0]} to this trainer", ", or fewer members_per_device") if allowed else ("", "")
    return f"{told}{share}; try a smaller batch_size (accumulate keeps a step's samples){fewer}"


_KEPT = 256 << 20
"""Bytes of the host that stay for the next job."""


class LeftMemory:
    """Keeps little for a job that comes at once, and gives the rest back.

    Args:
        device: of the trainer.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._is_kept = False

    def give_back(self) -> None:
        """Give back all that ended jobs have left."""
        self._end(0)

    def leave(self) -> None:
        """A job has ended: give back what it leaves, but for what the next one on the host is about to want."""
        self._end(_KEPT)
        self._is_kept = True

    def rest(self) -> None:
        """No job has come for a while: give back what was kept for it."""
        if self._is_kept:
            self._is_kept = False
            give_freed_memory_back(self._device)

    def _end(self, unless: int) -> None:
        gc.collect()  # a trainer and its parts know each other
        forget_graphs()
        give_freed_memory_back(self._device, unless)


def member_share(runtime: Runtime, name: str, group: Group, trainer: Trainer) -> Share:
    """This member's share of the job that its group trains."""
    job = runtime.job(name)
    blocks = group.blocks(job.virtual_workers)
    owners = tuple(member for member, block in enumerate(blocks) for _ in block)
    evaluators = owners if group.shares else tuple(range(group.size))
    step = job.virtual_workers * batch_size_of(trainer.task)  # by its own batch, whatever it is now
    return Share(
        trainer.plan(runtime.samples_of(name)),
        blocks[group.index],
        group.index,
        evaluators,
        evaluation_batch_of(trainer.task, step),
        runtime.own_order(name),
        runtime.own_held_out(name),
    )


PER_EPOCH = 0.15  # a rehearsed loss falls like a loss does, so that the report has something to draw
CATCH_UP = 0.25  # of a turn: so much of what sleeps and peers were late is made up for in the next turn


class RehearsedCompute:
    """Takes the place of forward and backward: waits as long as the curve says a step takes, and leaves no gradients.

    A group of m devices takes N B / r(m) seconds a step for N virtual workers with batches of B, as many turns as its
    slowest member has; a member with less to do is done earlier and waits for its peers. What the real parts of the
    step cost here (reduction, optimizer, messages) is inside r(m) already, so it is taken off the wait; so is, within
    `CATCH_UP`, what a sleep was too long, here or on a peer: it would add up over the steps.

    Args:
        turn_seconds: in a real run the turn of one virtual worker takes so long on this member's device.
        time_scale: seconds rehearsed for one second of a real run.
    """

    def __init__(self, turn_seconds: float, time_scale: float) -> None:
        self._turn_seconds = turn_seconds * time_scale
        self._waited: Callable[[], tuple[float, float]] = lambda: (0.0, 0.0)
        self._last: _Turn | None = None

    def watch(self, waited: Callable[[], tuple[float, float]]) -> None:
        """Take `waited()`, seconds that this member waited for data and for peers so far, as no cost of its own."""
        self._waited = waited

    def gradients(self, trainer: Training, worker: VirtualWorker, batch: Batch) -> float:
        """Wait for one turn of one worker; return a loss that falls with the epochs."""
        now = time.perf_counter()
        late = 0.0 if self._last is None else self._late(self._last, now)
        time.sleep(max(0.0, self._turn_seconds - late))
        self._last = _Turn(now - late + self._turn_seconds, time.perf_counter(), *self._waited())
        return math.exp(-PER_EPOCH * trainer.epoch)

    def _late(self, last: _Turn, now: float) -> float:
        """Seconds of the next turn that are over already: own work, and a part of what could not be helped."""
        data, peers = (after - before for after, before in zip(self._waited(), (last.data, last.peers)))
        work = max(0.0, now - last.ended - data - peers)
        behind = max(0.0, now - last.due - data)
        return min(behind, work + CATCH_UP * self._turn_seconds)


class _Turn(NamedTuple):
    """A turn that is over: when it should have ended, when it did, and seconds waited until then."""

    due: float
    ended: float
    data: float
    peers: float
