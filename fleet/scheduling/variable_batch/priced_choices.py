"""The configurations of greatest worth within the devices of each kind and the data path, by prices; and a bound."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleet.scheduling.model.arrays import Counts, Floats
from fleet.scheduling.variable_batch.supply import Supply

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
