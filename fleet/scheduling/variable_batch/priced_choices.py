"""A configuration for each job at prices of devices and of the data path, lowered until supply and demand meet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fleet.scheduling.model.arrays import Counts, Flags, Floats

_FED = 0.5
"""Part of the samples that a job asks for that have to be there, for it to begin beside others."""


@dataclass(frozen=True)
class Supply:
    """Devices of each kind and, where it is scarce, the time of all preprocessors together.

    That time is counted in devices, as many as there are, so that it is as dear as they where both are short. Other
    than devices it can be divided: where jobs ask for more of it than there is, each trains more slowly.

    Attributes:
        usage: devices of each kind that a configuration takes; shape (configurations, kinds).
        capacity: of each kind and, behind these, of the data path, if it counts; shape (resources,).
        path: what each job takes of the data path; shape (jobs, configurations). None: it feeds all that can train.
    """

    usage: Floats
    capacity: Floats
    path: Floats | None = None

    @classmethod
    def of(cls, devices: Counts, kinds: Counts, capacity: Counts, fed: Floats | None) -> Supply:
        """The devices that there are, and the data path.

        Args:
            devices: of each configuration; shape (configurations,).
            kinds: the number of each configuration's kind; shape (configurations,).
            capacity: devices of each kind; shape (kinds,).
            fed: the part of all preprocessors' time that each job takes; shape (jobs, configurations). None: none.
        """
        usage = np.zeros((len(devices), len(capacity)))
        usage[np.arange(len(devices)), kinds] = devices
        if fed is None:
            return cls(usage, capacity.astype(np.float64))
        total = float(capacity.sum())
        return cls(usage, np.append(capacity, total), fed * total)

    def cost(self, prices: Floats) -> Floats:
        """Of each configuration at prices of the resources; shape (configurations,), or (jobs, configurations)."""
        if self.path is None:
            return self.usage @ prices
        return self.usage @ prices[:-1] + self.path * prices[-1]

    def sizes(self) -> Floats:
        """All that each configuration takes; shapes as those of `cost`."""
        devices: Floats = self.usage.sum(axis=1)
        return devices if self.path is None else devices + self.path

    def taken(self, chosen: Counts) -> Floats:
        """What each job takes with its configuration, or with none where that is below 0; shape (jobs, resources)."""
        return self._padded(np.where((chosen >= 0)[:, np.newaxis], self.usage[chosen], 0.0), chosen)

    def _padded(self, devices: Floats, chosen: Counts) -> Floats:
        if self.path is None:
            return devices
        path = np.where(chosen >= 0, self.path[np.arange(len(chosen)), chosen], 0.0)
        return np.column_stack((devices, path))

    def is_there(self, more: Floats, free: Floats) -> bool:
        """Whether a job may take so much more of each resource; both of shape (resources,)."""
        if self.path is None:
            return bool((more <= free).all())
        return bool((more[:-1] <= free[:-1]).all() and (more[-1] <= 0 or _FED * more[-1] <= free[-1]))

    def fitting(self, held: Floats, free: Floats) -> Flags:
        """Which configurations each job could have, with what is free and what it has; shape (jobs, configurations)."""
        fits: Flags = np.ones((len(held), len(self.usage)), dtype=np.bool_)
        for kind in range(self.usage.shape[1]):
            fits &= self.usage[:, kind] <= (held[:, kind] + free[kind])[:, np.newaxis]
        if self.path is not None:
            more = self.path - held[:, -1:]
            fits &= (more <= 0) | (_FED * more <= free[-1])
        return fits

    def unfed(self, chosen: Counts, worth: Floats) -> float:
        """The worth of what cannot be fed of the chosen configurations, if that is where it is worth least."""
        if self.path is None:
            return 0.0
        jobs = np.flatnonzero(chosen >= 0)
        asked = self.path[jobs, chosen[jobs]]
        over = asked.sum() - self.capacity[-1]
        if over <= 0:
            return 0.0
        jobs, asked = jobs[asked > 0], asked[asked > 0]
        each = worth[jobs, chosen[jobs]] / asked
        order = np.argsort(each, kind="stable")
        lost = np.diff(np.minimum(np.cumsum(asked[order]), over), prepend=0.0)
        return float(lost @ each[order])


NONE = -1
"""The choice of a job that gets nothing."""
_JOBS = 200  # of which one at a time gets more of what is left
_ROUNDS = 40  # of prices
_BETTER = 0.02  # part by which choices have to be worth more, for anybody to lose what it has
_PARTS = 0.5  # of the step of a price, after each round that overshoots


class Choices(NamedTuple):
    """What each job gets, and how good that is.

    Attributes:
        chosen: the configuration of each job, or NONE; shape (jobs,).
        worth: of all of them together.
        bound: no choice within the devices is worth more (the Lagrangian dual at the best prices).
        prices: of a device of each kind, at which the bound is least; shape (kinds,).
    """

    chosen: Counts
    worth: float
    bound: float
    prices: Floats


def best_choices(
    worth: Floats,
    none: Floats,
    devices: Counts,
    kinds: Counts,
    capacity: Counts,
    held: Counts | None = None,
    least: Counts | None = None,
    fed: Floats | None = None,
) -> Choices:
    """Let each job take what is worth most to it after the price of what it takes; find prices at which all fit.

    At given prices the jobs decide by themselves, and the sum of what they gain, with the price of all devices, bounds
    every plan. What the last prices leave free is given where it adds most for each device. Where that is worth
    little more than if nobody lost what it has, or less, all keep it, and what is free is given so.

    Args:
        worth: of each configuration for each job, -inf where it cannot have it; shape (jobs, configurations).
        none: what a job loses by having nothing; at most 0; shape (jobs,).
        devices: of each configuration; shape (configurations,).
        kinds: the number of each configuration's kind of device; shape (configurations,).
        capacity: devices of each kind; shape (kinds,).
        held: the configuration that each job has, or NONE; shape (jobs,). None: none has any.
        least: the configuration that each job has in any case, unless it has one of more worth to it, or NONE; shape
            (jobs,). All of them fit together. None: no job is sure of any.
        fed: the part of the data path that each job takes, at most 1; shape (jobs, configurations). Jobs may ask for
            more of it together than there is: what cannot be fed does not count in their worth. None: it is not scarce.
    """
    least = np.full(len(worth), NONE) if least is None else least
    none = np.where(least == NONE, none, -np.inf)
    supply = Supply.of(devices, kinds, capacity, fed)
    best, bound, prices = _priced(worth, none, supply)
    found = _filled(_within(best, least, worth, none, supply), worth, none, supply)
    total = _total(found, worth, none, supply)
    if held is not None:
        possible = np.isfinite(worth[np.arange(len(held)), held]) & (held != NONE)
        kept = _filled(_within(np.where(possible, held, NONE), least, worth, none, supply), worth, none, supply)
        if (told := _total(kept, worth, none, supply)) * (1 + _BETTER) > total:
            found, total = kept, told
    return Choices(found, total, bound, prices[: len(capacity)])


def _total(chosen: Counts, worth: Floats, none: Floats, supply: Supply) -> float:
    every = float(np.where(chosen >= 0, worth[np.arange(len(chosen)), chosen], none).sum())
    return every - supply.unfed(chosen, worth)


def _priced(worth: Floats, none: Floats, supply: Supply) -> tuple[Counts, float, Floats]:
    """The choices at the prices at which the bound is least, the bound, and those prices."""
    capacity = supply.capacity
    prices, bound, best = np.zeros(len(capacity)), np.inf, np.full(len(worth), NONE)
    lowest = prices
    density = np.where(np.isfinite(worth), worth, 0.0).max(initial=0.0) or 1.0
    step = np.full(len(capacity), density / 4)
    before = np.zeros(len(capacity))
    for _ in range(_ROUNDS):
        left = worth - supply.cost(prices)
        taken = left.argmax(axis=1)
        gained = left[np.arange(len(left)), taken]
        taken = np.where(gained > none, taken, NONE)
        dual = float(np.maximum(gained, none).sum() + prices @ capacity)
        excess = supply.taken(taken).sum(axis=0) - capacity
        reached = (excess <= 0).all() and prices @ excess == 0
        # At other prices of the same bound, jobs to which choices are alike may want others: those that reach it count.
        if dual < bound or reached:
            bound, best, lowest = min(dual, bound), taken, prices
        if reached:
            break
        direction = np.sign(excess)
        step = np.where(direction * before < 0, step * _PARTS, step)
        before = direction
        prices = np.maximum(0.0, prices + step * direction)
    return best, bound, lowest


def _within(best: Counts, least: Counts, worth: Floats, none: Floats, supply: Supply) -> Counts:
    """The choices that fit beside what jobs have in any case, those of most worth for each further device first."""
    rows, sure = np.arange(len(best)), least != NONE
    own = supply.taken(least)
    chosen, left = least.copy(), supply.capacity - own.sum(axis=0)
    wanted = np.flatnonzero((best >= 0) & (best != least))
    gains = (worth[rows, best] - np.where(sure, worth[rows, least], none))[wanted]
    more = (supply.taken(best) - own)[wanted]
    order = np.argsort(-gains / np.maximum(more.sum(axis=1), _PARTS), kind="stable")
    for job, needed in zip(wanted[order].tolist(), more[order]):
        if supply.is_there(needed, left):
            chosen[job] = best[job]
            left -= needed
    return chosen


def _filled(chosen: Counts, worth: Floats, none: Floats, supply: Supply) -> Counts:
    """What is left goes where it adds most for each device, to one job in `_JOBS` at a time.

    Each pass gives at least one job more worth, for the first in the order fits, and none less: so there are at most
    as many passes as jobs have configurations together.
    """
    rows, sizes = np.arange(len(chosen)), supply.sizes()
    while True:
        held = supply.taken(chosen)
        now = np.where(chosen >= 0, worth[rows, chosen], none)
        free = supply.capacity - held.sum(axis=0)
        more = sizes - held.sum(axis=1)[:, np.newaxis]
        rates = (worth - now[:, np.newaxis]) / np.maximum(more, _PARTS)
        rates = np.where(supply.fitting(held, free), rates, 0.0)
        best = rates.argmax(axis=1)
        gains = rates[rows, best]
        order = np.flatnonzero(gains > 0)
        if not len(order):
            return chosen
        first, wanted = order[np.argsort(-gains[order], kind="stable")], supply.taken(best)
        for job in first[: 1 + len(chosen) // _JOBS].tolist():
            needed = wanted[job] - held[job]
            if supply.is_there(needed, free):
                free, chosen[job] = free - needed, best[job]
