"""What a run knows of one job: its record, and where it stands by its checkpoints.

A trainer gives a new best checkpoint its name before it tells rank 0, and rank 0 removes the one before only when the
journal has the new one: so the checkpoint that the journal names is there at any time. Where ranks, or all, were lost
between, `settle_best` makes the journal and the folder agree.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from fleet.coordination.protocol import CheckpointWritten
from fleet.journal import events
from fleet.journal.directory import RunDirectory
from fleet.scheduling.easyscale.kind_curves import KindCurves, Kinds, Layout, deal, pace_in, turns
from fleet.scheduling.model import transitions
from fleet.scheduling.model.batch_scaling import BatchRange, BatchScaling
from fleet.scheduling.model.jobs import JobState
from fleet.scheduling.model.rates import OBSERVED_WEIGHT, RateCurve
from trainers import CheckpointError, Stop, converged, file_name, latest_good
from trainers.state.kept_checkpoints import Best, ByMetric, best_file, best_of, drop_others, is_kept, keep_again
from trainers.task.batch_plan import BatchChange, BatchSchedule, from_lists

Status = Literal["pending", "running", "stopped", "done", "failed"]

UNRATED = RateCurve({1: 1.0}, per_node=1)
"""Rates of a job that nobody has measured yet; policies never see such a job."""


@dataclass(frozen=True)
class JobRecord:
    """What a run knows of a job: its state, as policies see it, and what only the run needs.

    Attributes:
        state: what it asks for, and where it stood when that was last known.
        stream: its data set and seed; with the epoch, they decide who can share its samples.
        samples: what it trains until its last epoch ends; infinite: not known.
        step: inside the epoch.
        metrics: metrics of its last epoch.
        checkpoint: path of its last one.
        batches: batches among which a policy may choose: until the job first starts, or always if it has a schedule;
            None: its batch is fixed.
        schedule: which batch each epoch has, where that may change; None: it may not.
        growth: by how many times, up or down, its batch changes at once at most.
        fits: most samples of a virtual worker that fit on a device; None: nobody has met the limit.
        alone: batch -> samples/s on one device, for batches other than the one that it has.
        by_kind: its rates on each kind of device; None: all devices are alike, or nobody knows.
        layouts: how its trainers shared accelerators -> samples/s that were seen then.
        started: whether it ever had devices.
        ranks_cost: times since its last checkpoint that ranks were lost which trained it.
        deadly: whether it failed as its code ends the processes that train it.
        promise: of its deadline; None: none was made.
        windows, broken_windows: of its service level, of which it is known what became; those with less than promised.
        guessed: whether its rates are a guess, since nobody has measured it yet.
        rehearsed: how fast it trains in a rehearsal that does not know that; None: as its rates say.
        until: epochs after which it pauses until its search wants more of it; None: it is no trial of a search.
    """

    state: JobState
    stream: str
    samples: float = math.inf
    status: Status = "pending"
    step: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    checkpoint: str | None = None
    error: str | None = None
    batches: BatchRange | None = None
    schedule: BatchSchedule | None = None
    growth: float = math.inf
    fits: int | None = None
    alone: Mapping[int, float] = field(default_factory=dict)
    by_kind: KindCurves | None = None
    layouts: Mapping[Layout, float] = field(default_factory=dict)
    started: bool = False
    ranks_cost: int = 0
    deadly: bool = False
    promise: Promise | None = None
    windows: int = 0
    broken_windows: int = 0
    guessed: bool = False
    rehearsed: JobRecord | None = None
    until: int | None = None

    @classmethod
    def of(
        cls, state: JobState, stream: str, batches: BatchRange | None = None, schedule: BatchSchedule | None = None
    ) -> JobRecord:
        """Return the record of a job that has not begun; without elasticity it has a device for each virtual worker."""
        record = cls(state.changed(gang=state.limit), stream, samples=state.remaining, schedule=schedule)
        return record.with_batches(batches)

    def changed(self, **fields: Any) -> JobRecord:
        """Return the record with other values: several times as fast as `replace`."""
        other: JobRecord = object.__new__(JobRecord)
        other.__dict__.update(self.__dict__)
        other.__dict__.update(fields)
        return other

    @property
    def name(self) -> str:
        return self.state.name

    @property
    def limit(self) -> int:
        """Most devices that it can use: its virtual workers."""
        return self.state.limit

    @property
    def epoch(self) -> int:
        """Epochs that it has finished."""
        return self.state.epochs

    @property
    def batch(self) -> int | None:
        """Samples of a step."""
        return self.state.batch

    @property
    def curve(self) -> RateCurve | None:
        """Samples/s by devices; None: nobody knows yet."""
        return None if self.state.rate is UNRATED else self.state.rate

    @property
    def curves(self) -> Mapping[str, RateCurve]:
        """The job's rates by kind of device, under "" where all are alike; none where nobody knows."""
        if self.by_kind is not None:
            return self.by_kind.curves
        return {} if self.curve is None else {"": self.curve}

    @property
    def waits(self) -> bool:
        """Whether it could go on, or still runs and will then."""
        return self.status == "running" or (self.status == "pending" and not self.is_paused)

    @property
    def is_paused(self) -> bool:
        """Whether it has trained all that its search wants of it so far."""
        return self.until is not None and self.epoch >= self.until

    @property
    def scaling(self) -> BatchScaling | None:
        """The job's rates by batch, as long as a policy can choose that."""
        if self.batches is None or self.curve is None or self.batch is None:
            return None
        return BatchScaling(self.curve, self.batch, self.batches, self.alone)

    def pace(self, kinds: Kinds, layout: Layout = ()) -> float:
        """Return samples/s on devices of these kinds; 0: on none, or nobody knows.

        Args:
            layout: how its trainers share accelerators there; (): nobody has measured what that makes.
        """
        if self.curve is not None and layout:
            seen = self.layouts.get(layout)
            return pace_in(layout, self.state.executor_rates, self.curve, self.limit) if seen is None else seen
        if self.curve is None or not kinds:
            return 0.0
        if self.by_kind is None or "" in kinds:  # of devices that an earlier session had
            return float(self.curve(len(kinds)))
        return self.by_kind.pace(kinds)

    def shares(self, kinds: Kinds) -> tuple[int, ...]:
        """Virtual workers of each of these devices; () if they are balanced."""
        return () if self.by_kind is None else self.by_kind.shares(kinds)

    def turn_seconds(self, kinds: Kinds, fed: float = math.inf) -> tuple[float, ...]:
        """Return what the turn of one virtual worker takes on each of these devices; () where nobody knows.

        Args:
            fed: samples/s that the data path can feed it.
        """
        if self.rehearsed is not None:
            return self.rehearsed.turn_seconds(kinds, fed)
        pace = min(self.pace(kinds), fed)
        if not pace:
            return ()
        speeds = [1.0 if self.by_kind is None else self.by_kind.speeds[kind] for kind in kinds]
        longest = turns(deal(self.limit, speeds), speeds)
        return tuple((self.batch or 0) / pace / longest / speed for speed in speeds)

    def rated(self, curve: RateCurve, by_kind: KindCurves | None, kinds: Kinds) -> JobRecord:
        """Return the job once its rates are known.

        Args:
            by_kind: those on each kind of device, of which `curve` is the home kind's.
            kinds: of the devices that it has.
        """
        known = replace(self, by_kind=by_kind, state=self.state.changed(rate=curve))
        return replace(known, state=transitions.rerated(self.state, curve, known.pace(kinds)))

    def expected_to_keep(self, efficiency: float, kinds: Kinds) -> JobRecord:
        """Return the job, timed on one number of devices, if each further device keeps so much of its speed.

        Args:
            kinds: of the devices that it has.
        """
        curve = self.curve
        if curve is None or self.by_kind is not None or curve.efficiency is not None or curve.expected == efficiency:
            return self
        return self.rated(replace(curve, expected=efficiency), None, kinds)

    def is_timed_on(self, kinds: Kinds) -> bool:
        """Return whether its rate on such devices was measured, or several kinds of them are mixed."""
        if self.by_kind is None or "" in kinds:
            return not self.guessed and self.curve is not None and len(kinds) in self.curve.measured
        return not self.guessed and (len(set(kinds)) > 1 or len(kinds) in self.by_kind.curves[kinds[0]].measured)

    def timed(self, kinds: Kinds, rate: float) -> JobRecord:
        """Return the job whose first steps on such devices were so fast; a measurement there counts more.

        Where all its rates are a guess, they are scaled by what this says of them.
        """
        if self.guessed and self.curve is not None:
            by_kind = self.by_kind and self.by_kind.scaled(rate / self.pace(kinds))
            curve = by_kind.curve if by_kind else replace(self.curve, measured={len(kinds): rate})
            return replace(self.rated_anew(curve, by_kind, kinds), guessed=False)
        return self if self.is_timed_on(kinds) else self.taught(kinds, (), rate, ())

    def taught(
        self, kinds: Kinds, shares: tuple[int, ...], rate: float, seconds: Sequence[float], layout: Layout = ()
    ) -> JobRecord:
        """Return the job after an epoch at such a rate, in which each of its devices computed so many seconds."""
        if layout:
            return self.taught_in(layout, rate)
        if self.guessed:
            return self.timed(kinds, rate)
        if self.by_kind is None or "" in kinds:
            assert self.curve is not None
            return self.rated_anew(self.curve.observe(len(kinds), rate), self.by_kind, kinds)
        by_kind = self.by_kind.worked(kinds, shares, seconds) if shares else self.by_kind
        by_kind = by_kind.observed(kinds, rate)
        return self.rated_anew(by_kind.curve, by_kind, kinds)

    def rated_together(self, executors: int, rate: float) -> JobRecord:
        """Return the job with its rate with one trainer more on an accelerator."""
        rates = self.state.executor_rates
        known = executors == len(rates) + 1
        return replace(self, state=self.state.changed(executor_rates=(*rates, rate))) if known else self

    def taught_in(self, layout: Layout, rate: float) -> JobRecord:
        """Return the job after an epoch at such a rate with its trainers sharing accelerators so."""
        before = self.layouts.get(layout, rate)
        return self.slowed(before + OBSERVED_WEIGHT * (rate - before), (), layout)

    def slowed(self, rate: float, kinds: Kinds, layout: Layout) -> JobRecord:
        """Return the job as it trains at such a rate on these devices from now on, on others in proportion."""
        if layout:
            state = transitions.rerated(self.state, self.state.rate, rate)
            return replace(self, state=state, layouts={**self.layouts, layout: rate})
        if self.curve is None or not self.state.pace:
            return self
        factor = rate / self.state.pace
        by_kind = self.by_kind and self.by_kind.scaled(factor)
        return self.rated_anew(by_kind.curve if by_kind else self.curve.scaled(factor), by_kind, kinds)

    @property
    def knows_executors(self) -> bool:
        """Whether somebody has measured it with several trainers on an accelerator."""
        return bool(self.state.executor_rates) and self.curve is not None

    def rated_anew(self, curve: RateCurve, by_kind: KindCurves | None, kinds: Kinds) -> JobRecord:
        """Return the job with other rates; those with other batches change in proportion."""
        factor = curve(1) / self.curve(1) if self.curve is not None else 1.0
        alone = {batch: rate * factor for batch, rate in self.alone.items()}
        return replace(self.rated(curve, by_kind, kinds), alone=alone)

    def seen(self, restart: float, fed: float = math.inf, times: float = 1.0) -> JobState:
        """Return the job as policies see it.

        Args:
            restart: most seconds that it takes to get devices.
            fed: samples/s that preprocessors alone feed it; it never trains faster than `times` as many.
        """
        stream, rate, by_kind = f"{self.stream}/{self.epoch}", self.state.rate, self.by_kind
        if fed < math.inf:
            rate, by_kind = rate.capped(fed * times, self.limit), by_kind and by_kind.capped(fed * times)
        return self.state.changed(
            stream=stream, rate=rate, scaling=self.scaling or by_kind, restart=restart, fed=fed, least=self.batch or 0
        )

    def at(self, epoch: int, step: int, now: float) -> JobRecord:
        """Return the job after so many epochs, and steps of the next; changes of its batch after that are undone."""
        record = self if self.schedule is None else self.following(self.schedule.until(epoch + 1))
        trained = epoch * self.state.epoch + step * record.step_samples
        state = transitions.reached(record.state, epoch, max(0.0, self.samples - trained), trained, now)
        return record.changed(state=state, step=step)

    def limited(self, until: int, ahead: bool = False) -> JobRecord:
        """Return the job, a trial of a search, as it pauses after so many epochs."""
        known = replace(self, until=until, samples=until * self.state.epoch, state=self.state.changed(ahead=ahead))
        return known.at(self.epoch, self.step, self.state.ready)

    def withdrawn(self, epoch: int, metrics: Mapping[str, float], checkpoint: str | None, now: float) -> JobRecord:
        """Return the trial without what it trained ahead after so many epochs."""
        known = replace(self, status="pending", metrics=dict(metrics), checkpoint=checkpoint, error=None, deadly=False)
        return known.limited(epoch).at(epoch, 0, now)

    @property
    def step_samples(self) -> int:
        """Samples of a step in the epoch that it stands in."""
        return (self.batch or 0) if self.schedule is None else self.schedule.at(sys.maxsize).size * self.limit

    def with_own_batch(self) -> JobRecord:
        """Return the job with the batch of its spec, with which it is rated."""
        return self if self.schedule is None else self.with_batch(self.schedule.own * self.limit)

    def with_its_batch(self) -> JobRecord:
        """Return the job with the batch that it has now, once it is rated."""
        return self.with_batch(self.step_samples) if self.schedule is not None else self

    def following(self, schedule: BatchSchedule) -> JobRecord:
        """Return the job with this schedule, whose last batch holds."""
        if schedule == self.schedule:
            return self
        return replace(self, schedule=schedule).with_its_batch()

    def with_batch(self, batch: int) -> JobRecord:
        """Return the job with another batch, and the rates that it has then."""
        record, scaling = self, self.scaling
        if scaling is not None and batch != self.batch:
            curve, own = scaling.curve_of(batch), scaling.curve
            by_kind = self.by_kind and self.by_kind.scaled(curve(1) / own(1))
            record = self.rated(by_kind.curve if by_kind else curve, by_kind, ())
            known = {**self.alone, scaling.own: own(1)}
            record = replace(record, alone={each: rate for each, rate in known.items() if each != batch})
        return replace(record, state=transitions.rebatched(record.state, batch))

    def parts_of(self, batch: int) -> int:
        """Return into how many parts such a batch is cut, so that each fits on a device as far as is known."""
        changes = () if self.schedule is None else self.schedule.changes
        cut = [-(-change.size // change.parts) for change in changes if change.parts > 1]  # by an earlier session
        fits = self.fits or min(cut, default=None)
        return 1 if fits is None else -(-batch // (fits * self.limit))

    def towards(self, batch: int) -> int:
        """Return the batch nearest to that one that a single change may bring."""
        if self.schedule is None or not math.isfinite(self.growth):
            return batch
        own = self.step_samples  # a worker's batch may always change by one sample
        least, most = math.ceil(own / self.growth), math.floor(own * self.growth)
        return max(min(least, own - self.limit), min(max(most, own + self.limit), batch))

    def is_as_it_has(self, batch: int) -> bool:
        """Return whether it has that batch already, in the parts that it would have."""
        parts = 1 if self.schedule is None else self.schedule.at(sys.maxsize).parts
        return (batch, self.parts_of(batch)) == (self.batch, parts)

    def ended(self, now: float | None, deadline: float | None) -> JobRecord:
        """Return the job with its promise kept or missed, if it has one: it is done `now`; None: it failed."""
        if self.promise is None:
            return self
        until = self.promise.deadline if deadline is None else deadline
        kept = now is not None and now <= until
        return replace(self, promise=Promise("kept" if kept else "missed", until, now))

    @property
    def expected_end(self) -> float:
        """When it will be done at its pace, seconds; infinite where that is not known."""
        return self.state.ready + self.state.remaining / self.state.pace if self.state.pace else math.inf

    def step_seconds(self, kinds: Kinds) -> float:
        """Return seconds of a step on devices of these kinds; 0: not known."""
        pace = self.pace(kinds)
        return (self.batch or 0) / pace if pace else 0.0

    def reopened(self, is_over: bool) -> JobRecord:
        """Return the job in a new session, without its rates; a failed one is tried again.

        Args:
            is_over: the run had ended; else a job that costs ranks is not tried again.
        """
        known = replace(self, state=self.state.changed(rate=UNRATED, last=(), executor_rates=()))
        known = replace(known, alone={}, by_kind=None, guessed=False, layouts={})
        if self.status == "failed" and (is_over or not self.deadly):
            known = replace(known, status="pending", error=None, deadly=False)
        return (replace(known, ranks_cost=0) if is_over else known).begun_again()

    def staying_on(self, kind: str) -> JobRecord:
        """Pin the job to one kind of device, unless its level keeps bits across kinds; "": of several kinds."""
        if not kind or self.state.mixed_kinds or self.state.kind == kind:
            return self
        stays = replace(self, state=self.state.changed(kind=kind))
        if self.by_kind is None or kind not in self.by_kind.curves:
            return stays
        there = self.by_kind.at_home_on(kind)
        return stays.rated(there.curve, there, ())

    def begun_again(self) -> JobRecord:
        """Return the job in a new session, by whose clock its promised deadline is another second."""
        if self.promise is None or not self.waits:
            return self
        return replace(self, promise=Promise("made", self.state.deadline))

    def with_batches(self, batches: BatchRange | None) -> JobRecord:
        """Return the job with other batches to choose from."""
        ends = None if batches is None else batches.ends
        return replace(self, state=self.state.changed(batches=ends), batches=batches)

    def result(self) -> dict[str, Any]:
        """Return the job's entry in run.json."""
        left: str = "pending" if self.status == "running" else self.status
        status = "paused" if left == "pending" and self.is_paused else left
        return {
            "status": status,
            "epochs": self.epoch,
            "metrics": self.metrics,
            "checkpoint": self.checkpoint,
            "error": self.error,
            "promise": None if self.promise is None else self.promise.to_json(),
            **({"service": {"windows": self.windows, "broken": self.broken_windows}} if self.windows else {}),
        }


LEAST_LATENESS = 0.01
"""A job counts as late for its deadline by so many seconds: fewer would be shown as none."""


@dataclass(frozen=True)
class Promise:
    """What became of a deadline that was promised.

    Attributes:
        status: `made`; `late` once it is known that it cannot be kept; `kept` or `missed` in the end.
        deadline: seconds of the run, by the clock of the session that says so.
        end: when the job was done, or, while it is late, can be done at the earliest; None: not known, or never.
    """

    status: Literal["made", "late", "kept", "missed"]
    deadline: float
    end: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the promise as run.json holds it."""
        return {"status": self.status, "deadline": self.deadline, "end": self.end}


@dataclass(frozen=True)
class Standing:
    """From where a job goes on.

    Attributes:
        epoch: finished ones.
        step: inside the epoch.
        path: path of its newest whole checkpoint; None: it begins anew.
        metrics: metrics of the last finished epoch.
        batches: how its batch has changed until then.
        ended: why it is done, if it is; empty: it is not.
        best: its best epoch until then, if best checkpoints are kept.
        rejected: newer checkpoints that are damaged, newest first.
    """

    epoch: int = 0
    step: int = 0
    path: str | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    ended: str = ""
    rejected: tuple[CheckpointError, ...] = ()
    batches: tuple[BatchChange, ...] = ()
    best: Best | None = None


def standing(folder: Path, stop: Stop, by: ByMetric | None = None) -> Standing:
    """Read a job's checkpoints; a job may be done before anybody could be told.

    Args:
        by: what the best checkpoint is found by; None: none is kept.
    """
    saved, rejected = latest_good(folder)
    if saved is None:
        return Standing(rejected=tuple(rejected))
    metrics = dict(saved.history.at(saved.epoch))
    ended, changes = converged(saved.history, stop) or "", from_lists(saved.batches or ())
    best = best_of(saved.history, by) if by is not None and saved.history.has(by.metric) else None
    path = str(folder / file_name(saved))
    return Standing(saved.epoch, saved.step, path, metrics, ended, tuple(rejected), changes, best)


def record_checkpoint(record: Callable[[events.Event], object], event: CheckpointWritten) -> None:
    """Record a checkpoint; if it is the job's best one, remove the best one before."""
    keys = {**asdict(event), "best": told_best(event.best)}
    record(events.Checkpoint(**keys))
    if event.best is not None and event.best.epoch == event.epoch:
        drop_others(Path(event.path).parent, event.best.epoch)


def settle_best(
    record: Callable[[events.Event], object],
    folder: Path,
    job: str,
    found: Standing,
    told: Mapping[str, Best | None] | None = None,
) -> None:
    """Let the folder of a job that nobody trains hold the best checkpoint of the history with which it goes on.

    Args:
        folder: where its checkpoints lie.
        told: job -> what the journal said last, None: that none is kept; not given: not known.
    """
    best = found.best
    if told is not None and best is None and told.get(job) is None:
        return
    if best is not None and not is_kept(folder, best.epoch) and not keep_again(folder, best.epoch):
        best = None
    if told is None or best != told.get(job):
        record(events.BestKept(job=job, best=told_best(best)))
    drop_others(folder, None if best is None else best.epoch, later=True)


@dataclass(frozen=True)
class KeptBest:
    """A job's best checkpoint.

    Attributes:
        best: it tells the epoch, and the value of the metric by which that was the best.
        path: where the file lies.
    """

    best: Best
    path: Path


def told_best(best: Best | None) -> events.Best | None:
    """Return what the journal says of a best epoch."""
    return None if best is None else events.Best(best.metric, best.value, best.epoch)


def told_bests(told: Iterable[events.Event]) -> dict[str, Best | None]:
    """Job -> its best epoch by the last event that says which is kept; None: none is. Others were never told."""
    found: dict[str, Best | None] = {}
    for event in told:
        if isinstance(event, events.BestKept) or (isinstance(event, events.Checkpoint) and event.best is not None):
            best = event.best
            found[event.job] = None if best is None else Best(best.metric, best.value, best.epoch)
    return found


def kept_bests(directory: Path, told: Iterable[events.Event]) -> dict[str, KeptBest]:
    """Job -> its best checkpoint, of those whose file is there."""
    files = RunDirectory(directory)
    found = {
        job: KeptBest(best, best_file(files.checkpoints(job), best.epoch))
        for job, best in told_bests(told).items()
        if best is not None
    }
    return {job: kept for job, kept in found.items() if kept.path.is_file()}
