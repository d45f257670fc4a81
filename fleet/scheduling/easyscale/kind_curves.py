"""A job's rates on devices of several kinds, and with several executors on one (EasyScale, SC'23, 3.4)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.rates import OBSERVED_WEIGHT, RateCurve

WORTH_MOVING = 1.05
"""So many times as fast a step must become, for workers to be dealt anew: a move takes time, and rates are noisy."""


def deal(workers: int, speeds: Sequence[float]) -> tuple[int, ...]:
    """Virtual workers of each device, at least one, so that the slowest of all is done as soon as can be.

    A step takes max_i a_i / C_i, with a_i workers on the device of speed C_i (Eq. 1b). Given one after the other to
    whoever would be done with it first, they make that the least. Ties go to the device that was named first, so that
    devices that are alike have balanced shares, the larger ones first.

    Args:
        workers: N, virtual workers of the job; at least one for each device.
        speeds: C_i of each device, in any unit; above 0.

    Raises:
        ValueError: more devices than workers, no device, or a speed that is not above 0.
    """
    if not 1 <= len(speeds) <= workers or not min(speeds) > 0:
        text = f"{workers} virtual workers for devices of speeds {list(speeds)}"
        raise ValueError(f"{text}: give each device one at least, and a speed above 0")
    shares = [1] * len(speeds)
    for _ in range(workers - len(speeds)):
        next_ = min(range(len(speeds)), key=lambda i: (shares[i] + 1) / speeds[i])
        shares[next_] += 1
    return tuple(shares)


def turns(shares: Sequence[int], speeds: Sequence[float]) -> float:
    """What a step takes: max_i a_i / C_i, in turns of a device of speed 1."""
    return max(share / speed for share, speed in zip(shares, speeds))


def is_worth_dealing_anew(shares: Sequence[int], speeds: Sequence[float]) -> bool:
    """Whether other shares on these devices would make steps so much faster that a move pays."""
    return turns(shares, speeds) >= WORTH_MOVING * turns(deal(sum(shares), speeds), speeds)


Layout = tuple[int, ...]
"""How many trainers of a group are on each of its accelerators, the most first."""


def layout_of(devices: Iterable[int], cluster: Cluster) -> Layout:
    """Where the trainers of a group are; () where each has an accelerator for itself in any case."""
    if not cluster.sharing:
        return ()
    shared = {device: number for number, devices in enumerate(cluster.sharing) for device in devices}
    return tuple(sorted(Counter(shared[device] for device in devices).values(), reverse=True))


def each_of(rates: Sequence[float], workers: int) -> tuple[float, ...]:
    """Samples/s of one of 1, 2, ... executors on an accelerator, C_i I_i, of a job with so many virtual workers.

    Args:
        rates: the speed of all of them together; in a step the slowest turns ceil(workers / executors) of the workers.
    """
    return tuple(rate * -(-workers // count) / workers for count, rate in enumerate(rates, 1))


def kept_speed(curve: RateCurve, workers: int, devices: int) -> float:
    """The part of their speed that so many devices keep when they sum gradients, by the rates measured on them."""
    return min(1.0, curve(devices) / (workers / -(-workers // devices) * curve(1)))


def pace_in(layout: Layout, rates: Sequence[float], curve: RateCurve, workers: int) -> float:
    """Samples/s of a group, whose workers are spread evenly: N / max (A / C I) (Eq. 1e), less what sums take.

    Args:
        rates: 1, 2, ... executors on an accelerator have them together.
        curve: by number of devices.
    """
    speeds = each_of(rates, workers)
    slowest = min(speeds[min(count, len(speeds)) - 1] for count in layout)
    return workers / -(-workers // sum(layout)) * slowest * kept_speed(curve, workers, len(layout))


Kinds = tuple[str, ...]
"""The kinds of some devices, one entry a device."""


@dataclass(frozen=True)
class KindCurves:
    """What a job trains on each kind of device, and on several at once; a `Scaling`.

    Args:
        curves: kind -> r(m) on m devices of that kind alone.
        home: the kind by whose curve those go who know of none.
        workers: N, virtual workers.
        samples: one mini-batch has so many, a virtual worker's part of a step.
        speeds: kind -> C_i, samples/s of one such device, as members of groups have shown; by default r(1).
        seen: devices of several kinds, sorted -> samples/s that were seen on them.
        most: samples/s that it does not exceed on any devices, as the data path feeds no more.

    Raises:
        ValueError: the home kind has no curve.
    """

    curves: Mapping[str, RateCurve]
    home: str
    workers: int
    samples: float
    speeds: Mapping[str, float] = field(default_factory=dict)
    seen: Mapping[Kinds, float] = field(default_factory=dict)
    most: float = math.inf

    def __post_init__(self) -> None:
        if self.home not in self.curves:
            raise ValueError(f"kind {self.home!r} has no curve; there are those of {', '.join(self.curves)}")
        alone = {kind: curve(1) for kind, curve in self.curves.items()}
        object.__setattr__(self, "speeds", {**alone, **self.speeds})

    @property
    def curve(self) -> RateCurve:
        """The curve of the home kind."""
        return self.curves[self.home]

    def rate(self, devices: int, batch: int | None = None, nodes: int = 1) -> float:
        """As `Scaling.rate`, on devices of the home kind, with the job's own batch."""
        return self.curve(devices)

    def worker_rate(self, kind: str) -> float:
        """As `Scaling.worker_rate`."""
        return self.speeds[kind] / self.samples

    def curve_on(self, kind: str) -> RateCurve:
        """As `KnowsKinds.curve_on`."""
        return self.curves[kind]

    def shares(self, kinds: Kinds) -> tuple[int, ...]:
        """Virtual workers of each of these devices; () for balanced ones, on devices of one kind."""
        return () if len(set(kinds)) < 2 else deal(self.workers, self._speeds(kinds))

    def pace(self, kinds: Kinds) -> float:
        """Samples/s on these devices.

        On several kinds it is N / max_i (a_i / C_i) (Eq. 1e), times the part of their speed that as many alike devices
        of the home kind keep when they sum gradients, unless it was seen.
        """
        if len(set(kinds)) == 1:
            return self.curves[kinds[0]](len(kinds))
        known = self.seen.get(tuple(sorted(kinds)))
        if known is not None:
            return min(known, self.most)
        speeds = self._speeds(kinds)
        return min(self.most, self.workers / turns(deal(self.workers, speeds), speeds) * self._kept(len(kinds)))

    def observed(self, kinds: Kinds, rate: float) -> KindCurves:
        """Return what is known once so many samples/s were seen on these devices."""
        if len(set(kinds)) == 1:
            return replace(self, curves={**self.curves, kinds[0]: self.curves[kinds[0]].observe(len(kinds), rate)})
        key = tuple(sorted(kinds))
        before = self.seen.get(key, rate)
        return replace(self, seen={**self.seen, key: before + OBSERVED_WEIGHT * (rate - before)})

    def worked(self, kinds: Kinds, shares: Sequence[int], seconds: Sequence[float]) -> KindCurves:
        """Return what is known once it was seen how long these devices computed for their shares of the same steps.

        Only the ratio of the kinds' speeds is taken from that, so that the fastest keeps its speed; it counts half.
        """
        worked = {kind: _speed(kind, kinds, shares, seconds) for kind in dict.fromkeys(kinds)}
        if len(worked) < 2 or not all(worked.values()):
            return self
        fastest = max(worked, key=lambda kind: self.speeds[kind])
        unit = self.speeds[fastest] / worked[fastest]
        blended = {
            kind: self.speeds[kind] + OBSERVED_WEIGHT * (speed * unit - self.speeds[kind])
            for kind, speed in worked.items()
        }
        return replace(self, speeds={**self.speeds, **blended})

    def scaled(self, factor: float) -> KindCurves:
        """Return the curves of a job that is so many times as fast on any devices."""
        return KindCurves(
            {kind: curve.scaled(factor) for kind, curve in self.curves.items()},
            self.home,
            self.workers,
            self.samples,
            {kind: speed * factor for kind, speed in self.speeds.items()},
            {kinds: rate * factor for kinds, rate in self.seen.items()},
            self.most,
        )

    def capped(self, most: float) -> KindCurves:
        """Return the curves of a job that gets at most so many samples/s; these themselves if it wants no more."""
        curves = {kind: curve.capped(most, self.workers) for kind, curve in self.curves.items()}
        wants_more = any(curves[kind] is not curve for kind, curve in self.curves.items()) or len(curves) > 1
        return replace(self, curves=curves, most=min(most, self.most)) if wants_more else self

    def at_home_on(self, kind: str) -> KindCurves:
        """Return the curves with another home."""
        return replace(self, home=kind)

    def _speeds(self, kinds: Kinds) -> list[float]:
        return [self.speeds[kind] for kind in kinds]

    def _kept(self, devices: int) -> float:
        most = self.workers / -(-self.workers // devices) * self.curve(1)
        return min(1.0, self.curve(devices) / most)


def strongest(curves: Mapping[str, RateCurve], cluster: Cluster, limit: int) -> str:
    """The kind on whose devices, as many as there are and the job can use, it trains fastest."""
    counts = cluster.counts()
    return max(curves, key=lambda kind: curves[kind](min(limit, counts.get(kind, 1))))


def completed(
    curves: Mapping[str, RateCurve], kinds: Iterable[str], others: Sequence[KindCurves]
) -> dict[str, RateCurve]:
    """The curves of a job, with one for each of the kinds.

    Where it was not measured, it is expected to be slower or faster than where it was as the other jobs are, in the
    median.
    """
    known = next(iter(curves))
    factors = {
        kind: [other.speeds[kind] / other.speeds[known] for other in others if {kind, known} <= other.speeds.keys()]
        for kind in kinds
        if kind not in curves
    }
    guessed = {kind: curves[known].scaled(float(np.median(found)) if found else 1.0) for kind, found in factors.items()}
    return {**curves, **guessed}


def _speed(kind: str, kinds: Kinds, shares: Sequence[int], seconds: Sequence[float]) -> float:
    """Virtual workers that a device of that kind turns in a second of its own; 0: not known."""
    of_kind = [(share, spent) for one, share, spent in zip(kinds, shares, seconds) if one == kind]
    spent = sum(seconds for _, seconds in of_kind)
    return sum(share for share, _ in of_kind) / spent if spent > 0 else 0.0
