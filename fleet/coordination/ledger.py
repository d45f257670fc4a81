"""The run's books: where each job stands, who holds which device, and the rounds so far."""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import takewhile
from operator import itemgetter
from typing import Any

from fleet.coordination.checkpointed import Standing
from fleet.coordination.job_book import JobBook
from fleet.coordination.job_record import JobRecord
from fleet.coordination.lost_devices import stranded
from fleet.coordination.promise import LEAST_LATENESS, Promise
from fleet.coordination.round import FormedRounds, Round
from fleet.coordination.run_account import RunAccount
from fleet.coordination.seen_jobs import SeenJobs, fed_by
from fleet.scheduling.easyscale.dealing import is_worth_dealing_anew
from fleet.scheduling.easyscale.executors import Layout, layout_of
from fleet.scheduling.easyscale.kind_curves import KindCurves, Kinds, completed, strongest
from fleet.scheduling.model import transitions
from fleet.scheduling.model.free_devices import FreeDevices
from fleet.scheduling.model.lending import NONE, Lending
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.model.state import Cluster, State
from trainers.task.batch_schedule import BatchChange


class Ledger(RunAccount):
    """Mutable, but only by what happened: each method is named after an event. Times are seconds of the run.

    Args:
        cluster: its nodes and devices.
        jobs: all of them.
        seed: root of the policy's random draws.
        restart: seconds that a job loses when it gets devices, as long as nothing longer was measured.
        margin: seconds that promised deadlines leave for delays; a promised job that comes so much later than was
            thought is asked about.
        lending: how many trainers may prepare samples.
    """

    def __init__(
        self, cluster: Cluster, jobs: Iterable[JobRecord], seed: int, restart: float = 0.0, margin: float = 0.0,
        lending: Lending = NONE,
    ) -> None:  # fmt: skip
        super().__init__(lending)
        self.cluster = cluster
        self.jobs = JobBook(jobs)
        self.running: dict[str, tuple[int, ...]] = {}
        self.shares: dict[str, tuple[int, ...]] = {}  # of running jobs: virtual workers by device, where unbalanced
        self.kept: dict[str, tuple[int, ...]] = {}  # all that jobs will have which are timed on one of them first
        self.refined: set[str] = set()  # jobs of this round whose rates training has told
        self.rounds: list[Round] = []
        self._formed = FormedRounds()
        self.promises: dict[str, Any] = {}  # the policy's, by job
        self.lost_devices: frozenset[int] = frozenset()  # devices whose ranks are gone
        self._free = FreeDevices(cluster)
        self.longest_forming = restart  # seconds
        self._seed, self.margin = seed, margin
        self._seen = SeenJobs(self.jobs, self._stop_time)
        self._to_come: list[tuple[float, int, str]] = []  # arrival, place, name; ascending
        for name in self.jobs:
            self._awaits(name)

    # what the books tell

    @property
    def unfinished(self) -> list[JobRecord]:
        return self.jobs.unfinished

    @property
    def stranded(self) -> dict[str, str]:
        """Unfinished jobs that have to wait for a kind of device all of which are lost, and that kind."""
        return stranded(self.unfinished, self.cluster, self.lost_devices) if self.lost_devices else {}

    @property
    def status(self) -> str:
        """What run.json says of the run as a whole, were it to end now."""
        if not self.jobs.are_over:
            return "stopped"
        failed = (job for job in self.jobs.values() if job.status == "failed" and job.until is None)  # a trial may
        return "failed" if any(failed) else "done"

    @property
    def next_arrival(self) -> float:
        """When the next job comes; infinite if none does."""
        return next((arrival for arrival, _, name in self._to_come if self.jobs[name].waits), math.inf)

    def come(self, now: float) -> list[str]:
        """Jobs whose time has come, and of which nobody has said that they arrived."""
        if not self._to_come or self._to_come[0][0] > now:
            return []
        due = takewhile(lambda each: each[0] <= now, self._to_come)
        return [name for _, _, name in sorted(due, key=itemgetter(1))]

    @property
    def round(self) -> Round | None:
        """The one that has not ended; None: there is none."""
        return self.rounds[-1] if self.rounds and self.rounds[-1].end is None else None

    def state(self, now: float, changed: tuple[str, ...] = (), memo: Any = None) -> State:
        """The books as a policy sees them: without those that wait for rates, or for devices that are gone."""
        hidden = self.stranded.keys() - self.running.keys()
        seen = self._seen.at(now, self.longest_forming, self.data_path, self.lent.most_times, hidden)
        return State(
            self.cluster, seen, self.held, self._formed.wanted(self.jobs.ahead), self.lost_devices,
            seed=self._seed, time=now, changed=changed, memo=memo, books=self._free, promises=self.promises,
            margin=self.margin, refined=frozenset(self.refined),
        )  # fmt: skip

    @property
    def held(self) -> dict[str, tuple[int, ...]]:
        """Job -> the devices that it has, or that are kept for it."""
        return {**self.running, **self.kept}

    def feeds(self, job: str) -> float:
        """Samples/s that the data path can feed a job; infinite: nobody knows."""
        return fed_by(self.data_path, self.jobs[job]) * self.lent.times

    def share(self, job: str) -> float:
        """The part of the machine that it holds."""
        return len(self.running.get(job, ())) / self.cluster.size

    def pace(self, job: str, devices: tuple[int, ...]) -> float:
        """Samples/s of a job on these devices; 0: on none, or nobody knows."""
        return self.jobs[job].pace(self.kinds_of(devices), self.layout(job, devices))

    def layout(self, job: str, devices: tuple[int, ...]) -> Layout:
        """How a job's trainers share accelerators there; () where nobody has measured what that makes."""
        return layout_of(devices, self.cluster) if self.jobs[job].knows_executors else ()

    def kinds_of(self, devices: Iterable[int]) -> Kinds:
        """The kind of each of these devices; empty where all are alike, or of one that an earlier session alone had."""
        return tuple(self.cluster.kind_of(device) if device < self.cluster.size else "" for device in devices)

    def home(self, job: str, curves: Mapping[str, RateCurve]) -> str:
        """The kind of device whose curve stands for all: the one that the job stays on, or on which it is fastest."""
        record = self.jobs[job]
        return record.state.kind if record.state.kind in curves else strongest(curves, self.cluster, record.limit)

    def completed(self, curves: Mapping[str, RateCurve]) -> Mapping[str, RateCurve]:
        """A job's rate curves, and on kinds of device where nobody measured it those that other jobs let expect."""
        kinds = self.cluster.counts()
        return completed(curves, kinds, () if curves.keys() >= kinds.keys() else self.jobs.recent_kinds())

    def is_dealt_badly(self, job: str) -> bool:
        """Whether a running job's virtual workers, dealt anew over its devices, would be done enough sooner."""
        by_kind, shares = self.jobs[job].by_kind, self.shares.get(job, ())
        speeds = [] if by_kind is None else [by_kind.speeds[kind] for kind in self.kinds_of(self.running.get(job, ()))]
        return bool(speeds and shares) and is_worth_dealing_anew(shares, speeds)

    @property
    def late(self) -> set[str]:
        """Unfinished jobs that are known to be late for the deadline that they were promised."""
        return {*self.jobs.late}

    def seconds_to_stop(self) -> float:
        """From a wish to stop until all running jobs are saved."""
        steps = {job: self.jobs[job].step_seconds(self.kinds_of(devices)) for job, devices in self.running.items()}
        return self._stop_time.of(steps)

    # what happens to the run

    def reopened(self) -> None:
        """The session before is over, however it ended: nobody holds a device, and each job begins anew."""
        for name in list(self.running):
            self._released(name, self.jobs[name].state.ready)
        self.jobs = JobBook(job.reopened(self.is_over) for job in self.jobs.values())
        self._seen = SeenJobs(self.jobs, self._stop_time)
        self.lost_devices, self.is_over, self.data_path = frozenset(), False, None
        self._free = FreeDevices(self.cluster)
        self.lent.reopened()

    def added(self, job: JobRecord) -> None:
        """The run has one job more, or trains one further."""
        self.jobs[job.name] = job
        self._awaits(job.name)

    def arrived(self, jobs: Collection[str]) -> None:
        """These jobs have come."""
        last = max((self.jobs[job].state.arrival for job in jobs if job in self.jobs), default=-math.inf)
        count = bisect_right(self._to_come, last, key=itemgetter(0))
        self._to_come[:count] = [each for each in self._to_come[:count] if each[2] not in jobs]

    def _awaits(self, job: str) -> None:
        insort(self._to_come, (self.jobs[job].state.arrival, self.jobs.place(job), job))

    def planned(self, allocation: Mapping[str, tuple[int, ...]], now: float, others_go_on: bool = False) -> None:
        """A new allocation begins a new round; see `Round`."""
        self.round_ended(now)
        self.refined = set()
        self._formed.planned({**self.held, **allocation} if others_go_on else allocation)
        self.rounds.append(Round(len(self.rounds), allocation, others_go_on, now))

    def round_ended(self, now: float) -> None:
        """The round ends, if there is one."""
        if self.round is not None:
            self.round.end = now

    def promised(self, promises: Mapping[str, Any]) -> None:
        """The policy wants to see these again, by job."""
        self.promises.update(promises)

    def devices_lost(self, devices: Iterable[int]) -> None:
        """Nobody can be given them any more."""
        self.lost_devices |= frozenset(devices)
        self._free.remove(self._here(self.lost_devices))

    def formed(self, seconds: float) -> None:
        """A group was formed, and its job's state brought there, in so many seconds."""
        self.longest_forming = max(self.longest_forming, seconds)

    # what happens to a job before it trains

    def rated(self, job: str, curves: Mapping[str, RateCurve], guessed: bool = False) -> None:
        """A job's rates are known, or guessed: policies see it; kind -> curve, "" where all devices are alike."""
        record = self.jobs[job]
        home, samples = self.home(job, curves), (record.batch or record.limit) / record.limit
        covered = home and curves.keys() >= self.cluster.counts().keys()  # else they are of an earlier session
        by_kind = KindCurves(curves, home, record.limit, samples) if covered else None
        record = record.rated(curves[home], by_kind, self.kinds_of(self.running.get(job, ())))
        self.jobs[job] = replace(record, guessed=guessed)

    def rehearses(self, job: str, curves: Mapping[str, RateCurve]) -> None:
        """A job's rehearsal goes by these curves, as by `rated`, whatever the run knows of them."""
        here, self.jobs[job] = self.jobs[job], replace(self.jobs[job], rehearsed=None)
        self.rated(job, curves)
        self.jobs[job] = replace(here, rehearsed=self.jobs[job])

    def rating(self, begins: bool) -> None:
        """Jobs are about to be rated, with the batches of their spec; or they are, and have those of now."""
        for job in self.unfinished:
            self.jobs[job.name] = job.with_own_batch() if begins else job.with_its_batch()

    def rated_with(self, job: str, batch: int, rate: float) -> None:
        """A job trains so many samples/s on one device in steps of `batch` samples, other than its own."""
        self._change(job, alone={**self.jobs[job].alone, batch: rate})

    def rated_together(self, job: str, executors: int, rate: float) -> None:
        """A job trains so many samples/s on an accelerator with so many of its trainers, and nobody else's."""
        self.jobs[job] = self.jobs[job].rated_together(executors, rate)

    def range_cut(self, job: str, least: int, most: int) -> None:
        """A job's batch can be chosen between these alone."""
        batches = self.jobs[job].batches
        if batches is not None:
            self.jobs[job] = self.jobs[job].with_batches(batches.within(least, most))

    def fits(self, job: str, samples: int) -> None:
        """No device holds a batch of a virtual worker of more samples."""
        self._change(job, fits=samples)

    def batch_fixed(self, job: str, batch: int) -> None:
        """A job that is about to start for the first time has this batch for good."""
        self.jobs[job] = self.jobs[job].with_batch(batch).with_batches(None)

    def batch_changed(self, job: str, batch: int, epoch: int, parts: int = 1) -> None:
        """A job that is about to begin that epoch has another batch from then on, cut into parts."""
        record = self.jobs[job]
        if record.schedule is not None:
            change = BatchChange(epoch, batch // record.limit, parts)
            self.jobs[job] = record.following(record.schedule.changed(change))

    def stands_at(self, job: str, found: Standing, now: float = 0.0) -> None:
        """A job goes on from where its checkpoints say, whatever the journal had time to say."""
        record = self.jobs[job].at(found.epoch, found.step, now)
        if record.schedule is not None:
            schedule = record.schedule.standing(found.batches, found.epoch, found.step)
            record = record.following(schedule).at(found.epoch, found.step, now)
        elif found.epoch or found.step:
            record = record.with_batches(None)
        self.jobs[job] = record
        if found.ended:
            self._change(job, metrics=dict(found.metrics), checkpoint=found.path)

    def admitted(self, job: str, deadline: float) -> None:
        """A job's deadline is promised, seconds."""
        self._change(job, state=transitions.promised(self.jobs[job].state), promise=Promise("made", deadline))

    def promise_broken(self, job: str, deadline: float, end: float | None) -> None:
        """A job cannot meet the deadline that it was promised; it can be done at `end` at the earliest; None: never."""
        self._change(job, promise=Promise("late", deadline, end))

    def service_told(self, job: str, broken: bool) -> None:
        """A window of a job's service level has brought what was promised, or less."""
        self._change(job, windows=self.jobs[job].windows + 1, broken_windows=self.jobs[job].broken_windows + broken)

    def pardoned(self, job: str, now: float) -> None:
        """The service that a job has had until now no longer counts against it."""
        self._change(job, state=transitions.pardoned(self.jobs[job].state, now))

    def noticed(self, late: Mapping[str, float]) -> dict[str, float]:
        """Of jobs that can be done then at the earliest, those that are late by as much as is shown of a time."""
        return {job: end for job, end in late.items() if end - self.jobs[job].state.deadline >= LEAST_LATENESS}

    # what happens to a job while it trains

    def started(
        self, job: str, devices: tuple[int, ...], now: float, lane: int = 0, shares: tuple[int, ...] = (),
        kind: str = "", kept: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        """A job trains on these devices from now on, each with its share of the virtual workers, and reads that lane.

        One whose bits hold for one kind of device stays with the kind on which it begins.

        Args:
            kind: the devices are of it; empty: they are of several, or all are alike.
            kept: all that it will have once it is known how fast it trains on these; empty: these are all.
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

    def timed(self, job: str, rate: float) -> None:
        """The first steps of a running job were so fast, samples/s."""
        record, devices = self.jobs[job], self.running.get(job, ())
        if devices and record.curve is not None:
            self.jobs[job] = record.timed(self.kinds_of(devices), rate)
            self.refined.add(job)
            self._expect_scaling()

    def progressed(self, job: str, epoch: int, step: int, now: float) -> None:
        """A running job has come to a step of its epoch."""
        if epoch == self.jobs[job].epoch and job in self.running:
            self.jobs[job] = self.jobs[job].at(epoch, step, now)

    def epoch_ended(
        self, job: str, epoch: int, metrics: Mapping[str, float], rate: float, now: float,
        computed: Mapping[int, float] | None = None,
    ) -> None:  # fmt: skip
        """A job has finished an epoch, whose steps made so many samples/s; computed: device -> seconds of computing."""
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
        """A running job trains so many samples/s, less than was thought; that holds for other devices in proportion."""
        devices = self.running.get(job, ())
        self.jobs[job] = self.jobs[job].slowed(rate, self.kinds_of(devices), self.layout(job, devices))

    def saved(self, job: str, path: str, seconds: float) -> None:
        """A job's checkpoint was written."""
        self._stop_time.saved(job, seconds)
        self._change(job, checkpoint=path, ranks_cost=0)

    # how a job's training ends

    def stopped(self, job: str, epoch: int, step: int, now: float) -> None:
        """A job left its devices, and waits to go on."""
        self._released(job, now)
        self.jobs[job] = replace(self.jobs[job].at(epoch, step, now), status="pending")

    def halted(self, job: str, halted: bool = True) -> None:
        """A job was stopped by name and waits no more, or is taken up again."""
        self._left(replace(self.jobs[job], status="stopped" if halted else "pending"))

    def goes_on_from(self, job: str, epoch: int, step: int, now: float) -> None:
        """A job stands there; what it did beyond that since its last checkpoint is lost."""
        self.jobs[job] = self.jobs[job].at(epoch, step, now)

    def cost_ranks(self, job: str) -> None:
        """A job lost ranks that trained it."""
        self._change(job, ranks_cost=self.jobs[job].ranks_cost + 1)

    def done(
        self, job: str, epoch: int, metrics: Mapping[str, float], checkpoint: str | None, now: float,
        deadline: float | None = None,
    ) -> None:  # fmt: skip
        """A job has trained all that it should; its deadline was then, if it had one."""
        self._released(job, now)
        record = self.jobs[job].at(epoch, 0, now).ended(now, deadline)
        record = replace(record, state=transitions.done(record.state, now))
        self._left(replace(record, status="done", metrics=dict(metrics), checkpoint=checkpoint))

    def failed(self, job: str, epoch: int, error: str, now: float, deadly: bool = False) -> None:
        """A job's code raised in the epoch after these, or ends processes, or its policy will never run it."""
        self._released(job, now)
        record = self.jobs[job].at(epoch, 0, now).ended(None, None)
        self._left(replace(record, status="failed", error=error, deadly=deadly))

    def _left(self, record: JobRecord) -> None:
        self.jobs[record.name] = record
        self.promises.pop(record.name, None)

    def _expect_scaling(self) -> None:
        """Jobs that were timed on a single number of devices should scale as others do."""
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
        """Those that this session has, too."""
        return [device for device in devices if device < self.cluster.size]

    def _change(self, job: str, **fields: Any) -> None:
        self.jobs[job] = self.jobs[job].changed(**fields)
