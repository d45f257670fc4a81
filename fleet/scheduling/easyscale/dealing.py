"""How many virtual workers each device of a job turns, where devices are unlike (EasyScale, SC'23, 3.4.2)."""

from __future__ import annotations

from collections.abc import Sequence

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
