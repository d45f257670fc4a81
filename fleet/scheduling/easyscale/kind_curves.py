"""A job's rates on devices of several kinds, alone and together (EasyScale, SC'23, 3.4.2)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fleet.scheduling.easyscale.dealing import deal, turns
from fleet.scheduling.model.cluster import Cluster
from fleet.scheduling.model.rates import OBSERVED_WEIGHT, RateCurve

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
            {kind: curve.scaled(factor) for kind, curve in self.curves.items()}, self.home, self.workers, self.samples,
            {kind: speed * factor for kind, speed in self.speeds.items()},
            {kinds: rate * factor for kinds, rate in self.seen.items()}, self.most,
        )  # fmt: skip

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
