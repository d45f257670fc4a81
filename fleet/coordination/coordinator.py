"""Rank 0's loop: ask the policy, carry its allocation out, wait for what happens, write it down."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter, thread_time

from fleet.coordination.agenda import Agenda
from fleet.coordination.batch_wishes import BatchWishes
from fleet.coordination.bookkeeper import Bookkeeper
from fleet.coordination.coming import Coming
from fleet.coordination.errors import SilentGroupError
from fleet.coordination.event_lines import dropped_by, end_of, epoch_of
from fleet.coordination.executor import (
    Event,
    Executor,
    Following,
    GroupEnded,
    Measured,
    RanksGone,
    SetBack,
    Start,
    StopReason,
)
from fleet.coordination.feeding import Feeding
from fleet.coordination.first_rates import FirstRates
from fleet.coordination.halting import Halting
from fleet.coordination.kept_best import record_checkpoint
from fleet.coordination.lost_devices import end_if_stranded, nobody_trains, unharmed
from fleet.coordination.newcomer_rates import NewcomerRates
from fleet.coordination.outside import Outside
from fleet.coordination.protocol import AtStep, CheckpointWritten, EpochEnded, Formed, StepsTimed
from fleet.coordination.successors import Successors
from fleet.journal import events
from fleet.scheduling.model.plan import Plan
from fleet.scheduling.model.policy import Policy
from fleet.scheduling.model.prices import Prices
from fleet.scheduling.model.state import validate
from fleet.scheduling.policies.with_lent_trainers import with_lent_trainers
from fleet.scheduling.policies.within_prices import driven

POLL_SECONDS = 1.0
MOST_TOLD_AGAIN = 64  # networks that go on, of which the line of a round tells where they train
MOST_LOSSES = 3  # losses of a job in a row, without a checkpoint between them: then it is its own fault


class Coordinator:
    """Drives a policy over an executor until every job is done or failed, or a stop was asked for.

    Args:
        policy: pure; decides what should run from now on.
        executor: carries it out, live or simulated.
        books: the books and the journal; its clock is the coordinator's clock.
        outside: the run around it.
        silence: seconds without a word from a group after which the run is ended.
        poll: seconds after which it looks outside.
        prices: of the devices; None: they do not count.
        following: the executor, if it tells devices what comes next before a network there ends.
    """

    def __init__(
        self, policy: Policy, executor: Executor, books: Bookkeeper, outside: Outside, silence: float,
        poll: float = POLL_SECONDS, prices: Prices | None = None, following: Following | None = None,
    ) -> None:  # fmt: skip
        policy = with_lent_trainers(driven(policy, books.ledger.cluster, prices), books.ledger.lent.lending)
        self.policy, self.executor, self.outside = policy, executor, outside
        self.books, self.ledger, self._now = books, books.ledger, books.journal.seconds
        self._silence, self._poll = silence, poll
        self._agenda = Agenda(policy.trigger)
        self._coming = Coming()
        self._leaving: set[str] = set()  # asked to stop, not gone yet
        self._heard: dict[str, float] = {}  # job -> when its group last said something, the longest silent first
        self._stopping, self._asked = False, -math.inf  # all shall leave; when the policy was asked last
        self._newcomers, self._batches = NewcomerRates(executor, books), BatchWishes(executor, books, outside)
        self._feeding = Feeding(books, policy.shares_streams)
        self._first, self._halting = FirstRates(books, outside), Halting(executor, books, outside)
        share = policy.shares_streams
        self._successors = None if following is None else Successors(policy, following, books, share)
        self._plan_seconds = 0.0
        self._undecided: Mapping[str, str] = {}  # jobs on whose deadlines the policy decides later

    def run(self) -> None:
        """One round after another, until nothing is left to run."""
        self._look_outside()
        while not self.ledger.jobs.are_over:
            with self._work():
                if self.outside.stop_requested():
                    if self._stop_all():
                        break
                elif self._measure():
                    pass
                elif news := self._first.due(self._now(), not self._coming.devices):
                    self._agenda.happened(self._now(), *news)
                elif self._now() >= self._agenda.next:
                    self._carry_out(self._ask())
                elif self._coming.devices:
                    self._start_who_can()
            event = self.executor.next_event(self._patience())
            with self._work():
                if event is not None:
                    self._record(event)
                self._check_silence()
            self._look_outside()
        self._end_round()

    def _measure(self) -> bool:
        """Go on measuring a job that came without rates, or clearing devices for it; True: plans wait for that."""
        waits = not self._coming.devices and self._newcomers.advance(self._leave)
        if waits:
            self._coming = self._newcomers.unhelped
        self._agenda.measuring = waits or bool(self._newcomers.unhelped.devices)
        if self._newcomers.measured:
            self._heard.setdefault(self._newcomers.measured, self._now())
        return waits

    @contextmanager
    def _work(self) -> Iterator[None]:
        """The coordinator's own, which is charged in CPU seconds: the trainers go on meanwhile."""
        begin = thread_time()
        yield
        self.books.note(self.ledger.charged, "scheduling", thread_time() - begin)

    def _look_outside(self) -> None:
        """Take in who has come, from outside or by the time of arrival that its spec gives."""
        with self._work():
            self.outside.take_in()
        now = self._now()
        if changed := self._halting.look(self._leave, self._newcomers.measured):
            self._agenda.happened(now, *changed)
        if arrived := self.ledger.come(now):
            self.books.note(self.ledger.arrived, arrived)
            urgent = any(self.ledger.jobs[job].state.guaranteed for job in arrived)
            self._agenda.happened(now, *arrived, urgent=urgent)

    def _patience(self) -> float:
        """How long to wait for an event before there is something else to do, seconds."""
        now = self._now()
        silences = (heard + self._silence for heard in self._heard.values())
        silent = next((end for end in silences if end > now), math.inf)
        until = min(self._agenda.next, self.ledger.next_arrival, silent, self._first.next)
        return min(self._poll, max(0.0, until - now))

    def _ask(self) -> Plan:
        """What the policy wants from now on. Devices stand idle meanwhile: all of that time counts, not the CPU's."""
        begin, cpu = perf_counter(), thread_time()
        changed = tuple(dict.fromkeys((*self._agenda.changed, *self._coming.devices)))  # as if these had started
        self._asked = self._now()
        state = self.ledger.state(self._asked, changed, self._agenda.memo)
        plan = self.policy.plan(state)
        validate(plan.whole_of(state.staying), state)
        self._plan_seconds = perf_counter() - begin
        self.books.note(self.ledger.charged, "scheduling", max(0.0, self._plan_seconds - (thread_time() - cpu)))
        self._first.choose(self.policy, state, plan)
        self._agenda.planned(plan)
        return plan

    def _carry_out(self, plan: Plan) -> None:
        """Make what runs equal to the plan: stop what has no place in it, start what is new."""
        self._decide(plan)
        running = self.ledger.running
        allocation = plan.whole_of(unharmed(self.ledger.held, self.ledger.lost_devices))
        if self._successors is not None:
            self._successors.settle(allocation)
        anew = {job for job in self.ledger.shares if self.ledger.is_dealt_badly(job)}
        anew |= self._leaving | plan.lanes.keys()  # who was told to go cannot be called back: it begins again there
        new = {
            job: tuple(devices)
            for job, devices in allocation.items()
            if job in anew or job not in running
            or (running[job] != devices or job in self.ledger.kept) and self._first.has(job) != tuple(devices)
        }  # fmt: skip
        if self.policy.shares_streams:
            new = self._first.with_mates(new, allocation)
        new = self._feeding.formed_anew(new, allocation, plan.lent or 0)
        for job in running:
            if job in new or job not in allocation:
                self._leave(job, "policy")
        told = {"bound_seconds": plan.bound, "end_seconds": plan.end, "lent": plan.lent}
        self._coming = Coming(new, plan.lanes, plan.batches, {"seconds": self._plan_seconds, **told})
        self._start_who_can()
        if not self._coming.devices and not self._leaving:
            self.executor.save_held()  # jobs pause while others go on
        self._check_somebody_trains(plan)

    def _decide(self, plan: Plan) -> None:
        """Book what is promised, whose service is forgotten, and who will never run."""
        for name in plan.admitted:
            self._promise(name)
        self._tell_late(self.ledger.noticed(plan.late))
        self.books.record_windows(plan.windows)
        self.books.note(self.ledger.promised, plan.promises)
        for name in plan.promoted:
            self.books.record(events.Pardoned(job=name))
        for name, why in plan.dropped.items():
            error, epoch = dropped_by(self.policy.name, why), self.ledger.jobs[name].epoch
            self.books.record(events.Failed(job=name, epoch=epoch, error=error))
        self._undecided = plan.undecided
        self._tell_verdicts()

    def _tell_verdicts(self) -> None:
        """Tell the owners of jobs that came whether their deadlines are promised, as far as that is known."""
        for name in list(self.outside.undecided()):
            job = self.ledger.jobs[name]
            seen = job.curve is not None and job.state.arrival <= self._asked and name not in self._undecided
            if job.state.admitted:
                self.outside.decided(name, True, "")
            elif not job.waits:
                self.outside.decided(name, False, (job.error or job.status).strip().splitlines()[-1])
            elif seen:
                why = f"policy {self.policy.name} promises it nothing; it trains as if it had no deadline"
                self.outside.decided(name, False, why)

    def _promise(self, name: str) -> None:
        deadline = self.ledger.jobs[name].state.deadline
        self.books.record(events.Admitted(job=name, deadline=deadline if deadline < math.inf else None))

    def _tell_late(self, late: Mapping[str, float]) -> None:
        """Tell of each promise that cannot be kept any more, once, and of each that can be kept after all."""
        known = self.ledger.late
        for name in late.keys() - known:
            end, deadline = late[name], self.ledger.jobs[name].state.deadline
            self.books.record(events.Late(job=name, deadline=deadline, end=end if end < math.inf else None))
        for name in known - late.keys():
            self._promise(name)

    def _check_somebody_trains(self, plan: Plan) -> None:
        if self.ledger.running:
            return
        waiting = [job.name for job in self.ledger.unfinished if job.state.arrival <= self._now()]
        if not waiting:
            return
        end_if_stranded(waiting, self.ledger.stranded)
        if plan.wake == math.inf:
            raise nobody_trains(self.policy.name, waiting, self.ledger.lost_devices)

    def _start_who_can(self) -> None:
        """Start those who come once they and their devices are free: together, as some may share samples."""
        coming = {job: devices for job, devices in self._coming.devices.items() if self.ledger.jobs[job].waits}
        self._coming = replace(self._coming, devices=coming)
        running = self.ledger.running
        held = {device for devices in running.values() for device in devices}
        wanted = {device for devices in coming.values() for device in devices}
        if coming and held.isdisjoint(wanted) and running.keys().isdisjoint(coming):
            starting, self._coming = self._coming, Coming()
            self._start(starting)

    def _start(self, starting: Coming) -> None:
        """Begin a round."""
        allocation = {**self.ledger.held, **starting.devices}
        self._end_round()
        self._batches.settle(starting.devices, starting.batches)
        others_go_on = len(allocation) - len(starting.devices) > MOST_TOLD_AGAIN
        named = starting.devices if others_go_on else allocation
        paces = {job: self.ledger.pace(job, devices) for job, devices in named.items()}
        number, keys = len(self.ledger.rounds), starting.keys
        self.books.record(
            events.Planned(round=number, allocation=named, paces=paces, others_go_on=others_go_on, **keys)
        )
        starts = [self._start_of(job, starting) for job in starting.devices]
        batch = self._feeding.choose(number, starts, allocation)
        told = {start.job: start for start in batch}
        for started in self.executor.start(batch, number, self.policy.shares_streams):
            job, devices = self.ledger.jobs[started.job], starting.devices[started.job]
            begun = self._first.begins_on(job.name, devices)
            start, kinds = told[job.name], self.ledger.kinds_of(told[job.name].devices)
            self.books.record(
                events.Started(
                    round=number,
                    job=job.name,
                    devices=begun,
                    epoch=job.epoch,
                    step=job.step,
                    lane=started.lane,
                    stream=started.stream,
                    moved=started.moved,
                    shares=start.shares,
                    kind="" if start.shares else kinds[0],
                    prepared_by=start.prepared_by,
                    kept=devices if begun != devices else (),
                )
            )
            self._hear(job.name)
            self._first.started(job.name, begun, self._now())
            self._agenda.started(job.name)
            self._batches.started(job.name)
            if self._successors is not None:
                self._successors.started(job.name)
        self.outside.save()

    def _start_of(self, name: str, starting: Coming) -> Start:
        job, devices = self.ledger.jobs[name], self._first.begins_on(name, starting.devices[name])
        kinds, resume, lane = self.ledger.kinds_of(devices), job.epoch + job.step > 0, starting.lanes.get(name, 0)
        turns = job.turn_seconds(kinds, self.ledger.feeds(name))
        return Start(name, devices, job.epoch, job.step, resume, turns, lane, job.shares(kinds), until=job.until)

    def _leave(self, job: str, why: StopReason) -> None:
        if job not in self._leaving:
            self._leaving.add(job)
            self.executor.stop(job, "ahead" if self.ledger.jobs[job].state.ahead and why == "policy" else why)

    def _stop_all(self) -> bool:
        """Have everybody leave; return whether all have, and what they did is saved."""
        if not self._stopping:
            self._stopping = True
            if self._successors is not None:
                self._successors.settle({})
            self.books.record(events.Stopping(jobs=tuple(self.ledger.running)))
            for job in list(self.ledger.running):
                self._leave(job, "signal")
        return not self.executor.save_held() and not self.ledger.running

    def _end_round(self) -> None:
        if (last := self.ledger.round) is not None:
            self.books.record(events.RoundEnded(round=last.index, start=last.start, end=self._now()))

    def _record(self, event: Event) -> None:
        """Book one event and write it down."""
        if isinstance(event, RanksGone):
            self._record_loss(event)
            return
        if event.job in self.ledger.running:  # a job's last checkpoint may come when its group has parted
            self._hear(event.job)
        if isinstance(event, EpochEnded):
            devices = self.ledger.running.get(event.job)
            if devices is not None:  # else a lost rank's last word
                before = self.ledger.jobs[event.job].expected_end
                self.books.record(epoch_of(event, self._round, devices))
                self._first.ended_epoch(event.job)
                if not self._learn(event.job, before) and self.ledger.is_dealt_badly(event.job):
                    self._agenda.happened(self._now(), event.job)
                elif self._successors is not None and self._is_quiet:
                    self._successors.look(self._now(), event.seconds)
        elif isinstance(event, CheckpointWritten):
            record_checkpoint(self.books, event)
        elif isinstance(event, Formed):
            self.books.record(events.Formed(job=event.job, seconds=event.seconds))
            for text in event.warnings:
                self.books.record(events.Warned(text=text, job=event.job))
        elif isinstance(event, StepsTimed):
            self._first.told(event)
        elif isinstance(event, Measured):
            self._heard.pop(event.job, None)
            self._newcomers.take(event)
            self._agenda.happened(self._now(), event.job)
        elif isinstance(event, GroupEnded):
            self._record_end(self._judged(event))
        elif isinstance(event, SetBack):
            found = self.outside.stands(event.job)
            self.books.record(events.SetBack(job=event.job, epoch=found.epoch, step=found.step))
            self._agenda.happened(self._now(), event.job)
        elif isinstance(event, AtStep):
            before = self.ledger.jobs[event.job].expected_end
            self.books.announce(events.Progress(**vars(event)))
            if self._learn(event.job, before) and 0 < event.rate < self.ledger.jobs[event.job].state.pace:
                self.books.announce(events.Slowed(job=event.job, rate=event.rate))

    def _learn(self, job: str, before: float) -> bool:
        """Tell the agenda a job's expected end, and what it was `before`; True: a promise is later, plans follow."""
        if job not in self.ledger.running:
            return False
        patience = self.ledger.margin if self.ledger.jobs[job].state.admitted else None
        return self._agenda.learnt(self._now(), job, before, self.ledger.jobs[job].expected_end, patience)

    @property
    def _is_quiet(self) -> bool:
        """Whether the last plan is carried out and no other is about to be made."""
        busy = self._stopping or self._leaving or self._coming.devices or self._agenda.clearing
        return not busy and self._agenda.next > self._now()

    @property
    def _round(self) -> int:
        return self.ledger.rounds[-1].index

    def _record_loss(self, event: RanksGone) -> None:
        """Ranks are gone: whatever was planned without knowing it is planned anew, at once."""
        self.books.record(events.RanksLost(ranks=event.ranks, devices=event.devices, hosts=event.hosts))
        self._agenda.happened(self._now(), *self._coming.devices, *self.ledger.stranded, urgent=True)
        self._coming = Coming()
        if self._successors is not None:
            self._successors.settle({})
        self._agenda.clearing = (self._agenda.clearing or event.all_leave) and bool(self.ledger.running)

    def _record_end(self, event: GroupEnded) -> None:
        self._leaving.discard(event.job)
        self._heard.pop(event.job, None)
        self._newcomers.ended(event.job)
        self._first.ended(event.job)
        curves, guessed = self.ledger.jobs[event.job].curves, self.ledger.jobs[event.job].guessed
        if curves:
            self.books.record_rates(event.job, curves, "guessed" if guessed else "training")
        self.books.record(end_of(event, self._round if curves else None, self.ledger.jobs[event.job]))  # None: measured
        self._halting.ended(event)
        self._tell_verdicts()
        self._agenda.clearing = self._agenda.clearing and bool(self.ledger.running)
        batches = self._batches.due(event)
        successor = self._successors and self._successors.after(event)
        if successor and not self._coming.devices and not self._stopping:
            self._agenda.noted(event.job)
            self._coming = Coming({successor.job: successor.devices}, keys={"seconds": 0.0})
        elif batches and not self._coming.devices:
            self._coming = Coming({event.job: event.devices}, batches=batches)
        elif not (self._coming.devices and event.reason in ("policy", "ahead")):  # it makes room for a plan
            self._agenda.happened(self._now(), event.job)
        self.outside.save()

    def _judged(self, event: GroupEnded) -> GroupEnded:
        """What became of a job whose group was lost: its checkpoints say from where it goes on, or that it is done.

        One that costs one rank after the other has failed.
        """
        if event.why != "lost":
            return event
        found, job = self.outside.stands(event.job), self.ledger.jobs[event.job]
        event = replace(event, epoch=found.epoch, step=found.step)
        if found.ended:
            self.books.note(self.ledger.stands_at, event.job, found)
            return replace(event, why="done", reason=found.ended)
        death = self.outside.death(event.devices)
        if death is not None and death.stack:
            return replace(event, why="failed", error=death.error, traceback=death.stack, cost_ranks=True)
        losses = job.ranks_cost + (not self.ledger.lost_devices.isdisjoint(event.devices))
        if losses <= MOST_LOSSES:
            return event
        return replace(event, why="failed", error=costs_too_many(losses), cost_ranks=True)

    def _hear(self, job: str) -> None:
        self._heard.pop(job, None)
        self._heard[job] = self._now()

    def _check_silence(self) -> None:
        """End a run in which a group is silent; its job has failed, and the next start goes on without it.

        Those that only wait for it are not to blame; they are if nobody else is after some time.
        """
        now = self._now()
        for job, heard in self._heard.items():
            late = now - heard - self._silence
            if late <= 0:
                return
            devices = self.ledger.running.get(job, ())
            if late > self._silence or not self.outside.waits(devices):
                text = (
                    f"job {job} on devices {', '.join(map(str, devices))} has said nothing for {now - heard:.0f} s; "
                    f"if its steps really take that long, raise resources.timeout (now {self._silence:.0f} s)"
                )
                self.books.record(
                    events.Failed(
                        round=self._round,
                        job=job,
                        devices=devices,
                        epoch=self.ledger.jobs[job].epoch,
                        error=text,
                        traceback=self.outside.stuck(),
                        cost_ranks=True,
                    )
                )
                raise SilentGroupError(text, job)


def costs_too_many(losses: int) -> str:
    """Why a job has failed that cost so many ranks."""
    return (
        f"{losses} times in a row a rank was lost that trained it; if it took too much memory, the system's log "
        "says so: give the job more devices, or a smaller batch"
    )
