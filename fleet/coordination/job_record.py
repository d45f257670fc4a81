"""One job's line in a run's books."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from fleet.scheduling.easyscale.dealing import deal, turns
from fleet.scheduling.easyscale.executors import Layout, pace_in
from fleet.scheduling.easyscale.kind_curves import KindCurves, Kinds
from fleet.scheduling.model import transitions
from fleet.scheduling.model.job_state import JobState, Scaling
from fleet.scheduling.model.rates import OBSERVED_WEIGHT, RateCurve
from fleet.scheduling.variable_batch.batch_scaling import BatchRange, BatchScaling
from trainers.batch_schedule import BatchSchedule

Status = Literal["pending", "running", "done", "failed"]

UNRATED = RateCurve({1: 1.0}, per_node=1)
"""Stands for the rates of a job that nobody has measured yet; no policy is shown such a job."""


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
        """As it stands in run.json."""
        return {"status": self.status, "deadline": self.deadline, "end": self.end}


@dataclass(frozen=True)
class JobRecord:
    """What a run knows of a job: its state, as policies see it, and what concerns nobody but the run.

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
        fits: most samples of a virtual worker that fit on a device; None: nobody has met the limit.
        alone: batch -> samples/s on one device, for batches other than the one that it has.
        by_kind: its rates on each kind of device; None: all devices are alike, or nobody knows.
        layouts: how its trainers shared accelerators -> samples/s that were seen then.
        started: whether it ever had devices.
        ranks_cost: times since its last checkpoint that ranks were lost which trained it.
        deadly: whether it failed as its code ends the processes that train it.
        promise: of its deadline; None: none was made.
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
    fits: int | None = None
    alone: Mapping[int, float] = field(default_factory=dict)
    by_kind: KindCurves | None = None
    layouts: Mapping[Layout, float] = field(default_factory=dict)
    started: bool = False
    ranks_cost: int = 0
    deadly: bool = False
    promise: Promise | None = None

    @classmethod
    def of(
        cls, state: JobState, stream: str, batches: BatchRange | None = None, schedule: BatchSchedule | None = None
    ) -> JobRecord:
        """The record of a job that has not begun; without elasticity it has a device for each virtual worker."""
        record = cls(state.changed(gang=state.limit), stream, samples=state.remaining, schedule=schedule)
        return record.with_batches(batches)

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
        """Its rates by kind of device, under "" where all are alike; none where nobody knows."""
        if self.by_kind is not None:
            return self.by_kind.curves
        return {} if self.curve is None else {"": self.curve}

    @property
    def waits(self) -> bool:
        """Whether it could go on, or still runs and will then."""
        return self.status in ("pending", "running")

    @property
    def scaling(self) -> BatchScaling | None:
        """Its rates by batch, as long as that can be chosen."""
        if self.batches is None or self.curve is None or self.batch is None:
            return None
        return BatchScaling(self.curve, self.batch, self.batches, self.alone)

    def pace(self, kinds: Kinds) -> float:
        """Samples/s on devices of these kinds; 0: on none, or nobody knows."""
        if self.curve is None or not kinds:
            return 0.0
        if self.by_kind is None or "" in kinds:  # of devices that an earlier session had
            return float(self.curve(len(kinds)))
        return self.by_kind.pace(kinds)

    def shares(self, kinds: Kinds) -> tuple[int, ...]:
        """Virtual workers of each of these devices; () if they are balanced."""
        return () if self.by_kind is None else self.by_kind.shares(kinds)

    def turn_seconds(self, kinds: Kinds) -> tuple[float, ...]:
        """What the turn of one virtual worker takes on each of these devices; () where nobody knows."""
        pace = self.pace(kinds)
        if not pace:
            return ()
        speeds = [1.0 if self.by_kind is None else self.by_kind.speeds[kind] for kind in kinds]
        longest = turns(deal(self.limit, speeds), speeds)
        return tuple((self.batch or 0) / pace / longest / speed for speed in speeds)

    def rated(self, curve: RateCurve, by_kind: KindCurves | None, kinds: Kinds) -> JobRecord:
        """The job once its rates are known.

        Args:
            by_kind: those on each kind of device, of which `curve` is the home kind's.
            kinds: of the devices that it has.
        """
        known = replace(self, by_kind=by_kind, state=self.state.changed(rate=curve))
        return replace(known, state=transitions.rerated(self.state, curve, known.pace(kinds)))

    def taught(
        self, kinds: Kinds, shares: tuple[int, ...], rate: float, seconds: Sequence[float], layout: Layout = ()
    ) -> JobRecord:
        """The job once it was seen to train so fast on its devices, and how long each computed for that."""
        if layout:
            return self.taught_in(layout, rate)
        if self.by_kind is None or "" in kinds:
            assert self.curve is not None
            return self.rated_anew(self.curve.observe(len(kinds), rate), self.by_kind, kinds)
        by_kind = self.by_kind.worked(kinds, shares, seconds) if shares else self.by_kind
        by_kind = by_kind.observed(kinds, rate)
        return self.rated_anew(by_kind.curve, by_kind, kinds)

    def rated_together(self, executors: int, rate: float) -> JobRecord:
        """The job with its rate with so many trainers on an accelerator, after those with fewer."""
        rates = self.state.executor_rates
        known = executors == len(rates) + 1
        return replace(self, state=self.state.changed(executor_rates=(*rates, rate))) if known else self

    def pace_in(self, layout: Layout) -> float:
        """Samples/s where its trainers share accelerators so: as seen, or by what was measured of 1, 2, ... of them."""
        if layout in self.layouts:
            return self.layouts[layout]
        assert self.curve is not None
        return pace_in(layout, self.state.executor_rates, self.curve, self.limit)

    def taught_in(self, layout: Layout, rate: float) -> JobRecord:
        """The job once it was seen to train so fast where its trainers share accelerators so."""
        before = self.layouts.get(layout, rate)
        return self.slowed_in(layout, before + OBSERVED_WEIGHT * (rate - before))

    def slowed_in(self, layout: Layout, rate: float) -> JobRecord:
        """The job if it trains so fast there from now on."""
        state = transitions.rerated(self.state, self.state.rate, rate)
        return replace(self, state=state, layouts={**self.layouts, layout: rate})

    def rated_anew(self, curve: RateCurve, by_kind: KindCurves | None, kinds: Kinds) -> JobRecord:
        """The job whose rates turn out to be others; those with other batches are so in proportion."""
        factor = curve(1) / self.curve(1) if self.curve is not None else 1.0
        alone = {batch: rate * factor for batch, rate in self.alone.items()}
        return replace(self.rated(curve, by_kind, kinds), alone=alone)

    def seen(self, now: float, restart: float) -> JobState:
        """The job as policies see it now.

        Args:
            restart: most seconds that it takes to get devices.
        """
        stream = f"{self.stream}/{self.epoch}"
        scaling: Scaling | None = self.scaling or self.by_kind
        return transitions.expected(self.state, now).changed(stream=stream, scaling=scaling, restart=restart)

    def at(self, epoch: int, step: int, now: float) -> JobRecord:
        """The job where it stands now: after so many epochs, and steps of the next; changes after that are undone."""
        record = self if self.schedule is None else self.following(self.schedule.until(epoch + 1))
        trained = epoch * self.state.epoch + step * record.step_samples
        state = transitions.reached(record.state, epoch, max(0.0, self.samples - trained), trained, now)
        return replace(record, state=state, step=step)

    @property
    def step_samples(self) -> int:
        """Samples of a step in the epoch that it stands in."""
        return (self.batch or 0) if self.schedule is None else self.schedule.at(sys.maxsize).size * self.limit

    def with_own_batch(self) -> JobRecord:
        """The job as it is rated: with the batch that its spec gives it, whatever it is now."""
        return self if self.schedule is None else self.with_batch(self.schedule.own * self.limit)

    def with_its_batch(self) -> JobRecord:
        """The job once it is rated: with the batch that it has now."""
        return self.with_batch(self.step_samples) if self.schedule is not None else self

    def following(self, schedule: BatchSchedule) -> JobRecord:
        """The job with these batches, of which the last holds."""
        if schedule == self.schedule:
            return self
        return replace(self, schedule=schedule).with_its_batch()

    def with_batch(self, batch: int) -> JobRecord:
        """The job with so many samples in a step, and the rates that it has then."""
        record, scaling = self, self.scaling
        if scaling is not None and batch != self.batch:
            curve, own = scaling.curve_of(batch), scaling.curve
            by_kind = self.by_kind and self.by_kind.scaled(curve(1) / own(1))
            record = self.rated(by_kind.curve if by_kind else curve, by_kind, ())
            known = {**self.alone, scaling.own: own(1)}
            record = replace(record, alone={each: rate for each, rate in known.items() if each != batch})
        return replace(record, state=transitions.rebatched(record.state, batch))

    def parts_of(self, batch: int) -> int:
        """Into how many parts such a batch is cut, so that each fits on a device, as far as anybody knows."""
        changes = () if self.schedule is None else self.schedule.changes
        cut = [-(-change.size // change.parts) for change in changes if change.parts > 1]  # by an earlier session
        fits = self.fits or min(cut, default=None)
        return 1 if fits is None else -(-batch // (fits * self.limit))

    def is_as_it_has(self, batch: int) -> bool:
        """Whether that is the batch that it has, in the parts that it has."""
        parts = 1 if self.schedule is None else self.schedule.at(sys.maxsize).parts
        return (batch, self.parts_of(batch)) == (self.batch, parts)

    def ended(self, now: float | None, deadline: float | None) -> JobRecord:
        """The job with what became of its promise, if it was promised this deadline: done now, or, None, not at all."""
        if self.promise is None:
            return self
        until = self.promise.deadline if deadline is None else deadline
        kept = now is not None and now <= until
        return replace(self, promise=Promise("kept" if kept else "missed", until, now))

    def begun_again(self) -> JobRecord:
        """The job in a new session, by whose clock its deadline is another; its promise is looked at anew."""
        if self.promise is None or not self.waits:
            return self
        return replace(self, promise=Promise("made", self.state.deadline))

    def with_batches(self, batches: BatchRange | None) -> JobRecord:
        """The job with other batches to choose from."""
        ends = None if batches is None else batches.ends
        return replace(self, state=self.state.changed(batches=ends), batches=batches)

    def result(self) -> dict[str, Any]:
        """The job's entry in run.json."""
        status = "pending" if self.status == "running" else self.status
        return {
            "status": status,
            "epochs": self.epoch,
            "metrics": self.metrics,
            "checkpoint": self.checkpoint,
            "error": self.error,
            "promise": None if self.promise is None else self.promise.to_json(),
        }
