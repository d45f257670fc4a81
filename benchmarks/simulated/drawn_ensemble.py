"""Ensembles drawn at random, as the 100 networks of FLEET (MLSys'20, 6.1, Table 3 and Appendix B.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fleet.scheduling.model.arrays import Floats
from fleet.scheduling.model.rates import RateCurve
from fleet.simulator.traces.synthetic import generator
from fleet.simulator.traces.trace import JobColumns, Trace

FORMAT = "ensemble"
STREAM = "images"
PER_NODE = 4
_STEPS = 60  # of the bisection that finds the spread of the epochs


@dataclass(frozen=True)
class Ensemble:
    """How the networks of an ensemble are drawn. All arrive at once and share their samples.

    A network trains r(m) = r(1) m q^(m - 1) samples/s on m devices (the form of Eq. 5). The r(1) are spread over
    [slowest, fastest] in the logarithm, at the quantiles of i -> (i / (n - 1))^shape. Epochs go as r(1)^tie times a
    random factor whose logarithm is normal: with `tie` 0 they have nothing to do with the rate (Appendix B.1, Figure
    8). Their mean and spread are such that the times on one device have the mean and standard deviation that are asked
    for; where the rates alone spread the times more, the factor is 1.

    Attributes:
        networks: how many.
        slowest, fastest: samples/s on one device.
        families: groups of equally many networks whose rates are near each other.
        width: a family's, as a part of the way from one to the next; 1: there are no families.
        shape: how the rates are spread; below 1 more networks are fast, above 1 more are slow.
        tie: exponent of the rate in the epochs.
        efficiency: mean q.
        efficiency_spread: half the width of the interval from which q is drawn.
        falls: whether r(m) falls past its peak, as the formula has it; or stays there.
        stride: epochs are multiples of it: networks converge where a schedule lowers the learning rate.
        seconds, deviation: mean and standard deviation of the times on one device (Table 3).
        samples: how many an epoch has (Caltech256).

    Raises:
        ValueError: a number that makes no ensemble.
    """

    networks: int = 100
    slowest: float = 21.0
    fastest: float = 176.0
    families: int = 6
    width: float = 1.0
    shape: float = 0.5
    tie: float = 0.0
    efficiency: float = 0.97
    efficiency_spread: float = 0.0
    falls: bool = False
    stride: int = 1
    seconds: float = 10372.2
    deviation: float = 4178.9
    samples: int = 30606

    def __post_init__(self) -> None:
        _check(self.networks >= 2, "networks", self.networks, "2 or more")
        _check(0 < self.slowest <= self.fastest < math.inf, "slowest", self.slowest, "above 0, and at most `fastest`")
        _check(0 < self.shape < math.inf, "shape", self.shape, "above 0, and finite")
        _check(math.isfinite(self.tie), "tie", self.tie, "finite")
        low, high = self.efficiency - self.efficiency_spread, self.efficiency + self.efficiency_spread
        _check(0 < low <= high <= 1, "efficiency_spread", self.efficiency_spread, "so small that q stays in (0, 1]")
        _check(self.stride >= 1, "stride", self.stride, "1 or more")
        _check(0 < self.seconds < math.inf, "seconds", self.seconds, "above 0, and finite")
        _check(0 <= self.deviation < math.inf, "deviation", self.deviation, "0 or more, and finite")
        _check(self.samples >= 1, "samples", self.samples, "1 or more")


def ensemble_trace(spec: Ensemble, devices: int, seed: int = 0) -> Trace:
    """Draw an ensemble, with the rate curves of its networks up to `devices` devices in `Trace.curves`.

    Seed paths: (seed, "epochs"), (seed, "efficiency"), (seed, "order"). Epochs are whole.
    """
    single = _rates(spec)[generator(seed, "order").permutation(spec.networks)]
    epochs = spec.stride * np.maximum(1.0, np.rint(_epochs(spec, single, seed) / spec.stride))
    spread = 2 * generator(seed, "efficiency").random(spec.networks) - 1
    quality = spec.efficiency + spec.efficiency_spread * spread
    names = [f"network-{index}" for index in range(spec.networks)]
    curves = {name: _curve(spec, rate, q, devices) for name, rate, q in zip(names, single.tolist(), quality.tolist())}
    columns = JobColumns.of(
        name=names,
        arrival=np.zeros(spec.networks),
        devices=np.ones(spec.networks),
        batch_size=np.ones(spec.networks),
        samples=epochs * spec.samples,
        duration=epochs * spec.samples / single,
        epochs=epochs,
        stream=[STREAM] * spec.networks,
    )
    return Trace(columns, format=FORMAT, curves=curves, any_epoch=True)


def spread_of_rates(spec: Ensemble) -> float:
    """Standard deviation by mean of the times on one device, if only rates differed and the random factor were 1."""
    times = _rates(spec) ** (spec.tie - 1)
    return float(times.std() / times.mean())


def _check(right: bool, name: str, value: object, rule: str) -> None:
    if not right:
        raise ValueError(f"{name} is {value}; it must be {rule}")


def _rates(spec: Ensemble) -> Floats:
    """r(1) of each, ascending."""
    family, inside = np.divmod(np.arange(spec.networks) * spec.families / spec.networks, 1.0)
    place = family + spec.width * inside
    place = (place / place[-1]) ** spec.shape
    rates: Floats = spec.slowest * (spec.fastest / spec.slowest) ** place
    return rates


def _epochs(spec: Ensemble, single: Floats, seed: int) -> Floats:
    """E_i = c r_i^tie e^(s z_i), with c and s such that E_i samples / r_i has the mean and the deviation asked for."""
    draws = generator(seed, "epochs").standard_normal(spec.networks)
    wanted = spec.deviation / spec.seconds
    low, high = 0.0, 3.0
    for _ in range(_STEPS):
        spread = (low + high) / 2
        times = single ** (spec.tie - 1) * np.exp(spread * draws)
        low, high = (spread, high) if times.std() / times.mean() < wanted else (low, spread)
    times = single ** (spec.tie - 1) * np.exp(low * draws)
    epochs: Floats = times * (spec.seconds / times.mean()) * single / spec.samples
    return epochs


def _curve(spec: Ensemble, single: float, quality: float, devices: int) -> RateCurve:
    counts = np.arange(1, devices + 1)
    rates = single * counts * quality ** (counts - 1)
    rates = rates if spec.falls else np.maximum.accumulate(rates)
    return RateCurve(dict(zip(counts.tolist(), rates.tolist())), per_node=PER_NODE, limit=devices)
