"""Rank 0's loop: ask the policy, carry its allocation out, wait for what happens, write it down."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from time import perf_counter, thread_time
from typing import Any

from fleet.coordination.checkpointed import Standing
from fleet.coordination.executor import Event, Executor, GroupEnded, RanksGone, SetBack, Start, StopReason
from fleet.coordination.ledger import Ledger
from fleet.coordination.protocol import CheckpointWritten, EpochEnded, Formed, Progress
from fleet.run_directory.journal import Journal
from fleet.scheduling.model.plan import Plan
from fleet.scheduling.model.state import validate
from fleet.scheduling.policies import Policy

POLL_SECONDS = 1.0
MOST_LOSSES = 3  # losses of a job in a row, without a checkpoint between them: then it is its own fault


class SilentGroupError(RuntimeError):
    """A group has said nothing for too long."""


class Coordinator:
    """Drives a policy over an executor until every job is done or failed, or a stop was asked for.

    Args:
        policy: pure; decides what should run from now on.
        executor: carries it out, live or simulated.
        ledger: the books.
        journal: the run's truth on disk; its clock is the coordinator's clock.
        stop_requested: true once a signal asked the run to stop.
        save: called after each event that changes run.json.
        take_in: called now and then; adds jobs to the ledger that have come from outside.
        set_batch: tells everybody the batch that a job has from now on, samples of a step.
        stands: reads where a job stands by its checkpoints; asked when ranks that trained it are lost.
        silence: seconds without a word from a group after which the run is ended.
        poll: seconds after which it looks whether a stop was asked for.
    """

    def __init__(
        self,
        policy: Policy,
        executor: Executor,
        ledger: Ledger,
        journal: Journal,
        stop_requested: Callable[[], bool],
        save: Callable[[], None],
        silence: float,
        poll: float = POLL_SECONDS,
        take_in: Callable[[], None] = lambda: None,
        set_batch: Callable[[str, int], None] = lambda job, batch: None,
        stands: Callable[[str], Standing] = lambda job: Standing(),
    ) -> None:
        self.policy = policy
        self.executor = executor
        self.ledger = ledger
        self.journal = journal
        self._stop_requested = stop_requested
        self._save = save
        self._take_in = take_in
        self._set_batch = set_batch
        self._stands = stands
        self._silence = silence
        self._stopping = False  # altogether, as it was asked to
        self._leaving: set[str] = set()  # asked to stop, not gone yet
        self._heard: dict[str, float] = {}  # job -> when its group last said something
        self._poll = poll
        self._plan_seconds = 0.0
        self._memo: object = None  # the policy's, of its last plan
        self._changed: list[str] = []  # jobs that the last plan knew otherwise
        self._events = 0  # that the last plan did not know
        self._next: dict[str, tuple[int, ...]] = {}  # who starts once its devices are free
        self._lanes: Mapping[str, int] = {}  # of them, who reads together
        self._batches: Mapping[str, int] = {}  # of them, who has another batch than its own
        self._clearing = False  # all groups leave before the policy is asked
        self._due = self._wake = -math.inf  # when the policy is asked: by its trigger, by its own wish

    def run(self) -> None:
        """One round after another, until nothing is left to run."""
        while self._anything_left():
            begin = thread_time()
            if self._stop_requested():
                self._stop_all()
                if not self.executor.save_held() and not self.ledger.running:
                    break
            elif self._is_due():
                self._reconcile(self._plan())
            elif self._next:
                self._start_next()
            self._charge(begin)
            event = self.executor.next_event(self._patience())
            begin = thread_time()
            if event is not None:
                self._record(event)
            self._check_silence()
            self._charge(begin)
        self._end_round()

    def _anything_left(self) -> bool:
        self._take_in()
        return bool(self.ledger.unfinished)

    def _charge(self, begin: float) -> None:
        """Book the coordinator's own work, in CPU seconds: the trainers go on meanwhile."""
        self.ledger.charged("scheduling", thread_time() - begin)

    def _is_due(self) -> bool:
        """Whether the policy is to be asked now."""
        now = self.journal.seconds()
        arrived = self.ledger.arrived(now)
        if arrived:
            urgent = any(self.ledger.jobs[job].guaranteed for job in arrived)
            self._happened(now, *arrived, urgent=urgent)
        self._clearing = self._clearing and bool(self.ledger.running)
        return now >= min(self._due, self._wake) and not self._clearing

    def _patience(self) -> float:
        """How long to wait for an event before there is something else to do, seconds."""
        silent = min(self._heard.values(), default=math.inf) + self._silence
        asked = math.inf if self._clearing else min(self._due, self._wake)
        until = min(asked, self.ledger.next_arrival, silent)
        return min(self._poll, max(0.0, until - self.journal.seconds()))

    def _happened(self, now: float, *jobs: str, urgent: bool = False) -> None:
        """Something did that the policy should know of; its trigger says when."""
        self._events += 1
        self._changed += jobs
        self._due = min(self._due, self.policy.trigger.due(now, self._events, urgent))

    def _plan(self) -> Plan:
        begin, cpu = perf_counter(), thread_time()
        changed = (*self._changed, *self._next)  # of a job that was to start, the policy believes that it has
        state = self.ledger.state(self.journal.seconds(), changed, self._memo)
        plan = self.policy.plan(state)
        validate(plan.whole_of(state.running), state)
        # While a plan is made devices stand idle: all of that time counts, not the CPU's alone.
        self._plan_seconds = perf_counter() - begin
        self.ledger.charged("scheduling", max(0.0, self._plan_seconds - (thread_time() - cpu)))
        self._changed, self._events, self._memo = [], 0, plan.memo
        self._due, self._wake = math.inf, plan.wake
        return plan

    def _reconcile(self, plan: Plan) -> None:
        """Make what runs equal to the plan: stop what has no place in it, start what is new."""
        self._decide(plan)
        running = self.ledger.running
        allocation = plan.whole_of(running)
        for job, devices in running.items():
            if tuple(allocation.get(job, ())) != devices:
                self._leave(job, "policy")
        new = {job: tuple(devices) for job, devices in allocation.items() if running.get(job) != tuple(devices)}
        self._next, self._lanes, self._batches = new, plan.lanes, plan.batches
        self._start_next()
        if not self._next and not self._leaving:
            self.executor.save_held()  # jobs pause while others go on
        self._check_somebody_trains(plan)

    def _decide(self, plan: Plan) -> None:
        """Book what is promised, whose service is forgotten, and who will never run."""
        for name in plan.admitted:
            job = self.ledger.jobs[name]
            self.ledger.admitted(name)
            self.journal.write("admitted", job=name, deadline=job.deadline if job.deadline < math.inf else None)
        self.ledger.promised(plan.promises)
        for name in plan.promoted:
            self.ledger.pardoned(name, self.journal.seconds())
        for name, why in plan.dropped.items():
            error = f"policy {self.policy.name} dropped it: {why}"
            self.ledger.dropped(name, error)
            epoch = self.ledger.jobs[name].epoch
            self.journal.write("failed", round=None, job=name, devices=[], epoch=epoch, error=error, traceback="")

    def _check_somebody_trains(self, plan: Plan) -> None:
        waiting = [job.name for job in self.ledger.unfinished if job.arrival <= self.journal.seconds()]
        if waiting and not self.ledger.running and plan.wake == math.inf:
            raise RuntimeError(
                f"policy {self.policy.name} gives no device to anyone, while these jobs wait: {', '.join(waiting)}"
            )

    def _start_next(self) -> None:
        """Start those who are planned once they and their devices are free: together, as some may share samples."""
        self._next = {job: devices for job, devices in self._next.items() if self.ledger.jobs[job].waits}
        running = self.ledger.running
        held = {device for devices in running.values() for device in devices}
        wanted = {device for devices in self._next.values() for device in devices}
        if self._next and held.isdisjoint(wanted) and running.keys().isdisjoint(self._next):
            starting, self._next = self._next, {}
            self._start(starting)

    def _start(self, new: dict[str, tuple[int, ...]]) -> None:
        allocation = {**self.ledger.running, **new}
        self._end_round()
        self._fix_batches(new)
        round_ = self.ledger.planned(allocation, self.journal.seconds())
        paces = {job: self._pace(job, len(devices)) for job, devices in allocation.items()}
        self.journal.write(
            "planned", round=round_.index, allocation=dict(allocation), paces=paces, seconds=self._plan_seconds
        )
        batch = tuple(self._start_of(job, devices) for job, devices in new.items())
        for started in self.executor.start(batch, round_.index, self.policy.shares_streams):
            job = self.ledger.jobs[started.job]
            self.ledger.started(job.name, new[job.name], self.journal.seconds())
            self._heard[job.name] = self.journal.seconds()
            self.journal.write(
                "started", round=round_.index, job=job.name, devices=new[job.name], epoch=job.epoch, step=job.step,
                lane=started.lane, stream=started.stream, moved=started.moved,
            )  # fmt: skip
        self._save()

    def _fix_batches(self, starting: Iterable[str]) -> None:
        """Choose the batch of jobs that start for the first time: what a job computes does not change later on."""
        for name in starting:
            job = self.ledger.jobs[name]
            if job.batches is not None and job.batch is not None:
                batch = job.batches.nearest(self._batches.get(name, job.batch))
                self.ledger.batch_fixed(name, batch)
                self.journal.write("batch", job=name, batch=batch)
                self._set_batch(name, batch)

    def _start_of(self, name: str, devices: tuple[int, ...]) -> Start:
        job = self.ledger.jobs[name]
        fitted = tuple(float(job.curve(m)) for m in range(1, job.limit + 1)) if job.curve else ()
        lane = self._lanes.get(name, 0)
        return Start(name, devices, job.epoch, job.step, resume=job.epoch + job.step > 0, fitted=fitted, lane=lane)

    def _pace(self, name: str, count: int) -> float:
        curve = self.ledger.jobs[name].curve
        return float(curve(count)) if curve else 0.0

    def _leave(self, job: str, why: StopReason) -> None:
        if job not in self._leaving:
            self._leaving.add(job)
            self.executor.stop(job, why)

    def _stop_all(self) -> None:
        if not self._stopping:
            self._stopping = True
            self.journal.write("stopping", jobs=list(self.ledger.running))
        for job in list(self.ledger.running):
            self._leave(job, "signal")

    def _end_round(self) -> None:
        if self.ledger.rounds and self.ledger.rounds[-1].end is None:
            now = self.journal.seconds()
            self.ledger.close_round(now)
            last = self.ledger.rounds[-1]
            self.journal.write("round_end", round=last.index, start=last.start, end=now)

    def _record(self, event: Event) -> None:
        """Book one event and write it down."""
        if isinstance(event, RanksGone):
            self._record_loss(event)
            return
        if event.job in self.ledger.running:  # a job's last checkpoint may come when its group has parted
            self._heard[event.job] = self.journal.seconds()
        if isinstance(event, EpochEnded):
            if event.job in self.ledger.running:  # else a lost rank's last word
                self._record_epoch(event)
        elif isinstance(event, CheckpointWritten):
            self.ledger.saved(event)
            self.ledger.charged("checkpoint", event.seconds * self._share(event.job))
            self.journal.write("checkpoint", **_keys(event))
        elif isinstance(event, Formed):
            self.ledger.charged("reforming", event.seconds * self._share(event.job))
            self.ledger.formed(event.seconds)
            self.journal.write("formed", job=event.job, seconds=event.seconds)
            for text in event.warnings:
                self.journal.write("warning", text=text, job=event.job)
        elif isinstance(event, GroupEnded):
            self._record_end(event)
        elif isinstance(event, SetBack):
            found = self._stands(event.job)
            self.ledger.set_back(event.job, found.epoch, found.step, self.journal.seconds())
            self._happened(self.journal.seconds(), event.job)
        elif isinstance(event, Progress):
            self.ledger.progressed(event, self.journal.seconds())
            self.journal.announce("progress", **_keys(event))

    def _record_loss(self, event: RanksGone) -> None:
        """Ranks are gone: whatever was planned without knowing it is planned anew, at once."""
        now = self.journal.seconds()
        self.ledger.devices_lost(event.devices)
        self.journal.write("lost", ranks=event.ranks, devices=event.devices, hosts=event.hosts)
        self._happened(now, *self._next, urgent=True)
        self._next, self._due, self._clearing = {}, now, self._clearing or event.all_leave

    def _record_epoch(self, event: EpochEnded) -> None:
        devices = self.ledger.running[event.job]
        self.ledger.epoch_ended(event, self.journal.seconds())
        self.journal.write(
            "epoch", round=self.ledger.rounds[-1].index, job=event.job, epoch=event.epoch, step=event.step,
            devices=devices,
            seconds=event.seconds, rate=event.rate, metrics=event.metrics, learning_rate=event.learning_rate,
            deaf=event.deaf, **_times(devices, event),
        )  # fmt: skip

    def _record_end(self, event: GroupEnded) -> None:
        self._leaving.discard(event.job)
        self._heard.pop(event.job, None)
        event = self._judged(event)
        self.ledger.ended(event, self.journal.seconds())
        if not (self._next and event.reason == "policy"):  # it makes room for what is planned already
            self._happened(self.journal.seconds(), event.job)
        self._write_rates(event.job)
        common: dict[str, Any] = {"round": self.ledger.rounds[-1].index, "job": event.job, "devices": event.devices}
        job = self.ledger.jobs[event.job]
        if event.why == "done":
            self.journal.write(
                "done", **common, epoch=event.epoch, why=event.reason, metrics=job.metrics, checkpoint=job.checkpoint
            )
        elif event.why in ("stopped", "lost"):
            self.journal.write(
                "stopped",
                **common,
                epoch=event.epoch,
                step=event.step,
                why=event.reason if event.why == "stopped" else "lost",
                **_times(event.devices, event),
            )
        else:
            self.journal.write("failed", **common, epoch=job.epoch, error=event.error, traceback=event.traceback)
        self._save()

    def _judged(self, event: GroupEnded) -> GroupEnded:
        """What became of a job whose group was lost: its checkpoints say from where it goes on, or that it is done.

        One that costs one rank after the other has failed.
        """
        if event.why != "lost":
            return event
        found = self._stands(event.job)
        if found.ended:
            self.ledger.found_done(event.job, found.metrics, found.path)
            return replace(event, why="done", reason=found.ended, epoch=found.epoch, step=found.step)
        losses = self.ledger.jobs[event.job].ranks_cost + self.ledger.cost_ranks(event)
        if losses <= MOST_LOSSES:
            return replace(event, epoch=found.epoch, step=found.step)
        error = (
            f"{losses} times in a row a rank was lost that trained it; if it took too much memory, the system's log "
            "says so: give the job more devices, or a smaller batch"
        )
        return replace(event, why="failed", error=error)

    def _write_rates(self, name: str) -> None:
        """Write down what training has taught about the job's rates."""
        job = self.ledger.jobs[name]
        if job.curve is not None:
            most = min(job.limit, self.ledger.cluster.size)
            fitted = [float(rate) for rate in job.curve.rates(most)]
            self.journal.write("rates", job=name, source="training", measured=dict(job.curve.measured), fitted=fitted)

    def _share(self, job: str) -> float:
        """The part of the machine that `job` holds: what a second of its overhead costs, in seconds of the run."""
        return len(self.ledger.running.get(job, ())) / self.ledger.cluster.size

    def _check_silence(self) -> None:
        now = self.journal.seconds()
        for job, heard in self._heard.items():
            if now - heard > self._silence:
                devices = ", ".join(map(str, self.ledger.running.get(job, ())))
                raise SilentGroupError(
                    f"job {job} on devices {devices} has said nothing for {now - heard:.0f} s; "
                    f"if its steps really take that long, raise resources.timeout (now {self._silence:.0f} s)"
                )


def _times(devices: tuple[int, ...], event: EpochEnded | GroupEnded) -> dict[str, Any]:
    """What each device did since the last report, seconds."""
    waited = {d: {"data": a, "peers": b} for d, a, b in zip(devices, event.waited_data, event.waited_peers)}
    return {"waited": waited, "computed": dict(zip(devices, event.computed))}


def _keys(event: Event) -> dict[str, Any]:
    content = asdict(event)
    content.pop("kind", None)
    return content
