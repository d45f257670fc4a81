"""The state of a run that is under way: where each job stands, who holds which device, and the rounds so far.

`LiveState` is what the coordinator plans by. It changes by events alone, so that the journal, read again, gives the
same state; `Recorder` writes each event and applies it. People look at a run through `fleet.journal.state.RunState`,
which holds what is shown and needs neither rates nor policies.
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile
from operator import itemgetter
from typing import Any, ParamSpec

from fleet.coordination.job_record import LEAST_LATENESS, JobRecord, Promise, Standing
from fleet.coordination.job_table import JobTable, PolicyJobs, StopTime, fed_by
from fleet.journal import events
from fleet.journal.events import Best
from fleet.journal.journal import Journal
from fleet.journal.state import EnergyTotals, SampleCounts
from fleet.scheduling.easyscale.kind_curves import (
    KindCurves,
    Kinds,
    Layout,
    completed,
    is_worth_dealing_anew,
    layout_of,
    strongest,
)
from fleet.scheduling.model import transitions
from fleet.scheduling.model.cluster import Cluster, FreeDevices
from fleet.scheduling.model.data_path import NONE, DataPath, Lending
from fleet.scheduling.model.policy import State
from fleet.scheduling.model.rates import RateCurve
from trainers.task.batch_plan import BatchChange


class LiveState(events.Observer):
    """What the coordinator knows of a run. Times are seconds of the run.

    Methods `on_...` apply an event of the journal. Other methods that change the state are called through
    `Recorder.note`, with what the journal need not keep.

    Args:
        cluster: its nodes and devices.
        jobs: all of them.
        seed: root of the policy's random draws.
        restart: seconds that a job loses when it gets devices, until something longer is measured.
        margin: seconds that promised deadlines leave for delays; the policy is asked about a promised job that will end
            so much later than was expected.
        lending: how many trainers may prepare samples.

    Attributes:
        running: job -> its devices.
        shares: running job -> virtual workers by device, where these are unbalanced.
        kept: job -> all devices that it will have, while it is timed on one of them first.
        refined: jobs of this round whose rates training has refined.
        promises: the policy's own notes, by job.
        lost_devices: devices whose ranks are gone.
        longest_forming: seconds that the slowest group took to form.
        sessions: how many began.
        is_over: whether the last one ended in good order.
        overhead: seconds that were spent on something else than training, by what it was.
        samples, energy: all sessions used so much.
        data_path: what preprocessors can make; None: nobody knows.
        helpers: trainers that prepare samples.
        bests: job -> its best checkpoint that is kept; None: none is.
    """

    def __init__(
        self,
        cluster: Cluster,
        jobs: Iterable[JobRecord],
        seed: int,
        restart: float = 0.0,
        margin: float = 0.0,
        lending: Lending = NONE,
    ) -> None:
        self.sessions, self.is_over = 0, False
        self.overhead = {"profiling": 0.0, "scheduling": 0.0, "checkpoint": 0.0, "reforming": 0.0}
        self.samples, self.energy = SampleCounts(), EnergyTotals()
        self.data_path: DataPath | None = None
        self.helpers = HelperPreprocessors(lending)
        self.bests: dict[str, Best | None] = {}
        self._stop_time = StopTime()
        self.cluster = cluster
        self.jobs = JobTable(jobs)
        self.running: dict[str, tuple[int, ...]] = {}
        self.shares: dict[str, tuple[int, ...]] = {}
        self.kept: dict[str, tuple[int, ...]] = {}
        self.refined: set[str] = set()
        self.rounds: list[Round] = []
        self._formed = FormedRounds()
        self.promises: dict[str, Any] = {}
        self.lost_devices: frozenset[int] = frozenset()
        self._free = FreeDevices(cluster)
        self.longest_forming = restart
        self._seed, self.margin = seed, margin
        self._seen = PolicyJobs(self.jobs, self._stop_time)
        self._to_come: list[tuple[float, int, str]] = []  # arrival, place, name; ascending
        for name in self.jobs:
            self._awaits(name)

    # what it says

    @property
    def unfinished(self) -> list[JobRecord]:
        return self.jobs.unfinished

    @property
    def stranded(self) -> dict[str, str]:
        """Unfinished jobs that wait for a kind of device all of which are lost -> that kind."""
        if not (self.lost_devices and self.cluster.kinds):
            return {}
        left = self.cluster.counts()
        for device in self.lost_devices:
            left[self.cluster.kind_of(device)] -= 1
        pinned = [job for job in self.unfinished if job.state.kind and not job.state.mixed_kinds]
        return {job.name: job.state.kind for job in pinned if left.get(job.state.kind) == 0}

    @property
    def status(self) -> str:
        """Status of the whole run, if it ended now: stopped, failed or done."""
        if not self.jobs.are_over:
            return "stopped"
        failed = (job for job in self.jobs.values() if job.status == "failed" and job.until is None)  # a trial may
        return "failed" if any(failed) else "done"

    @property
    def next_arrival(self) -> float:
        """Second at which the next job arrives; infinite if none does."""
        return next((arrival for arrival, _, name in self._to_come if self.jobs[name].waits), math.inf)

    def come(self, now: float) -> list[str]:
        """Return the jobs whose arrival is due and has not been noted."""
        if not self._to_come or self._to_come[0][0] > now:
            return []
        due = takewhile(lambda each: each[0] <= now, self._to_come)
        return [name for _, _, name in sorted(due, key=itemgetter(1))]

    @property
    def round(self) -> Round | None:
        """The round that has not ended; None: there is none."""
        return self.rounds[-1] if self.rounds and self.rounds[-1].end is None else None

    def for_policy(self, now: float, changed: tuple[str, ...] = (), memo: Any = None) -> State:
        """Return the state for a policy: without jobs that wait for rates, or for devices that are gone."""
        hidden = self.stranded.keys() - self.running.keys()
        seen = self._seen.at(now, self.longest_forming, self.data_path, self.helpers.most_times, hidden)
        return State(
            self.cluster,
            seen,
            self.held,
            self._formed.wanted(self.jobs.ahead),
            self.lost_devices,
            seed=self._seed,
            time=now,
            changed=changed,
            memo=memo,
            books=self._free,
            promises=self.promises,
            margin=self.margin,
            refined=frozenset(self.refined),
        )

    @property
    def held(self) -> dict[str, tuple[int, ...]]:
        """Job -> the devices that it has, with those that are kept for it."""
        return {**self.running, **self.kept}

    def feeds(self, job: str) -> float:
        """Return the samples/s that the data path can feed a job; infinite: nobody knows."""
        return fed_by(self.data_path, self.jobs[job]) * self.helpers.times

    def _share(self, job: str) -> float:
        """Return the part of the machine that a job holds."""
        return len(self.running.get(job, ())) / self.cluster.size

    def pace(self, job: str, devices: tuple[int, ...]) -> float:
        """Return the samples/s of a job on these devices; 0: there are none, or nobody knows."""
        return self.jobs[job].pace(self.kinds_of(devices), self.layout(job, devices))

    def layout(self, job: str, devices: tuple[int, ...]) -> Layout:
        """Return how a job's trainers share accelerators there; () where nobody has measured the effect."""
        return layout_of(devices, self.cluster) if self.jobs[job].knows_executors else ()

    def kinds_of(self, devices: Iterable[int]) -> Kinds:
        """Return the kind of each device; "" where all are alike, or for a device that this session does not have."""
        return tuple(self.cluster.kind_of(device) if device < self.cluster.size else "" for device in devices)

    def home(self, job: str, curves: Mapping[str, RateCurve]) -> str:
        """Return the kind of device whose curve stands for all: where the job stays, or is fastest."""
        record = self.jobs[job]
        return record.state.kind if record.state.kind in curves else strongest(curves, self.cluster, record.limit)

    def completed(self, curves: Mapping[str, RateCurve]) -> Mapping[str, RateCurve]:
        """Return a job's rate curves, completed by what other jobs let expect on kinds where it was not measured."""
        kinds = self.cluster.counts()
        return completed(curves, kinds, () if curves.keys() >= kinds.keys() else self.jobs.recent_kinds())

    def is_dealt_badly(self, job: str) -> bool:
        """Return whether a running job would be done enough sooner if its virtual workers were dealt anew."""
        by_kind, shares = self.jobs[job].by_kind, self.shares.get(job, ())
        speeds = [] if by_kind is None else [by_kind.speeds[kind] for kind in self.kinds_of(self.running.get(job, ()))]
        return bool(speeds and shares) and is_worth_dealing_anew(shares, speeds)

    @property
    def late(self) -> set[str]:
        """Unfinished jobs that are known to miss the deadline that they were promised."""
        return {*self.jobs.late}

    def seconds_to_stop(self) -> float:
        """Return the seconds from a request to stop until all running jobs are saved."""
        steps = {job: self.jobs[job].step_seconds(self.kinds_of(devices)) for job, devices in self.running.items()}
        return self._stop_time.of(steps)

    # what each event of the journal changes

    def take(self, event: events.Event) -> None:
        """Apply an event; one of a job that this state does not have is passed over."""
        if not isinstance(event, events.JobEvent) or event.job in self.jobs:
            super().take(event)

    def on_session(self, event: events.Session) -> None:
        self.reopened()
        self.sessions, self.is_over = self.sessions + 1, False

    def on_planned(self, event: events.Planned) -> None:
        self.planned(event.allocation, event.t, event.others_go_on)
        self.helpers.planned(event.lent)

    def on_round_end(self, event: events.RoundEnded) -> None:
        self.round_ended(event.t)

    def on_preprocessors(self, event: events.Preprocessors) -> None:
        self.preprocessors_measured(DataPath.of(event.counts, event.of_data, event.of_new))

    def on_lost(self, event: events.RanksLost) -> None:
        self.lost_devices |= frozenset(event.devices)
        self._free.remove(self._here(self.lost_devices))

    def on_samples(self, event: events.Samples) -> None:
        self.samples = self.samples.plus(event.read, event.laid, event.made)

    def on_energy(self, event: events.Energy) -> None:
        self.energy = self.energy.plus(event)

    def on_ended(self, event: events.Ended) -> None:
        self.round_ended(event.t)
        self.overhead.update(event.overhead_seconds)
        self.is_over = True

    def on_profile(self, event: events.Profile) -> None:
        self.longest_forming = max(self.longest_forming, event.forming)

    def on_rates(self, event: events.Rates) -> None:
        if event.source == "training":  # those follow from the epochs
            return
        kinds, cluster = event.kinds or {"": event.measured}, self.cluster
        limit = self.jobs[event.job].limit
        curves = {kind: RateCurve(each, per_node=cluster.per_node(kind), workers=limit) for kind, each in kinds.items()}
        self.rated(event.job, curves, event.source == "guessed")

    def on_guesses(self, event: events.Guesses) -> None:
        for name, rate in event.rates.items():
            if name in self.jobs and (curves := self.jobs[name].curves):
                factor = rate / next(iter(curves.values()))(1)
                self.rated(name, {kind: curve.scaled(factor) for kind, curve in curves.items()}, True)

    def on_batch_profile(self, event: events.BatchProfile) -> None:
        self.rated_with(event.job, event.batch, event.rate)

    def on_executor_profile(self, event: events.ExecutorProfile) -> None:
        self.jobs[event.job] = self.jobs[event.job].rated_together(event.executors, event.rate)

    def on_batch(self, event: events.Batch) -> None:
        if event.epoch is None:  # for good, before the job first starts
            self.jobs[event.job] = self.jobs[event.job].with_batch(event.batch).with_batches(None)
        else:
            self.batch_changed(event.job, event.batch, event.epoch, event.parts or 1)

    def on_admitted(self, event: events.Admitted) -> None:
        promise = Promise("made", math.inf if event.deadline is None else event.deadline)
        self._change(event.job, state=transitions.promised(self.jobs[event.job].state), promise=promise)

    def on_late(self, event: events.Late) -> None:
        self._change(event.job, promise=Promise("late", event.deadline, event.end))

    def on_service_window(self, event: events.ServiceWindow) -> None:
        job = self.jobs[event.job]
        self._change(event.job, windows=job.windows + 1, broken_windows=job.broken_windows + event.broken)

    def on_pardoned(self, event: events.ServiceReset) -> None:
        self._change(event.job, state=transitions.service_reset(self.jobs[event.job].state, event.t))

    def on_rank_cost(self, event: events.RankCost) -> None:
        self._cost_ranks(event.job)

    def on_started(self, event: events.Started) -> None:
        job = event.job
        self.goes_on_from(job, event.epoch, event.step, event.t)
        self.started(job, event.devices, event.t, event.lane, event.shares, event.kind, event.kept)
        self.helpers.started(job, event.prepared_by)

    def on_formed(self, event: events.Formed) -> None:
        self.charged("reforming", event.seconds * self._share(event.job))
        self.longest_forming = max(self.longest_forming, event.seconds)

    def on_timed(self, event: events.Timed) -> None:
        record, devices = self.jobs[event.job], self.running.get(event.job, ())
        if devices and record.curve is not None:
            self.jobs[event.job] = record.timed(self.kinds_of(devices), event.rate)
            self.refined.add(event.job)
            self._expect_scaling()

    def on_progress(self, event: events.Progress) -> None:
        self.progressed(event.job, event.epoch, event.step, event.t)

    def on_slowed(self, event: events.Slowed) -> None:
        self.slowed(event.job, event.rate)

    def on_epoch(self, event: events.Epoch) -> None:
        job, rate = event.job, event.rate or 0.0
        self.epoch_ended(job, event.epoch, event.metrics, rate, event.t, event.computed)
        self._stop_time.deaf[job] = event.deaf
        if rate:
            self._stop_time.ended_epoch(job, event.seconds - self.jobs[job].state.epoch / rate)

    def on_checkpoint(self, event: events.Checkpoint) -> None:
        if event.best is not None:
            self.bests[event.job] = event.best
        self.charged("checkpoint", event.seconds * self._share(event.job))
        self.saved(event.job, event.path, event.seconds)

    def on_best(self, event: events.BestKept) -> None:
        self.bests[event.job] = event.best

    def on_set_back(self, event: events.SetBack) -> None:
        self.goes_on_from(event.job, event.epoch, event.step, event.t)

    def on_stopped(self, event: events.Stopped | events.Paused) -> None:
        self.stopped(event.job, event.epoch, event.step, event.t)
        if event.why == "lost" and not self.lost_devices.isdisjoint(event.devices):
            self._cost_ranks(event.job)

    on_paused = on_stopped

    def on_halted(self, event: events.Halted) -> None:
        self.halted(event.job)

    def on_taken_up(self, event: events.TakenUp) -> None:
        self.halted(event.job, False)

    def on_done(self, event: events.Done) -> None:
        self.done(event.job, event.epoch, event.metrics, event.checkpoint, event.t, event.deadline)

    def on_failed(self, event: events.Failed) -> None:
        text = event.traceback or event.error  # a traceback says all; the stack of a process that ended does not
        if event.traceback and event.cost_ranks:
            text = f"{event.error}\n{event.traceback}"
        self.failed(event.job, event.epoch, text, event.t, event.cost_ranks)

    def on_extended(self, event: events.Extended) -> None:
        job = self.jobs[event.job]
        self.stopped(job.name, job.epoch, job.step, event.t)
        if job.until is not None:
            self.added(self.jobs[job.name].limited(event.epochs))

    def on_search(self, event: events.Decided) -> None:
        if event.kind in ("start", "resume"):
            self.added(self.jobs[event.job].limited(event.end))

    def on_ahead(self, event: events.Ahead) -> None:
        ahead = not (event.sure or event.probable)
        self.added(self.jobs[event.job].limited(event.epoch, ahead=ahead))

    def on_dropped(self, event: events.Dropped) -> None:
        self.added(replace(self.jobs[event.job], checkpoint=None))

    def on_withdrawn(self, event: events.Withdrawn) -> None:
        job = self.jobs[event.job]
        self.added(job.withdrawn(event.epoch, event.metrics, event.checkpoint, event.t))

    # what changes it

    def reopened(self) -> None:
        """Begin a session: nobody holds a device, and each job begins anew."""
        for name in list(self.running):
            self._released(name, self.jobs[name].state.ready)
        self.jobs = JobTable(job.reopened(self.is_over) for job in self.jobs.values())
        self._seen = PolicyJobs(self.jobs, self._stop_time)
        self.lost_devices, self.is_over, self.data_path = frozenset(), False, None
        self._free = FreeDevices(self.cluster)
        self.helpers.reopened()

    def added(self, job: JobRecord) -> None:
        """Add a job, or replace its record."""
        self.jobs[job.name] = job
        self._awaits(job.name)

    def arrived(self, jobs: Collection[str]) -> None:
        """Note that these jobs have arrived."""
        last = max((self.jobs[job].state.arrival for job in jobs if job in self.jobs), default=-math.inf)
        count = bisect_right(self._to_come, last, key=itemgetter(0))
        self._to_come[:count] = [each for each in self._to_come[:count] if each[2] not in jobs]

    def _awaits(self, job: str) -> None:
        insort(self._to_come, (self.jobs[job].state.arrival, self.jobs.place(job), job))

    def planned(self, allocation: Mapping[str, tuple[int, ...]], now: float, others_go_on: bool = False) -> None:
        """Begin a round with an allocation; see `Round`."""
        self.round_ended(now)
        self.refined = set()
        self._formed.planned({**self.held, **allocation} if others_go_on else allocation)
        self.rounds.append(Round(len(self.rounds), allocation, others_go_on, now))

    def round_ended(self, now: float) -> None:
        """End the round, if there is one."""
        if self.round is not None:
            self.round.end = now

    def promised(self, promises: Mapping[str, Any]) -> None:
        """Keep these notes of the policy, by job."""
        self.promises.update(promises)

    def charged(self, kind: str, seconds: float) -> None:
        """Count seconds that were spent on something else than training."""
        self.overhead[kind] += seconds

    def preprocessors_measured(self, path: DataPath | None) -> None:
        """Note how fast preprocessors are; None: nothing was measured."""
        self.data_path = path or self.data_path

    def rated(self, job: str, curves: Mapping[str, RateCurve], guessed: bool = False) -> None:
        """Note a job's rates, by kind of device, "" where all are alike: policies see the job from now on."""
        record = self.jobs[job]
        home, samples = self.home(job, curves), (record.batch or record.limit) / record.limit
        covered = home and curves.keys() >= self.cluster.counts().keys()  # else they are of an earlier session
        by_kind = KindCurves(curves, home, record.limit, samples) if covered else None
        record = record.rated(curves[home], by_kind, self.kinds_of(self.running.get(job, ())))
        self.jobs[job] = replace(record, guessed=guessed)

    def rehearses(self, job: str, curves: Mapping[str, RateCurve]) -> None:
        """Let a job's rehearsal go by these curves, whatever the run knows of its rates."""
        here, self.jobs[job] = self.jobs[job], replace(self.jobs[job], rehearsed=None)
        self.rated(job, curves)
        self.jobs[job] = replace(here, rehearsed=self.jobs[job])

    def rating(self, begins: bool) -> None:
        """Give jobs the batches of their spec before they are rated, and those of now afterwards."""
        for job in self.unfinished:
            self.jobs[job.name] = job.with_own_batch() if begins else job.with_its_batch()

    def rated_with(self, job: str, batch: int, rate: float) -> None:
        """Note the samples/s of a job on one device in steps of another `batch` than its own."""
        self._change(job, alone={**self.jobs[job].alone, batch: rate})

    def range_cut(self, job: str, least: int, most: int) -> None:
        """Limit the batches that can be chosen for a job."""
        batches = self.jobs[job].batches
        if batches is not None:
            self.jobs[job] = self.jobs[job].with_batches(batches.within(least, most))

    def fits(self, job: str, samples: int) -> None:
        """Note the largest batch of a virtual worker that fits on a device."""
        self._change(job, fits=samples)

    def batch_changed(self, job: str, batch: int, epoch: int, parts: int = 1) -> None:
        """Give a job another batch from an epoch on, cut into parts."""
        record = self.jobs[job]
        if record.schedule is not None:
            change = BatchChange(epoch, batch // record.limit, parts)
            self.jobs[job] = record.following(record.schedule.changed(change))

    def stands_at(self, job: str, found: Standing, now: float = 0.0) -> None:
        """Put a job where its checkpoints say, whatever the journal had time to say."""
        record = self.jobs[job].at(found.epoch, found.step, now)
        if record.schedule is not None:
            schedule = record.schedule.standing(found.batches, found.epoch, found.step)
            record = record.following(schedule).at(found.epoch, found.step, now)
        elif found.epoch or found.step:
            record = record.with_batches(None)
        self.jobs[job] = record
        if found.ended:
            self._change(job, metrics=dict(found.metrics), checkpoint=found.path)

    def noticed(self, late: Mapping[str, float]) -> dict[str, float]:
        """Return those of jobs that can end then at the earliest that are late by as much as a time shows."""
        return {job: end for job, end in late.items() if end - self.jobs[job].state.deadline >= LEAST_LATENESS}

    def started(
        self,
        job: str,
        devices: tuple[int, ...],
        now: float,
        lane: int = 0,
        shares: tuple[int, ...] = (),
        kind: str = "",
        kept: tuple[int, ...] = (),
    ) -> None:
        """Start a job on devices, each with its share of the virtual workers.

        A job whose bits hold for one kind of device stays on the kind on which it begins.

        Args:
            kind: of the devices; "": they are of several, or all are alike.
            kept: all devices that it will have once it is timed on these; (): these are all.
        """
        record = self.jobs[job] = self.jobs[job].staying_on(kind)
        self.running[job] = devices
        self._free.remove(self._here(kept or devices))
        if shares:
            self.shares[job] = shares
        if kept:
            self.kept[job] = kept
        pace = self.pace(job, devices)
        state = transitions.given(record.state, len(devices), now, now, pace, record.started)
        self._change(job, status="running", state=state.changed(lane=lane), started=True)

    def progressed(self, job: str, epoch: int, step: int, now: float) -> None:
        """Note the step of its epoch that a running job has reached."""
        if epoch == self.jobs[job].epoch and job in self.running:
            self.jobs[job] = self.jobs[job].at(epoch, step, now)

    def epoch_ended(
        self,
        job: str,
        epoch: int,
        metrics: Mapping[str, float],
        rate: float,
        now: float,
        computed: Mapping[int, float] | None = None,
    ) -> None:
        """Note an epoch that a job has finished at `rate` samples/s; computed: device -> seconds of computing."""
        record = self.jobs[job].at(epoch, 0, now)
        if "loss" in metrics:
            record = replace(record, state=transitions.evaluated(record.state, metrics["loss"]))
        if record.curve is not None and rate > 0 and record.state.held:
            self.refined |= {job} if record.guessed else set()
            devices = self.running[job]
            spent = [(computed or {}).get(device, 0.0) for device in devices]
            kinds, layout = self.kinds_of(devices), self.layout(job, devices)
            record = record.taught(kinds, self.shares.get(job, ()), rate, spent, layout)
        self.jobs[job] = replace(record, metrics=dict(metrics))

    def slowed(self, job: str, rate: float) -> None:
        """Note that a running job trains more slowly than was expected, on other devices in proportion."""
        devices = self.running.get(job, ())
        self.jobs[job] = self.jobs[job].slowed(rate, self.kinds_of(devices), self.layout(job, devices))

    def saved(self, job: str, path: str, seconds: float) -> None:
        """Note a job's checkpoint."""
        self._stop_time.saved(job, seconds)
        self._change(job, checkpoint=path, ranks_cost=0)

    def stopped(self, job: str, epoch: int, step: int, now: float) -> None:
        """Let a job wait to go on: it has left its devices."""
        self._released(job, now)
        self.jobs[job] = replace(self.jobs[job].at(epoch, step, now), status="pending")

    def halted(self, job: str, halted: bool = True) -> None:
        """Let a job that was stopped by name wait no more, or take it up again."""
        self._left(replace(self.jobs[job], status="stopped" if halted else "pending"))

    def goes_on_from(self, job: str, epoch: int, step: int, now: float) -> None:
        """Put a job there; what it did beyond that since its last checkpoint is lost."""
        self.jobs[job] = self.jobs[job].at(epoch, step, now)

    def _cost_ranks(self, job: str) -> None:
        """Count ranks that were lost while they trained a job."""
        self._change(job, ranks_cost=self.jobs[job].ranks_cost + 1)

    def done(
        self,
        job: str,
        epoch: int,
        metrics: Mapping[str, float],
        checkpoint: str | None,
        now: float,
        deadline: float | None = None,
    ) -> None:
        """End a job that has trained all that it should; `deadline`: second of its deadline, if it had one."""
        self._released(job, now)
        record = self.jobs[job].at(epoch, 0, now).ended(now, deadline)
        record = replace(record, state=transitions.done(record.state, now))
        self._left(replace(record, status="done", metrics=dict(metrics), checkpoint=checkpoint))

    def failed(self, job: str, epoch: int, error: str, now: float, deadly: bool = False) -> None:
        """End a job whose code raised after so many epochs, or ends processes, or that its policy will never run."""
        self._released(job, now)
        record = self.jobs[job].at(epoch, 0, now).ended(None, None)
        self._left(replace(record, status="failed", error=error, deadly=deadly))

    def _left(self, record: JobRecord) -> None:
        self.jobs[record.name] = record
        self.promises.pop(record.name, None)

    def _expect_scaling(self) -> None:
        """Let jobs that were timed on a single number of devices scale as others do."""
        expected = self.jobs.efficiency
        for job in self.jobs.scaling_unlike_others():
            kinds = self.kinds_of(self.running.get(job, ()))
            self.jobs[job] = self.jobs[job].expected_to_keep(expected, kinds)

    def _released(self, job: str, now: float) -> None:
        devices, kept, _ = self.running.pop(job, None), self.kept.pop(job, ()), self.shares.pop(job, None)
        if devices is not None and kept:
            idle = (len(kept) - len(devices)) / self.cluster.size
            self.charged("profiling", idle * max(0.0, now - self.jobs[job].state.since))
        if devices is not None:
            self._free.give(device for device in self._here(kept or devices) if device not in self.lost_devices)
            self._change(job, status="pending", state=transitions.taken(self.jobs[job].state, devices, now))

    def _here(self, devices: Iterable[int]) -> list[int]:
        """Return those that this session has, too."""
        return [device for device in devices if device < self.cluster.size]

    def _change(self, job: str, **fields: Any) -> None:
        self.jobs[job] = self.jobs[job].changed(**fields)


@dataclass
class HelperPreprocessors:
    """Which trainers prepare samples now, and for whom.

    Attributes:
        lending: how many trainers may prepare.
        counted: how many the last plan counts on.
    """

    lending: Lending = NONE
    counted: int = 0
    _of_job: dict[str, tuple[int, ...]] = field(default_factory=dict)  # job -> devices whose trainers fill its lane

    def planned(self, counted: int | None) -> None:
        """Note how many a plan counts on; None: as many as before."""
        self.counted = self.counted if counted is None else counted

    def started(self, job: str, devices: Iterable[int]) -> None:
        """Note the devices whose trainers fill the lane that a job reads."""
        self._of_job.pop(job, None)
        if lent := tuple(devices):
            self._of_job[job] = lent

    def reopened(self) -> None:
        """Begin a session: nobody prepares."""
        self.counted, self._of_job = 0, {}

    @property
    def times(self) -> float:
        """What preprocessors make with those that are counted, in multiples of what they make alone."""
        return self.lending.times(self.counted)

    @property
    def most_times(self) -> float:
        """The same with all that may help."""
        return self.lending.times(self.lending.most)

    def devices(self, running: Container[str]) -> frozenset[int]:
        """Return the devices whose trainers prepare samples for running jobs."""
        return frozenset(device for job, lent in self._of_job.items() if job in running for device in lent)

    def readers(self, running: Mapping[str, object], devices: Collection[int]) -> list[str]:
        """Return the running jobs that read a lane which a trainer of these devices fills."""
        if not self._of_job:
            return []
        return [job for job in running if not set(devices).isdisjoint(self._of_job.get(job, ()))]


_MOST_ROUNDS = 32
"""How many rounds are searched for what a policy wanted last."""


@dataclass
class Round:
    """The time between two allocations.

    Attributes:
        allocation: of the jobs that train in it; with `others_go_on`, of those that start.
        others_go_on: all others go on where they are.
    """

    index: int
    allocation: Mapping[str, tuple[int, ...]]
    others_go_on: bool
    start: float
    end: float | None = None

    def to_json(self, now: float) -> dict[str, Any]:
        """Return the round as run.json holds it; one that has not ended ends now."""
        allocation = {job: list(devices) for job, devices in self.allocation.items()}
        others = {"others_go_on": True} if self.others_go_on else {}
        return {"allocation": allocation, **others, "start": self.start, "end": now if self.end is None else self.end}


@dataclass
class FormedRounds:
    """The whole allocations of the last rounds, to tell what a policy wanted last."""

    _last: deque[Mapping[str, tuple[int, ...]]] = field(default_factory=lambda: deque(maxlen=_MOST_ROUNDS + 1))

    def planned(self, allocation: Mapping[str, tuple[int, ...]]) -> None:
        """Begin a round in which these train."""
        self._last.append(allocation)

    def wanted(self, ahead: Container[str]) -> dict[str, tuple[int, ...]]:
        """Return the allocation of the last round that did not begin only to train something ahead of need.

        Args:
            ahead: jobs that train ahead of need; they are left out.
        """
        first = max(0, len(self._last) - _MOST_ROUNDS)
        for number in range(len(self._last) - 1, first - 1, -1):
            found = {job: devices for job, devices in self._last[number].items() if job not in ahead}
            before = self._last[number - 1] if number else {}
            if number == first or any(before.get(job) != devices for job, devices in found.items()):
                return found
        return {}


P = ParamSpec("P")


class Recorder:
    """Writes events to the journal and applies them to the state, in one call.

    Args:
        state: nobody else changes it.
        journal: its clock is that of the state.
    """

    def __init__(self, state: LiveState, journal: Journal) -> None:
        self.state, self.journal = state, journal

    def record(self, event: events.Event) -> None:
        """Write an event and apply it."""
        if isinstance(event, events.Done):
            deadline = self.state.jobs[event.job].state.deadline
            event = replace(event, deadline=deadline if deadline < math.inf else None)
        self.state.take(self.journal.write(event))

    def record_rates(self, name: str, curves: Mapping[str, RateCurve], source: str) -> None:
        """Record the samples/s of a job on each kind of device: as measured, and as the home kind's curve has them.

        Args:
            curves: by kind; one under "" where all devices are alike.
        """
        curve = curves[self.state.home(name, curves)]
        counts = min(self.state.jobs[name].limit, self.state.cluster.size)
        fitted = tuple(float(rate) for rate in curve.rates(counts))
        kinds = {kind: dict(each.measured) for kind, each in curves.items() if kind}
        self.record(events.Rates(job=name, source=source, measured=dict(curve.measured), fitted=fitted, kinds=kinds))

    def note(self, change: Callable[P, None], *what: P.args, **more: P.kwargs) -> None:
        """Change the state by what the journal need not keep: the next session learns it from files or a clock.

        Args:
            change: a method of the state.
        """
        change(*what, **more)

    def announce(self, event: events.Event) -> None:
        """Apply an event that is too frequent to be kept, and tell it to those who watch."""
        self.state.take(self.journal.announce(event))


def recall(state: LiveState, told: Iterable[events.Event]) -> None:
    """Apply to a fresh state all that earlier sessions wrote; then nobody holds a device any more."""
    for event in told:
        state.take(event)
    state.reopened()


def run_summary(state: LiveState, status: str, policy: str, wall: float, **more: Any) -> dict[str, Any]:
    """Return the content of run.json.

    Args:
        wall: seconds of the run.
        more: what others know.
    """
    return {
        "status": status,
        "policy": policy,
        "wall_seconds": wall,
        "overhead_seconds": dict(state.overhead),
        "rounds": [round_.to_json(wall) for round_ in state.rounds],
        "jobs": {job.name: job.result() for job in state.jobs.values()},
        **more,
    }
