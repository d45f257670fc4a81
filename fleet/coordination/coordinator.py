"""Rank 0's loop: ask the policy, carry its allocation out, wait for what happens, write it down.

`Coordinator` comes first. Below it stand its parts: when the policy is asked, which batches jobs change to, which jobs
people stop, who follows a network on its device, how many preprocessors work, and what the journal says of each event.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import perf_counter, thread_time
from typing import Any

from fleet.coordination.executor import (
    Event,
    Executor,
    Following,
    GroupEnded,
    Measured,
    PendingStarts,
    RanksGone,
    RunHooks,
    SetBack,
    StopReason,
)
from fleet.coordination.failures import CannotGoOnError, RanksLost, SilentGroupError, TooFewDevicesError
from fleet.coordination.first_rates import FirstRates, NewcomerRates
from fleet.coordination.job_record import JobRecord, record_checkpoint
from fleet.coordination.live_state import Recorder
from fleet.coordination.protocol import AtStep, CheckpointWritten, EpochEnded, Formed, Start, StepsTimed
from fleet.journal import events
from fleet.scheduling import Policy
from fleet.scheduling.model.cluster import Prices
from fleet.scheduling.model.data_path import DataPath, demand_of
from fleet.scheduling.model.policy import Allocation, BadPlan, Plan, PolicyTrigger, State, ask, validate
from fleet.scheduling.policies.wrappers import driven

POLL_SECONDS = 1.0
MOST_TOLD_AGAIN = 64  # networks that go on, of which the line of a round tells where they train
MOST_LOSSES = 3  # losses of a job in a row, without a checkpoint between them: then it is its own fault


class Coordinator:
    """Drives a policy over an executor until every job is done or failed, or a stop was asked for.

    Args:
        policy: decides what should run from now on.
        executor: carries allocations out, on ranks or in a rehearsal.
        recorder: writes events and applies them; the clock of its journal is the coordinator's.
        hooks: what the run around the coordinator asks and answers.
        silence: seconds without a message from a group after which the run ends.
        poll: seconds between two looks at the hooks.
        prices: of the devices; None: they do not count.
        following: the executor, if it can tell devices what comes next before a network there ends.
    """

    def __init__(
        self,
        policy: Policy,
        executor: Executor,
        recorder: Recorder,
        hooks: RunHooks,
        silence: float,
        poll: float = POLL_SECONDS,
        prices: Prices | None = None,
        following: Following | None = None,
    ) -> None:
        policy = driven(policy, recorder.state.cluster, prices, recorder.state.helpers.lending)
        self.policy, self.executor, self.hooks = policy, executor, hooks
        self.recorder, self.state, self._now = recorder, recorder.state, recorder.journal.seconds
        self._silence, self._poll = silence, poll
        self._trigger = PolicyTrigger(policy.trigger)
        self._pending = PendingStarts()
        self._leaving: set[str] = set()  # jobs that were asked to stop and have not left yet
        self._heard: dict[str, float] = {}  # job -> second of its group's last message, the longest silent first
        self._stopping = False  # everybody was asked to leave
        self._asked = -math.inf  # second at which the policy was asked last
        self._newcomers, self._batches = NewcomerRates(executor, recorder), BatchRequests(executor, recorder, hooks)
        self._feeding = Feeding(recorder, policy.shares_streams)
        self._first, self._halting = FirstRates(recorder, hooks), Halting(executor, recorder, hooks)
        share = policy.shares_streams
        self._successors = None if following is None else Successors(policy, following, recorder, share)
        self._plan_seconds = 0.0
        self._undecided: Mapping[str, str] = {}  # jobs on whose deadlines the policy decides later

    def run(self) -> None:
        """Run one round after another until nothing is left to train."""
        self._ask_hooks()
        while not self.state.jobs.are_over:
            with self._work():
                if self.hooks.stop_requested():
                    if self._stop_all():
                        break
                elif self._measure():
                    pass
                elif news := self._first.due(self._now(), not self._pending.devices):
                    self._trigger.happened(self._now(), *news)
                elif self._now() >= self._trigger.next:
                    self._carry_out(self._ask())
                elif self._pending.devices:
                    self._start_who_can()
            event = self.executor.next_event(self._patience())
            with self._work():
                if event is not None:
                    self._record(event)
                self._check_silence()
            self._ask_hooks()
        self._end_round()

    def _measure(self) -> bool:
        """Go on measuring a job without rates, or clearing devices for it; return whether plans wait for that."""
        waits = not self._pending.devices and self._newcomers.advance(self._leave)
        if waits:
            self._pending = self._newcomers.unhelped
        self._trigger.measuring = waits or bool(self._newcomers.unhelped.devices)
        if self._newcomers.measured:
            self._heard.setdefault(self._newcomers.measured, self._now())
        return waits

    @contextmanager
    def _work(self) -> Iterator[None]:
        """Charge this block's CPU seconds to scheduling; trainers are not blocked."""
        begin = thread_time()
        yield
        self.recorder.note(self.state.charged, "scheduling", thread_time() - begin)

    def _ask_hooks(self) -> None:
        """Add jobs that were offered, stop those that people want stopped, and note those whose arrival is due."""
        with self._work():
            self.hooks.take_in()
        now = self._now()
        if changed := self._halting.look(self._leave, self._newcomers.measured):
            self._trigger.happened(now, *changed)
        if arrived := self.state.come(now):
            self.recorder.note(self.state.arrived, arrived)
            urgent = any(self.state.jobs[job].state.guaranteed for job in arrived)
            self._trigger.happened(now, *arrived, urgent=urgent)

    def _patience(self) -> float:
        """Return the seconds to wait for an event before there is something else to do."""
        now = self._now()
        silences = (heard + self._silence for heard in self._heard.values())
        silent = next((end for end in silences if end > now), math.inf)
        until = min(self._trigger.next, self.state.next_arrival, silent, self._first.next)
        return min(self._poll, max(0.0, until - now))

    def _ask(self) -> Plan:
        """Ask the policy for a plan. Devices may idle meanwhile, so wall time is charged and not CPU time."""
        begin, cpu = perf_counter(), thread_time()
        changed = tuple(dict.fromkeys((*self._trigger.changed, *self._pending.devices)))  # as if started
        self._asked = self._now()
        state = self.state.for_policy(self._asked, changed, self._trigger.memo)
        try:
            plan = ask(self.policy, state)
            validate(plan.whole_of(state.staying), state)
        except BadPlan as error:
            raise CannotGoOnError(f"policy {self.policy.name} gave a bad plan: {error}") from error
        self._plan_seconds = perf_counter() - begin
        self.recorder.note(self.state.charged, "scheduling", max(0.0, self._plan_seconds - (thread_time() - cpu)))
        self._first.choose(self.policy, state, plan)
        self._trigger.planned(plan)
        return plan

    def _carry_out(self, plan: Plan) -> None:
        """Make what runs equal to the plan: stop what has no place in it, start what is new."""
        self._decide(plan)
        running = self.state.running
        held, lost = self.state.held, self.state.lost_devices
        if lost:
            held = {job: devices for job, devices in held.items() if lost.isdisjoint(devices)}
        allocation = plan.whole_of(held)
        if self._successors is not None:
            self._successors.settle(allocation)
        anew = {job for job in self.state.shares if self.state.is_dealt_badly(job)}
        anew |= self._leaving | plan.lanes.keys()  # a job that was asked to stop cannot be called back
        new = {}
        for job, devices in allocation.items():
            moves = job not in running or running[job] != devices or job in self.state.kept
            if job in anew or job not in running or (moves and self._first.has(job) != tuple(devices)):
                new[job] = tuple(devices)
        if self.policy.shares_streams:
            new = self._first.with_mates(new, allocation)
        new = self._feeding.formed_anew(new, allocation, plan.lent or 0)
        for job in running:
            if job in new or job not in allocation:
                self._leave(job, "policy")
        keys = {"seconds": self._plan_seconds, "bound_seconds": plan.bound, "end_seconds": plan.end, "lent": plan.lent}
        self._pending = PendingStarts(new, plan.lanes, plan.batches, keys)
        self._start_who_can()
        if not self._pending.devices and not self._leaving:
            self.executor.save_held()  # who pauses while others go on must be on the disk
        self._check_somebody_trains(plan)

    def _decide(self, plan: Plan) -> None:
        """Record what the plan promises, whose service it resets, and which jobs it drops."""
        for name in plan.admitted:
            self._promise(name)
        self._record_late(self.state.noticed(plan.late))
        for window in plan.windows:
            self.recorder.record(events.ServiceWindow(**vars(window)))
        self.recorder.note(self.state.promised, plan.promises)
        for name in plan.promoted:
            self.recorder.record(events.ServiceReset(job=name))
        for name, why in plan.dropped.items():
            error, epoch = dropped_by(self.policy.name, why), self.state.jobs[name].epoch
            self.recorder.record(events.Failed(job=name, epoch=epoch, error=error))
        self._undecided = plan.undecided
        self._answer_deadlines()

    def _answer_deadlines(self) -> None:
        """Answer the owners of added jobs whether their deadlines are promised, as far as that is known."""
        for name in list(self.hooks.undecided()):
            job = self.state.jobs[name]
            seen = job.curve is not None and job.state.arrival <= self._asked and name not in self._undecided
            if job.state.admitted:
                self.hooks.decided(name, True, "")
            elif not job.waits:
                self.hooks.decided(name, False, (job.error or job.status).strip().splitlines()[-1])
            elif seen:
                why = f"policy {self.policy.name} promises it nothing; it trains as if it had no deadline"
                self.hooks.decided(name, False, why)

    def _promise(self, name: str) -> None:
        deadline = self.state.jobs[name].state.deadline
        self.recorder.record(events.Admitted(job=name, deadline=deadline if deadline < math.inf else None))

    def _record_late(self, late: Mapping[str, float]) -> None:
        """Record each promise that cannot be kept any more, once, and each that can be kept after all."""
        known = self.state.late
        for name in late.keys() - known:
            end, deadline = late[name], self.state.jobs[name].state.deadline
            self.recorder.record(events.Late(job=name, deadline=deadline, end=end if end < math.inf else None))
        for name in known - late.keys():
            self._promise(name)

    def _check_somebody_trains(self, plan: Plan) -> None:
        """End a run in which jobs wait and no plan can give them a device.

        Raises:
            RanksLost: all of them keep their bits on kinds of device that are lost; the next start has these again.
            TooFewDevicesError: too many devices are lost.
            RuntimeError: the policy gives no device to anyone.
        """
        if self.state.running:
            return
        waiting = [job.name for job in self.state.unfinished if job.state.arrival <= self._now()]
        if not waiting:
            return
        kinds, lost, names = self.state.stranded, self.state.lost_devices, ", ".join(waiting)
        if kinds and kinds.keys() >= {*waiting}:
            raise RanksLost(
                f"all devices of kind {' and '.join(sorted({*kinds.values()}))} were lost, and these jobs keep their "
                f"bits on that kind alone: {names}; the run is started again from its checkpoints"
            )
        if plan.wake == math.inf:
            text = f"policy {self.policy.name} gives no device to anyone, while these jobs wait: {names}"
            if not lost:
                raise RuntimeError(text)
            gone = ", ".join(map(str, sorted(lost)))
            raise TooFewDevicesError(f"{text}; devices {gone} are lost, a new start has them again")

    def _start_who_can(self) -> None:
        """Start the pending jobs once they and their devices are free: together, as some may share samples."""
        pending = {job: devices for job, devices in self._pending.devices.items() if self.state.jobs[job].waits}
        self._pending = replace(self._pending, devices=pending)
        running = self.state.running
        held = {device for devices in running.values() for device in devices}
        wanted = {device for devices in pending.values() for device in devices}
        if pending and held.isdisjoint(wanted) and running.keys().isdisjoint(pending):
            starting, self._pending = self._pending, PendingStarts()
            self._start(starting)

    def _start(self, starting: PendingStarts) -> None:
        """Begin a round."""
        allocation = {**self.state.held, **starting.devices}
        self._end_round()
        self._batches.settle(starting.devices, starting.batches)
        others_go_on = len(allocation) - len(starting.devices) > MOST_TOLD_AGAIN
        named = starting.devices if others_go_on else allocation
        paces = {job: self.state.pace(job, devices) for job, devices in named.items()}
        number, keys = len(self.state.rounds), starting.keys
        self.recorder.record(
            events.Planned(round=number, allocation=named, paces=paces, others_go_on=others_go_on, **keys)
        )
        starts = [self._start_of(job, starting) for job in starting.devices]
        batch = self._feeding.choose(number, starts, allocation)
        start_of = {start.job: start for start in batch}
        for started in self.executor.start(batch, number, self.policy.shares_streams):
            job, devices, start = self.state.jobs[started.job], starting.devices[started.job], start_of[started.job]
            begun, kind = start.devices, "" if start.shares else self.state.kinds_of(start.devices)[0]
            where: dict[str, Any] = {"devices": begun, "kept": devices if begun != devices else (), "kind": kind}
            how: dict[str, Any] = {"shares": start.shares, "prepared_by": start.prepared_by}
            self.recorder.record(
                events.Started(round=number, epoch=job.epoch, step=job.step, **vars(started), **where, **how)
            )
            self._hear(job.name)
            self._first.started(job.name, begun, self._now())
            self._trigger.started(job.name)
            self._batches.started(job.name)
            if self._successors is not None:
                self._successors.started(job.name)
        self.hooks.save()

    def _start_of(self, name: str, starting: PendingStarts) -> Start:
        job, devices = self.state.jobs[name], self._first.begins_on(name, starting.devices[name])
        kinds, resume, lane = self.state.kinds_of(devices), job.epoch + job.step > 0, starting.lanes.get(name, 0)
        turns = job.turn_seconds(kinds, self.state.feeds(name))
        return Start(name, devices, job.epoch, job.step, resume, turns, lane, job.shares(kinds), until=job.until)

    def _leave(self, job: str, why: StopReason) -> None:
        if job not in self._leaving:
            self._leaving.add(job)
            self.executor.stop(job, "ahead" if self.state.jobs[job].state.ahead and why == "policy" else why)

    def _stop_all(self) -> bool:
        """Have everybody leave; return whether all have, and what they did is saved."""
        if not self._stopping:
            self._stopping = True
            if self._successors is not None:
                self._successors.settle({})
            self.recorder.record(events.Stopping(jobs=tuple(self.state.running)))
            for job in list(self.state.running):
                self._leave(job, "signal")
        return not self.executor.save_held() and not self.state.running

    def _end_round(self) -> None:
        if (last := self.state.round) is not None:
            self.recorder.record(events.RoundEnded(round=last.index, start=last.start, end=self._now()))

    def _record(self, event: Event) -> None:
        """Record one event, and what follows from it."""
        if isinstance(event, RanksGone):
            self._record_loss(event)
            return
        if event.job in self.state.running:  # a job's last checkpoint may come when its group has parted
            self._hear(event.job)
        if isinstance(event, EpochEnded):
            devices = self.state.running.get(event.job)
            if devices is not None:  # else a lost rank's last word
                before = self.state.jobs[event.job].expected_end
                self.recorder.record(epoch_of(event, self._round, devices))
                self._first.ended_epoch(event.job)
                if not self._learn(event.job, before) and self.state.is_dealt_badly(event.job):
                    self._trigger.happened(self._now(), event.job)
                elif self._successors is not None and self._is_quiet:
                    self._successors.look(self._now(), event.seconds)
        elif isinstance(event, CheckpointWritten):
            record_checkpoint(self.recorder.record, event)
        elif isinstance(event, Formed):
            self.recorder.record(events.Formed(job=event.job, seconds=event.seconds))
            for text in event.warnings:
                self.recorder.record(events.Warned(text=text, job=event.job))
        elif isinstance(event, StepsTimed):
            self._first.on_steps_timed(event)
        elif isinstance(event, Measured):
            self._heard.pop(event.job, None)
            self._newcomers.on_measured(event)
            self._trigger.happened(self._now(), event.job)
        elif isinstance(event, GroupEnded):
            self._record_end(self._judged(event))
        elif isinstance(event, SetBack):
            found = self.hooks.stands(event.job)
            self.recorder.record(events.SetBack(job=event.job, epoch=found.epoch, step=found.step))
            self._trigger.happened(self._now(), event.job)
        elif isinstance(event, AtStep):
            before = self.state.jobs[event.job].expected_end
            self.recorder.announce(events.Progress(**vars(event)))
            if self._learn(event.job, before) and 0 < event.rate < self.state.jobs[event.job].state.pace:
                self.recorder.announce(events.Slowed(job=event.job, rate=event.rate))

    def _learn(self, job: str, before: float) -> bool:
        """Tell the trigger a job's expected end, and what it was `before`; return whether a promise is late."""
        if job not in self.state.running:
            return False
        patience = self.state.margin if self.state.jobs[job].state.admitted else None
        return self._trigger.learnt(self._now(), job, before, self.state.jobs[job].expected_end, patience)

    @property
    def _is_quiet(self) -> bool:
        """Whether the last plan is carried out and no other is about to be made."""
        busy = self._stopping or self._leaving or self._pending.devices or self._trigger.clearing
        return not busy and self._trigger.next > self._now()

    @property
    def _round(self) -> int:
        return self.state.rounds[-1].index

    def _record_loss(self, event: RanksGone) -> None:
        """Plan anew at once: the last plan did not know that these ranks are gone."""
        self.recorder.record(events.RanksLost(ranks=event.ranks, devices=event.devices, hosts=event.hosts))
        self._trigger.happened(self._now(), *self._pending.devices, *self.state.stranded, urgent=True)
        self._pending = PendingStarts()
        if self._successors is not None:
            self._successors.settle({})
        self._trigger.clearing = (self._trigger.clearing or event.all_leave) and bool(self.state.running)

    def _record_end(self, event: GroupEnded) -> None:
        self._leaving.discard(event.job)
        self._heard.pop(event.job, None)
        self._newcomers.ended(event.job)
        self._first.ended(event.job)
        curves, guessed = self.state.jobs[event.job].curves, self.state.jobs[event.job].guessed
        if curves:
            self.recorder.record_rates(event.job, curves, "guessed" if guessed else "training")
        self.recorder.record(end_of(event, self._round if curves else None, self.state.jobs[event.job]))
        self._halting.ended(event)
        self._answer_deadlines()
        self._trigger.clearing = self._trigger.clearing and bool(self.state.running)
        batches = self._batches.due(event)
        successor = self._successors and self._successors.after(event)
        if successor and not self._pending.devices and not self._stopping:
            self._trigger.noted(event.job)
            self._pending = PendingStarts({successor.job: successor.devices}, keys={"seconds": 0.0})
        elif batches and not self._pending.devices:
            self._pending = PendingStarts({event.job: event.devices}, batches=batches)
        elif not (self._pending.devices and event.reason in ("policy", "ahead")):  # it makes room for a plan
            self._trigger.happened(self._now(), event.job)
        self.hooks.save()

    def _judged(self, event: GroupEnded) -> GroupEnded:
        """Return how a lost group ended: its checkpoints say from where the job goes on, or that it is done.

        A job that costs one rank after another has failed.
        """
        if event.why != "lost":
            return event
        found, job = self.hooks.stands(event.job), self.state.jobs[event.job]
        event = replace(event, epoch=found.epoch, step=found.step)
        if found.ended:
            self.recorder.note(self.state.stands_at, event.job, found)
            return replace(event, why="done", reason=found.ended)
        death = self.hooks.death(event.devices)
        if death is not None and death.stack:
            return replace(event, why="failed", error=death.error, traceback=death.stack, cost_ranks=True)
        losses = job.ranks_cost + (not self.state.lost_devices.isdisjoint(event.devices))
        if losses <= MOST_LOSSES:
            return event
        return replace(event, why="failed", error=costs_too_many(losses), cost_ranks=True)

    def _hear(self, job: str) -> None:
        self._heard.pop(job, None)
        self._heard[job] = self._now()

    def _check_silence(self) -> None:
        """End a run in which a group is silent: its job fails, and the next start goes on without it.

        A group that only waits for others is not to blame, unless no other is found after twice the time.

        Raises:
            SilentGroupError: it names the job.
        """
        now = self._now()
        for job, heard in self._heard.items():
            late = now - heard - self._silence
            if late <= 0:
                return
            devices = self.state.running.get(job, ())
            if late > self._silence or not self.hooks.waits(devices):
                text = (
                    f"job {job} on devices {', '.join(map(str, devices))} has said nothing for {now - heard:.0f} s; "
                    f"if its steps really take that long, raise resources.timeout (now {self._silence:.0f} s)"
                )
                epoch, stacks = self.state.jobs[job].epoch, self.hooks.stuck()
                what: dict[str, Any] = {
                    "job": job,
                    "devices": devices,
                    "epoch": epoch,
                    "error": text,
                    "traceback": stacks,
                }
                self.recorder.record(events.Failed(round=self._round, cost_ranks=True, **what))
                raise SilentGroupError(text, job)


def costs_too_many(losses: int) -> str:
    """Return the error of a job that cost so many ranks."""
    return (
        f"{losses} times in a row a rank was lost that trained it; if it took too much memory, the system's log "
        "says so: give the job more devices, or a smaller batch"
    )


class BatchRequests:
    """Gives jobs the batches that a policy chooses for them.

    A job whose batch is chosen once has it for good when it first starts. Any other batch changes between two epochs: a
    job inside an epoch leaves its devices at the epoch's end and goes on there at once. Where the batch may not change
    so much at once, it changes again at the end of the next epoch, until the job has what the policy wants.

    Args:
        executor: stops jobs at the end of their epoch.
        recorder: records the batches.
        hooks: tell all ranks.
    """

    def __init__(self, executor: Executor, recorder: Recorder, hooks: RunHooks) -> None:
        self._executor, self._recorder, self._hooks = executor, recorder, hooks
        self._wanted: dict[str, int] = {}  # job inside an epoch -> samples of a step from its end on

    def settle(self, starting: Iterable[str], wanted: Mapping[str, int]) -> None:
        """Give jobs that are about to start the batch with which they begin.

        Args:
            wanted: job -> samples of a step, where the policy wants another batch.
        """
        for name in starting:
            job = self._recorder.state.jobs[name]
            self._wanted.pop(name, None)
            if job.batches is None or job.batch is None:
                continue
            target = job.batches.nearest(wanted.get(name, job.batch))
            batch = job.batches.nearest(job.towards(target))
            if job.schedule is None:
                self._recorder.record(events.Batch(job=name, batch=batch))
            elif job.step and not job.is_as_it_has(batch):
                self._wanted[name] = target
            elif not job.is_as_it_has(batch):
                self._recorder.record(events.Batch(job=name, batch=batch, epoch=job.epoch, parts=job.parts_of(batch)))
                if batch != target:
                    self._wanted[name] = target
            self._hooks.tell_batch(name)

    def started(self, job: str) -> None:
        """Stop a job at the end of its epoch if it is to have another batch."""
        if job in self._wanted:
            self._executor.stop(job, "epoch")

    def due(self, event: GroupEnded) -> Mapping[str, int]:
        """Return the batch for which a job has left its devices; empty if it left them for another reason."""
        batch = self._wanted.pop(event.job, None)
        return {event.job: batch} if batch is not None and event.reason == "epoch" else {}


class Halting:
    """Stops jobs by name while the others go on, and records them as stopped once what they did is saved.

    Args:
        executor: saves jobs that wait in memory.
        recorder: of the run.
        hooks: know which jobs people want stopped.
    """

    def __init__(self, executor: Executor, recorder: Recorder, hooks: RunHooks) -> None:
        self._executor, self._recorder, self._hooks = executor, recorder, hooks
        self._requested: Collection[str] = ()

    def look(self, leave: Callable[[str, StopReason], None], measured: str) -> list[str]:
        """Do what is newly requested; return the jobs of which a plan has to know.

        Args:
            leave: asks a job to leave its devices.
            measured: the job that is measured now; it is stopped after that.
        """
        requested, jobs, running = self._hooks.halted(), self._recorder.state.jobs, self._recorder.state.running
        over = [n for n in self._requested if n not in requested and n in jobs and jobs[n].status == "stopped"]
        self._requested = requested
        waiting = [name for name in requested if name in jobs and jobs[name].waits and name != measured]
        for name in waiting:
            if name in running:
                leave(name, "asked")
        idle = [name for name in waiting if name not in running]
        if idle and self._executor.save_held():
            idle = []  # until what they did is on the disk
        for name in idle:
            _record_halt(self._recorder, name)
        for name in over:
            self._recorder.record(events.TakenUp(job=name))
        return [*idle, *over]

    def ended(self, event: GroupEnded) -> None:
        """Record that a job is stopped which was asked to leave: its checkpoint is written."""
        if event.why == "stopped" and event.reason == "asked":
            _record_halt(self._recorder, event.job)


def apply_stop_requests(requested: Collection[str], recorder: Recorder) -> None:
    """Record, as a session begins, which jobs people have stopped since the last one, and which they take up again."""
    for name, job in list(recorder.state.jobs.items()):
        if name in requested and job.waits:
            _record_halt(recorder, name)
        elif name not in requested and job.status == "stopped":
            recorder.record(events.TakenUp(job=name))


def _record_halt(recorder: Recorder, name: str) -> None:
    job = recorder.state.jobs[name]
    recorder.record(events.Halted(job=name, epoch=job.epoch, step=job.step))


MOST_EPOCH_SECONDS = 5.0
"""Where epochs take longer, what stands between two networks is little, and more may change until one ends."""
MOST_PLAN_SECONDS = 0.02
"""A policy that takes longer is not asked twice for each network."""


@dataclass(frozen=True)
class Successor:
    """A job that is told to train on a device as soon as another one leaves it."""

    job: str
    devices: tuple[int, ...]


class Successors:
    """Asks the policy, as networks begin their last epochs, what it would start once they are done.

    Where it would start networks that have never trained, each on one of the devices that become free, and leave all
    others as they are, these are sent to their devices at once and begin when the networks before them leave. Whatever
    else happens until then has the policy asked anew, and calls off who is not to follow after all.

    Args:
        policy: the run's.
        executor: starts those who follow.
        recorder: its state says how far networks are.
        share: whether networks at one place of a stream read together.
    """

    def __init__(self, policy: Policy, executor: Following, recorder: Recorder, share: bool) -> None:
        self._policy, self._executor, self._state, self._share = policy, executor, recorder.state, share
        self._of: dict[str, Successor] = {}  # job in its last epoch -> who follows it
        self._due: dict[str, Successor] = {}  # followers that have not been started, after a job that has left
        self._asked: frozenset[str] = frozenset()  # jobs in their last epochs when the policy was asked last
        self._is_quick = not recorder.state.cluster.kinds

    def look(self, now: float, seconds: float) -> None:
        """Choose who follows the networks that are in their last epochs, and send these to their devices.

        Args:
            seconds: that the last epoch took.
        """
        if not self._is_quick or seconds > MOST_EPOCH_SECONDS:
            return
        ending = {job for job in self._state.running if job not in self._of and self._is_last(job)}
        if not ending or ending == self._asked:
            return
        self._asked = frozenset(ending)
        if self._state.lost_devices or self._state.kept or self._state.helpers.counted:
            return
        state, begin = self._as_if_ended(now, ending), thread_time()
        plan = self._policy.plan(state)
        self._is_quick = thread_time() - begin < MOST_PLAN_SECONDS
        freed = {device for job in ending for device in self._state.running[job]}
        found = self._followers(plan, state.running, freed)
        starts = {
            next(name for name in ending if devices[0] in self._state.running[name]): self._start_of(job, devices)
            for job, devices in found.items()
        }
        if starts and self._executor.follow(starts, self._share):
            self._of |= {before: Successor(start.job, start.devices) for before, start in starts.items()}

    def after(self, event: GroupEnded) -> Successor | None:
        """Return who follows a group that has ended; None: the policy is to be asked."""
        found = self._of.pop(event.job, None)
        if found is None:
            return None
        if event.why == "done" and event.devices == found.devices and self._waits(found):
            self._due[found.job] = found
            return found
        self._executor.call_off(found.job)
        return None

    def started(self, job: str) -> None:
        """Forget a job that followed another and has been started."""
        self._due.pop(job, None)

    def settle(self, allocation: Allocation) -> None:
        """Call off whoever does not follow another by a new plan."""
        for job, found in list(self._of.items()):
            goes_on = self._state.running.get(job, ()) == allocation.get(job) and found.job not in allocation
            if not (goes_on and self._waits(found)):
                self._executor.call_off(found.job)
                del self._of[job]
        for name, found in list(self._due.items()):
            if allocation.get(name) != found.devices:
                self._executor.call_off(name)
                del self._due[name]
        self._asked = frozenset()

    def _waits(self, found: Successor) -> bool:
        return self._state.jobs[found.job].waits and found.job not in self._state.running

    def _is_last(self, job: str) -> bool:
        """Return whether a job's last epoch has just begun, on one device."""
        record = self._state.jobs[job]
        known = record.until is None and len(self._state.running[job]) == 1 and record.samples < math.inf
        left = record.samples - record.epoch * record.state.epoch if known else 0.0
        return record.step == 0 and 0 < left <= record.state.epoch

    def _as_if_ended(self, now: float, ending: Collection[str]) -> State:
        """Return the state once these networks are done, and those whose successors are known."""
        state, gone = self._state.for_policy(now), {*ending, *self._of}
        running = {job: devices for job, devices in state.running.items() if job not in gone}
        running |= {found.job: found.devices for found in self._of.values()}
        by_name = {name: job for name, job in state.by_name.items() if name not in gone}
        return replace(state, by_name=by_name, running=running, memo=None, books=None)

    def _followers(self, plan: Plan, running: Allocation, freed: Collection[int]) -> Allocation:
        """Return the jobs that a plan starts, if it does nothing else and each gets one device that becomes free."""
        allocation = plan.whole_of(running)
        decisions = (plan.batches, plan.admitted, plan.dropped, plan.undecided, plan.late, plan.windows, plan.promoted)
        more = any(decisions) or plan.promises or plan.lent or any(plan.lanes.values()) or plan.wake < math.inf
        if more or any(allocation.get(job) != held for job, held in running.items()):
            return {}
        new = {job: tuple(devices) for job, devices in allocation.items() if job not in running}
        fits = all(len(devices) == 1 and devices[0] in freed and self._is_plain(job) for job, devices in new.items())
        return new if fits else {}

    def _is_plain(self, job: str) -> bool:
        """Return whether nothing has to be settled before a job starts."""
        record = self._state.jobs[job]
        fresh = not record.started and record.epoch == record.step == 0
        return fresh and record.until is None and record.batches is None and record.schedule is None

    def _start_of(self, job: str, devices: tuple[int, ...]) -> Start:
        record = self._state.jobs[job]
        turns = record.turn_seconds(self._state.kinds_of(devices), self._state.feeds(job))
        return Start(job, devices, 0, 0, False, turns, shares=record.shares(self._state.kinds_of(devices)))


FASTER = 1.1
"""Networks are formed anew for more trainers that prepare samples if these let them train so many times as fast."""
WORTH = 2.0
"""And if that saves so many times what forming takes."""


class Feeding:
    """Chooses anew, at each re-forming, how many preprocessors and helping trainers fill the lanes of those who start.

    Open lanes stay with those who fill them.

    Args:
        recorder: its state knows how fast preprocessors are; the choice is recorded there.
        share: whether jobs at the same place of a stream read together.
    """

    def __init__(self, recorder: Recorder, share: bool) -> None:
        self._recorder, self._state, self._share = recorder, recorder.state, share

    def choose(self, round_: int, batch: Sequence[Start], allocation: Allocation) -> tuple[Start, ...]:
        """Return the starts of a round with those who fill their lanes.

        All preprocessors work where there is one and nobody to help it, or where nobody knows how fast preprocessors
        are or how fast a job trains.

        Args:
            allocation: the whole one of the round, with those that go on.
        """
        path, lent = self._state.data_path, self._state.helpers.counted
        if path is None or path.most + lent < 2 or any(self._state.jobs[job].guessed for job in allocation):
            return tuple(batch)
        demand = self._demand(batch, allocation)
        needed = path.on(path.most + lent).needed(demand) if lent else path.needed(demand)
        working = min(needed, path.most)
        trainers = self._without_network(batch)[: needed - working]
        chosen: dict[str, Any] = {"demand": demand, "working": working, "available": path.most, "trainers": trainers}
        self._recorder.record(events.Preprocessing(round=round_, **chosen))
        return tuple(replace(start, makers=working, prepared_by=trainers) for start in batch)

    def formed_anew(self, new: Allocation, allocation: Allocation, lent: int) -> dict[str, tuple[int, ...]]:
        """Return all who start anew: those of a plan, those whose samples a wanted trainer makes, and those who train
        much faster if trainers make more of their samples.

        Args:
            allocation: all who train from now on.
            lent: how many trainers may prepare samples then.
        """
        if not self._state.helpers.lending.most:
            return {**new}
        wanted = {device for devices in new.values() for device in devices}
        others = {job: tuple(allocation[job]) for job in self._state.running if job in allocation and job not in new}
        readers = self._state.helpers.readers(others, wanted)
        if not readers and self._is_worth_forming(others, allocation, lent):
            readers = list(others)
        return {**new, **{job: others[job] for job in readers}}

    def _is_worth_forming(self, others: Allocation, allocation: Allocation, lent: int) -> bool:
        """Return whether so many helping trainers let those who would go on train so much faster that forming them
        pays.
        """
        path, known = self._state.data_path, len(self._state.helpers.devices(others))
        jobs = [self._state.jobs[job] for job in others]
        if path is None or lent <= known or not jobs or any(job.guessed for job in jobs):
            return False
        demand = self._demand((), allocation)
        now, then = (min(demand, _made(path, count)) for count in (known, lent))
        if not then or then < FASTER * now:
            return False
        lasts = max(job.expected_end - job.state.ready for job in jobs) * demand / now  # as slowly as they are fed
        return lasts * (1 - now / then) > WORTH * self._state.longest_forming

    def _without_network(self, batch: Sequence[Start]) -> tuple[int, ...]:
        """Return the devices that no job has: first those whose trainers prepare samples now, then the last ones."""
        held = [*self._state.held.values(), *(start.devices for start in batch)]
        taken = self._state.lost_devices.union(*held)
        now = self._state.helpers.devices(self._state.running)
        free = [device for device in range(self._state.cluster.size) if device not in taken]
        return tuple(sorted(free, key=lambda device: (device not in now, -device)))

    def _demand(self, batch: Sequence[Start], allocation: Allocation) -> float:
        """Return the samples/s that all jobs read at their paces there."""
        jobs = self._state.jobs
        paces = {job: self._state.pace(job, devices) for job, devices in allocation.items()}
        return demand_of((stream, paces.get(job, 0.0) * jobs[job].state.passing) for job, stream in self._read(batch))

    def _read(self, batch: Sequence[Start]) -> Iterator[tuple[str, object]]:
        """Yield each job that trains, and what it reads."""
        starting = {start.job: start for start in batch}
        for job in self._state.running:
            if job not in starting:
                yield job, self._state.jobs[job].state.lane if self._share else job
        for job, start in starting.items():
            yield job, (self._state.jobs[job].stream, start.epoch, start.lane_group) if self._share else job


def _made(path: DataPath, lent: int) -> float:
    """Return the samples/s of all preprocessors and so many trainers."""
    return path.on(path.most + lent).made_by(path.most + lent)


def epoch_of(message: EpochEnded, round_: int, devices: tuple[int, ...]) -> events.Epoch:
    """Return the event of an epoch that a job has finished on these devices."""
    by_member = {"waited_data", "waited_peers", "computed"}
    same = {key: value for key, value in vars(message).items() if key not in by_member}
    return events.Epoch(round=round_, devices=devices, **same, **_seconds_of(devices, message))


def dropped_by(policy: str, why: str = "") -> str:
    """Return the error of a job that its policy will never run."""
    return f"policy {policy} dropped it: {why}"


def end_of(ended: GroupEnded, round_: int | None, job: JobRecord) -> events.Event:
    """Return the event of a group's end."""
    common: dict[str, Any] = {"round": round_, "job": ended.job, "devices": ended.devices, "epoch": ended.epoch}
    if ended.why == "done":
        return events.Done(**common, why=ended.reason, metrics=job.metrics, checkpoint=job.checkpoint)
    if ended.why == "failed":
        return events.Failed(**common, error=ended.error, traceback=ended.traceback, cost_ranks=ended.cost_ranks)
    common |= {"step": ended.step, **_seconds_of(ended.devices, ended)}
    if ended.why == "stopped" and ended.reason == "pause":
        return events.Paused(**common, why=ended.reason)
    return events.Stopped(**common, why=ended.reason if ended.why == "stopped" else "lost")


def _seconds_of(devices: tuple[int, ...], told: EpochEnded | GroupEnded) -> dict[str, Any]:
    """Return what each device did since the last report, seconds."""
    waited = {d: events.Waited(a, b) for d, a, b in zip(devices, told.waited_data, told.waited_peers)}
    return {"waited": waited, "computed": dict(zip(devices, told.computed))}
