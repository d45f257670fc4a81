"""What a job of Sia's workloads knows of itself, and the batch that it chooses (Sia, SOSP'23, 3; Pollux' agents)."""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fleet.scheduling.model.arrays import Counts, Floats
from fleet.scheduling.variable_batch.kind_goodput import Shapes
from fleet.simulator.rates.sia_rates import KindProfile, SiaApplication
from fleet.simulator.rates.step_model import MeasuredSteps, StepModel, fitted

CANDIDATES = 50
"""Batch sizes that are looked at, in a geometric series."""
_EDGE = 1e-8  # of a sample

Placement = tuple[int, ...]
Key = tuple[int, int, int]
"""Nodes, devices, and samples of a device in one pass: what a measured step is known by."""
Noise = tuple[float, float]
"""Squared length of the mean gradient, and variance of a gradient."""


class BatchSplit(NamedTuple):
    """A batch as it is trained: samples of a device in one pass, and passes before the last."""

    local: int
    passes: int

    def batch(self, devices: int) -> int:
        """Samples of the whole job."""
        return devices * self.local * (self.passes + 1)


class _Best(NamedTuple):
    """The best of the candidates, by configuration; each of shape (configurations,)."""

    rate: Floats
    local: Counts
    passes: Counts


class SiaAgent:
    """What jobs of an application know, tabulated as it is asked for.

    A job knows the steps that it has measured, by kind of device, and extends them by a fitted `StepModel`. Where it
    was profiled before (`keys` is None) it knows all step times as they are. Of gradient noise it knows what it
    measured last.

    Args:
        application: its measurements.
    """

    def __init__(self, application: SiaApplication) -> None:
        self.application = application
        self.first, self.largest = application.initial_batch, application.largest_batch
        self.fit = cache(self._fit)
        self.tuned = cache(self._tuned)
        self.goodputs = cache(self._goodputs)
        self.noise = cache(application.noise)
        self.goodput = cache(self._goodput)
        self.chosen = cache(self._chosen)
        self._steps = cache(self._profiled_steps)

    def start(self, kind: str, placement: Placement) -> BatchSplit:
        """The batch of a job that knows nothing of a kind yet: its first one, or the smallest that all devices need."""
        profile, devices = self.application.kinds[kind], sum(placement)
        return self.chosen(kind, placement, max(self.first, profile.min_local * devices))

    def _chosen(self, kind: str, placement: Placement, batch: int) -> BatchSplit:
        """A batch size that was asked for, in as few passes as its samples fit in."""
        profile, devices = self.application.kinds[kind], sum(placement)
        local = math.ceil(batch / devices - _EDGE)
        passes = math.ceil(local / profile.largest_local(placement) - _EDGE) - 1
        if devices == 1 and batch > self.first:
            passes = max(1, passes)
        return self._fitting(profile, devices, math.ceil(local / (passes + 1) - _EDGE), passes)

    def _fitting(self, profile: KindProfile, devices: int, local: int, passes: int) -> BatchSplit:
        most = profile.largest_of_count.get(devices, local)
        return BatchSplit(min(local, most, self.largest // (devices * (passes + 1))), passes)

    def splits(self, kind: str, placement: Placement) -> frozenset[BatchSplit]:
        """All batches that a job which chooses its own may have on a placement."""
        profile, devices = self.application.kinds[kind], sum(placement)
        found = self._candidates(profile, np.array([float(devices)]), self.largest, profile.largest_local(placement))
        chosen = (
            self._fitting(profile, devices, local, passes) for local, passes in zip(*(a[:, 0].tolist() for a in found))
        )
        return frozenset((self.start(kind, placement), *chosen))

    def _goodput(self, kind: str, placement: Placement, split: BatchSplit, epoch: int) -> float:
        """What a job truly does, in samples/s of the first batch size: its gain of a step by the seconds of one."""
        step = self.application.kinds[kind].step(placement, split.local)
        seconds = step.seconds + split.passes * (step.seconds - step.sync)
        batch = split.batch(sum(placement))
        gain = _gain(self.noise(batch, epoch), batch / self.first)
        return self.first * float(gain) / (seconds * self.application.slowdown)

    def _fit(self, kind: str, keys: tuple[Key, ...]) -> StepModel:
        profile = self.application.kinds[kind]
        rows = []
        for nodes, devices, local in keys:
            step = profile.step(_even(nodes, devices), local)
            rows.append((nodes, devices, local, step.seconds - step.sync, step.seconds))
        return fitted(MeasuredSteps(*np.array(rows, dtype=np.float64).T))

    def _tuned(self, kind: str, keys: tuple[Key, ...] | None, noise: Noise, placement: Placement) -> BatchSplit:
        """The batch with the highest goodput on a placement, as far as the job knows."""
        profile, devices = self.application.kinds[kind], sum(placement)
        best = self._best(
            kind, keys, noise, ((len(placement), devices),), self.largest, profile.largest_local(placement)
        )
        return self._fitting(profile, devices, int(best.local[0]), int(best.passes[0]))

    def _goodputs(
        self, kind: str, keys: tuple[Key, ...] | None, noise: Noise, shapes: Shapes, most_batch: int
    ) -> Floats:
        """Goodput of each configuration with its best batch of at most `most_batch`, as far as the job knows."""
        most_local = self.application.kinds[kind].max_local
        rates = self._best(kind, keys, noise, shapes, most_batch, most_local, single=keys is not None).rate
        rates.flags.writeable = False
        return rates

    def _best(
        self,
        kind: str,
        keys: tuple[Key, ...] | None,
        noise: Noise,
        shapes: Shapes,
        most_batch: int,
        most_local: int,
        single: bool = False,
    ) -> _Best:
        """The best of a geometric series of batches for each configuration; `single`: in single precision."""
        profile = self.application.kinds[kind]
        nodes, devices = np.array(shapes, dtype=np.float64).T
        chosen = devices.astype(np.float32) if single else devices
        local, passes = self._candidates(profile, chosen, most_batch, most_local)
        batch = devices * local * (passes + 1)
        if keys is None:
            seconds, compute = self._steps_of(kind, shapes, local)
        else:
            model = self.fit(kind, keys)
            samples = local.astype(np.float64)
            seconds, compute = model.seconds(nodes, devices, samples), model.compute(samples)
        rates = self.first * _gain(noise, batch / self.first)
        rates = rates / ((seconds + passes * compute) * self.application.slowdown)
        rates = np.where((local >= profile.min_local) & (local <= most_local), rates, 0.0)
        best = rates.argmax(axis=0), np.arange(len(shapes))
        return _Best(rates[best], local[best], passes[best])

    def _candidates(
        self, profile: KindProfile, devices: npt.NDArray[np.floating[Any]], most_batch: int, most_local: int
    ) -> tuple[Counts, Counts]:
        """Samples of a device and passes before the last of each batch that is looked at; (candidates, configurations).

        Args:
            devices: of each configuration; shape (configurations,). Where they are in single precision, so is the
                series, as in the authors' policy: what it rounds to whole samples may be one more.
        """
        least = np.maximum(np.array(self.first, devices.dtype), np.array(profile.min_local, devices.dtype) * devices)
        wanted = _series(least, most_batch) / devices
        edge = np.array(_EDGE, devices.dtype)
        passes = np.ceil(wanted / np.array(most_local, devices.dtype) - edge) - 1
        alone = (devices == 1) & (wanted > np.array(self.first, devices.dtype) + edge)
        passes = np.where(alone, np.maximum(passes, 1), passes).astype(np.int64)
        return np.ceil(wanted.astype(np.float64) / (passes + 1) - _EDGE).astype(np.int64), passes

    def _steps_of(self, kind: str, shapes: Shapes, local: Counts) -> tuple[Floats, Floats]:
        """Measured seconds of steps, and of a pass before the last, of shape (candidates, configurations)."""
        seconds, compute = np.empty(local.shape), np.empty(local.shape)
        for column, (nodes, devices) in enumerate(shapes):
            known = self._steps(kind, nodes, devices)
            sync = np.interp(local[:, column], known[0], known[2])
            seconds[:, column] = np.interp(local[:, column], known[0], known[1])
            compute[:, column] = seconds[:, column] - sync
        return seconds, compute

    def _profiled_steps(self, kind: str, nodes: int, devices: int) -> tuple[Floats, Floats, Floats]:
        """Samples of a device, seconds of a step with them, and of the exchange of gradients."""
        profile, placement = self.application.kinds[kind], _even(nodes, devices)
        measured = profile.placements.get(placement)
        if measured is not None:
            return measured.local, measured.seconds, measured.sync
        local = np.unique(np.geomspace(profile.min_local, profile.largest_local(placement), 12).round())
        steps = [profile.step(placement, float(size)) for size in local]
        return local, np.array([step.seconds for step in steps]), np.array([step.sync for step in steps])


def _series(least: npt.NDArray[np.floating[Any]], most: int) -> npt.NDArray[np.floating[Any]]:
    """The batches from the least of each configuration to the most, in the precision of the least."""
    if least.dtype == np.float64:
        return np.geomspace(least, most, CANDIDATES)
    begin, end = np.log10(least), np.log10(np.array([most], least.dtype))
    steps = np.arange(CANDIDATES, dtype=least.dtype)[:, np.newaxis]
    exponents = steps * ((end - begin) / np.array(CANDIDATES - 1, least.dtype)) + begin
    series = np.power(10.0, exponents.astype(np.float64)).astype(least.dtype)
    series[0], series[-1] = least, most
    return series


def _gain(noise: Noise, scale: Floats | float) -> Floats | float:
    """How far one step brings a job, in steps of the first batch size (AdaScale; Pollux, Eq. 5)."""
    square, variance = noise
    return (variance + square) / (variance / scale + square)


@cache
def _even(nodes: int, devices: int) -> Placement:
    """Devices on each of so many nodes, as evenly as they go, in the smallest rotation."""
    each, more = divmod(devices, nodes)
    return tuple(sorted([each] * (nodes - more) + [each + 1] * more))
