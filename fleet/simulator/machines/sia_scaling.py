"""Where a job of Sia's workloads stands, and what it knows: its `JobState.scaling`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fleet.scheduling.model.arrays import Floats
from fleet.scheduling.model.rates import RateCurve
from fleet.scheduling.variable_batch.kind_goodput import Shapes
from fleet.simulator.machines.epoch_ends import Stretch, stretch
from fleet.simulator.machines.sia_agent import BatchSplit, Key, Noise, Placement, SiaAgent

_STEPS_OF_E = 20
"""Steps of the logarithm of the gradient noise to which a profiled job's tables are made."""
_SHORTEST = 1e-3
"""Seconds of an epoch that is over within half a second."""


@dataclass(frozen=True)
class OwnRates:
    """What holds for all jobs of an application with one batch size of their own.

    Attributes:
        agent: what jobs of the application know.
        batch: their own batch size, the largest with which a policy reckons.
        curves: kind -> goodput at that batch size by devices, in the mean of the whole training.
        home: the kind that comes first.
        most: as `KindGoodput.most`.
        application: its name.
    """

    agent: SiaAgent
    batch: int
    curves: Mapping[str, RateCurve]
    home: str
    most: int
    application: str

    def samples(self, kind: str, placement: Placement) -> float:
        """Samples/s at the own batch size."""
        split = self.agent.chosen(kind, placement, self.batch)
        application = self.agent.application
        step = application.kinds[kind].step(placement, split.local)
        seconds = step.seconds + split.passes * (step.seconds - step.sync)
        return self.batch / (seconds * application.slowdown)


@dataclass(frozen=True)
class SiaScaling:
    """A job's knowledge in the epoch in which it is; a `KindGoodput`.

    Attributes:
        own: of all jobs like it.
        per_node: kind -> devices of a node.
        epoch: from 0.
        keys: kind -> steps that it has measured there; None: it was profiled before, and knows all.
        noise: of its gradients, as it measured it last; None: it has not.
        kind, placement: where it runs, or ran last.
        split: its batch there.
        coming: the batch that it will have from the next report on.
        measured: whether it has measured its steps there.
        pace: goodput there, samples/s of the first batch size, with which its epoch ends at a whole second.
        stretch: how far its epoch is in truth; None: not told: it has not run, or it was profiled before.
    """

    own: OwnRates
    per_node: Mapping[str, int]
    epoch: int = 0
    keys: Mapping[str, tuple[Key, ...]] | None = None
    noise: Noise | None = None
    kind: str = ""
    placement: Placement = ()
    split: BatchSplit | None = None
    coming: BatchSplit | None = None
    measured: bool = False
    pace: float = 0.0
    stretch: Stretch | None = None

    @property
    def application(self) -> str:
        """As `KindGoodput.application`."""
        return self.own.application

    @property
    def tried(self) -> int:
        """As `KindGoodput.tried`."""
        if self.keys is None:
            return self.own.most
        return max((key[1] for keys in self.keys.values() for key in keys), default=0)

    @property
    def most(self) -> int:
        """As `KindGoodput.most`."""
        return self.own.most

    @property
    def penalty(self) -> float:
        """As `KindGoodput.penalty`."""
        return self.own.agent.application.penalty

    def rate(self, devices: int, batch: int | None = None, nodes: int = 1) -> float:
        """As `KindGoodput.rate`."""
        return self.curve_on(self.own.home)(devices)

    def worker_rate(self, kind: str) -> float:
        """As `KindGoodput.worker_rate`."""
        return self.own_rate(kind, 1) / self.own.batch

    def curve_on(self, kind: str) -> RateCurve:
        """As `KindGoodput.curve_on`."""
        return self.own.curves[kind]

    def own_rate(self, kind: str, devices: int) -> float:
        """As `KindGoodput.own_rate`, on nodes that are filled one after another."""
        full, rest = divmod(devices, self.per_node[kind])
        placement = tuple(sorted((self.per_node[kind],) * full + ((rest,) if rest else ())))
        return self.own.samples(kind, placement)

    def goodputs(self, kind: str, shapes: Shapes) -> Floats | None:
        """As `KindGoodput.goodputs`."""
        keys = None if self.keys is None else self.keys.get(kind)
        if self.noise is None or (self.keys is not None and not keys):
            return None
        agent = self.own.agent
        return agent.goodputs(kind, keys, self.noise, shapes, agent.largest if keys is None else self.own.batch)

    def ratio(self, kind: str, other: str) -> float:
        """As `KindGoodput.ratio`."""
        kinds = self.own.agent.application.kinds
        return kinds[kind].single / kinds[other].single

    def landed(self, kind: str, placement: Placement, left: float, tunes: bool, since: float) -> SiaScaling:
        """On other devices since then, with the batch that it chooses there, and so many samples of its epoch left."""
        agent = self.own.agent
        keys = None if self.keys is None else self.keys.get(kind)
        if not tunes:
            split = agent.chosen(kind, placement, self.own.batch)
        elif self.noise is None or (self.keys is not None and not keys):
            split = agent.start(kind, placement)
        else:
            split = agent.tuned(kind, keys, self.noise, placement)
        there = self.with_(kind=kind, placement=placement, split=split, coming=split, measured=not tunes)
        return there.paced(left, since)

    def looked(self) -> SiaScaling:
        """It has measured its steps and the noise of its gradients, and knows which batch it wants next."""
        agent, split = self.own.agent, self.split
        assert split is not None
        devices = sum(self.placement)
        noise = agent.noise(split.batch(devices), self.epoch)
        keys, known = self.keys, None
        if keys is None:
            noise = _rounded(noise)
        if keys is not None:
            key = len(self.placement), devices, split.local
            known = keys.get(self.kind, ())
            if key not in known:
                known = (*known, key)
                keys = {**keys, self.kind: known}
        coming = agent.tuned(self.kind, known, noise, self.placement)
        return self.with_(keys=keys, noise=noise, coming=coming, measured=True)

    def reported(self, left: float, since: float) -> SiaScaling:
        """It has told what it measured, and has the batch that it wants, with so many samples of its epoch left."""
        return self.with_(split=self.coming, measured=False).paced(left, since)

    def after_epoch(self, tunes: bool, looks: bool, since: float) -> SiaScaling:
        """The job's next epoch begins at `since`, with the batch that it wanted by the last one's noise.

        Args:
            tunes: whether it chooses its batch itself.
            looks: whether it measures at once.
        """
        ends, epoch = self.own.agent.application.ends, self.epoch + 1
        whole = float(ends[epoch] - ends[epoch - 1]) * self.own.agent.first
        if not tunes:
            return self.with_(epoch=epoch, stretch=None).paced(whole, since)
        looked = self if self.measured else self.looked()
        there = looked.with_(epoch=epoch, split=looked.coming, measured=False, stretch=None).paced(whole, since)
        return there.looked() if looks else there

    def paced(self, left: float, since: float) -> SiaScaling:
        """At its goodput, so much faster or slower that what is left of its epoch takes whole seconds."""
        assert self.split is not None
        goodput = self.own.agent.goodput(self.kind, self.placement, self.split, self.epoch)
        if self.keys is None:
            seconds = max(round(left / goodput), _SHORTEST)
            return self.with_(pace=left / seconds if left > 0 else goodput)
        truly = left if self.stretch is None else self.stretch.left_at(left)
        there = stretch(left, truly, goodput, since)
        return self.with_(pace=there.pace, stretch=there)

    def with_(self, **fields: Any) -> SiaScaling:
        """Return a copy with other values, which the caller vouches for: several times as fast as `replace`."""
        other: SiaScaling = object.__new__(SiaScaling)
        other.__dict__.update(self.__dict__)
        other.__dict__.update(fields)
        return other


def profiled(scaling: SiaScaling) -> SiaScaling:
    """A job whose application was profiled: it knows all step times, and the noise of its first steps."""
    agent = scaling.own.agent
    return replace(scaling, keys=None, noise=_rounded(agent.noise(agent.first, 0)))


def _rounded(noise: Noise) -> Noise:
    """Only the ratio of both counts; to some per cent, so that tables serve many jobs and epochs."""
    square, variance = noise
    ratio = math.exp(round(math.log(variance / square) * _STEPS_OF_E) / _STEPS_OF_E) if square and variance else 0.0
    return (1.0, ratio) if ratio else noise
