"""How fast a job trains with another batch: from its rate curve, and from steps of other batches on one device."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fleet.scheduling.model.rates import RateCurve


@dataclass(frozen=True)
class BatchRange:
    """The batches that a job may have: the multiples of its virtual workers in a range.

    Args:
        least, most: samples of a step of the whole job.
        workers: N, its virtual workers; each has the same part of the batch.

    Raises:
        ValueError: no multiple of N is in the range.
    """

    least: int
    most: int
    workers: int

    def __post_init__(self) -> None:
        if self.workers < 1 or self.sizes[0] > self.sizes[1]:
            raise ValueError(f"no batch of {self.least} to {self.most} samples is a multiple of {self.workers} workers")

    @property
    def sizes(self) -> tuple[int, int]:
        """The least and the most samples of one virtual worker."""
        return max(1, -(-self.least // self.workers)), self.most // self.workers

    @property
    def ends(self) -> tuple[int, int]:
        """The least and the most samples of a step."""
        least, most = self.sizes
        return least * self.workers, most * self.workers

    def nearest(self, batch: int) -> int:
        """The multiple of N in the range that is nearest to `batch`, the larger of two."""
        least, most = self.sizes
        return min(most, max(least, math.floor(batch / self.workers + 0.5))) * self.workers

    def within(self, least: int, most: int) -> BatchRange:
        """The part of the range from `least` to `most`."""
        return BatchRange(max(self.least, least), min(self.most, most), self.workers)


@dataclass(frozen=True, eq=False)
class BatchScaling:
    """Rates of a job of N virtual workers by its batch, T(b, k) = b / (t_1(b) u(k) + t_comm(k)), samples/s.

    Saxena et al. (2020, III-B) have t_proc(b / k) for the first term. Here a device of k turns ceil(N / k) workers with
    b / N samples each, whatever k is: u(k) = ceil(N / k) / N of a step of one device, t_1(b). The times of summing,
    t_comm(k) = b_0 / r(k) - t_1(b_0) u(k), are the rest of the measured steps with the job's own batch b_0; they do
    not depend on b.

    Args:
        curve: r(k), with b_0.
        own: b_0, samples of a step.
        range: the batches that the job may have; another batch has the rate of the nearest.
        alone: batch -> samples/s on one device, of batches other than b_0; t_1 is interpolated between these and b_0,
            and proportional to b beyond them.
    """

    curve: RateCurve
    own: int
    range: BatchRange
    alone: Mapping[int, float] = field(default_factory=dict)

    def rate(self, devices: int, batch: int | None = None, nodes: int = 1) -> float:
        """T(b, k); where the job's nodes matter, its curve knows."""
        chosen = self.own if batch is None else self.range.nearest(batch)
        part = -(-self.range.workers // devices) / self.range.workers
        summing = max(0.0, self.own / self.curve(devices) - self._alone(self.own) * part)
        return chosen / (self._alone(chosen) * part + summing)

    def worker_rate(self, kind: str) -> float:
        """Mini-batches/s of one virtual worker with a device of its own; kinds are alike."""
        return self.range.workers / self._alone(self.own)

    def curve_of(self, batch: int) -> RateCurve:
        """The rate curve of the job with that batch, at the counts that were measured with its own."""
        rates = {count: self.rate(count, batch) for count in self.curve.measured}
        return RateCurve(rates, self.curve.per_node, self.curve.limit, self.curve.workers)

    def _alone(self, batch: int) -> float:
        """t_1(b), seconds of a step on one device."""
        rates = {self.own: self.curve(1), **self.alone}
        batches = sorted(rates)
        inside = min(max(batch, batches[0]), batches[-1])
        seconds = float(np.interp(inside, batches, [known / rates[known] for known in batches]))
        return seconds * batch / inside
