"""The largest batch that a job can train on one device, found by trying; from inside the trainer of that device."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from fleet.profiling.measure import batch_of, settle
from preprocess import SampleLayout
from trainers import Trainer
from trainers.device.device_streams import why_broken
from trainers.device.memory import is_nearly_full
from trainers.task.task import evaluation_batch_of

FIRST = 32
"""Samples of the first try, if so many may be."""
CLOSE = 8
"""The search ends where what fits and what does not differ by this part of what fits."""
_STEPS = (2, 1)  # the first two lay gradients out, and make the optimizer's state; one more follows an evaluation
_AHEAD = 2  # a step's batches and the next one's lie on an accelerator together


class TooLarge(Exception):
    """There is no memory for a batch; the text says what was told."""


@dataclass(frozen=True)
class LargestFound:
    """What a search found.

    Attributes:
        size: samples of a virtual worker that fit.
        why: why no more: "memory", "most", "time", or the error of a larger batch that was none of memory.
        tries: how many batches were tried.
    """

    size: int
    why: str
    tries: int


def largest_fitting(
    trial: Callable[[int], None], most: int, is_late: Callable[[float], bool], goes_on: Callable[[], bool]
) -> LargestFound:
    """Double the batch until it does not fit, then halve the gap until it is small.

    Args:
        trial: trains with so many samples of each virtual worker, or raises: TooLarge, or anything else that its
            code comes to.
        most: which is never exceeded.
        is_late: told the seconds that the next trial may take, says whether there is no time for it.
        goes_on: whether more can be tried after an error that is not TooLarge.

    Raises:
        TooLarge: not even one sample fits.
    """
    size, fits, fails, why, tries = min(FIRST, most), 0, most + 1, "most", 0
    while size > 0:
        begin = time.monotonic()
        tries += 1
        try:
            trial(size)
        except TooLarge:
            if size == 1:
                raise
            fails, why = size, "memory"
        except Exception as error:
            if not fits or not goes_on():
                raise
            fails, why = size, f"{type(error).__name__}: {error}"
        else:
            fits = size
        size = _next(fits, fails, why, most)
        if fits and size and is_late(2 * (time.monotonic() - begin)):
            return LargestFound(fits, "time", tries)
    return LargestFound(fits, why, tries)


def _next(fits: int, fails: int, why: str, most: int) -> int:
    """What to try now; 0: the search is over."""
    if not fits:
        return max(1, fails // 2)
    if why == "most":
        return 0 if fits == most else min(2 * fits, most)
    return (fits + fails) // 2 if fails - fits > max(1, fits // CLOSE) else 0


def try_batch(trainer: Trainer, layout: SampleLayout, held_out: int) -> None:
    """Train and evaluate with the trainer's batch in turn, with all that lies on the device then.

    Args:
        held_out: samples; evaluation has as many at a time as a step of all virtual workers, or as the task says.

    Raises:
        TooLarge: there is no memory for it, or hardly any is left.
    """
    step = trainer.virtual_workers * trainer.batch_size
    evaluated = min(held_out, evaluation_batch_of(trainer.task, step))
    try:
        ahead = [[batch_of(trainer, layout) for _ in trainer.workers] for _ in range(_AHEAD)]
        for steps in _STEPS:
            for step in range(steps):
                trainer.step(ahead[step % _AHEAD])
            if evaluated:
                trainer.evaluate([(0, batch_of(trainer, layout, evaluated))])
        settle(trainer)
    except BaseException as error:
        if _is_memory(error):
            raise TooLarge(str(error).split("\n")[0]) from None
        raise
    if is_nearly_full(trainer.device):
        raise TooLarge("hardly any memory of the device is left")


def can_go_on(device: torch.device) -> bool:
    """Whether the device is still of use after an error."""
    return not why_broken(device)


def _is_memory(error: BaseException) -> bool:
    """Whether an error is one of memory; libraries of vendors have their own words for it."""
    texts = ("out of memory", "ALLOC_FAILED", "not enough memory")
    known = isinstance(error, (torch.OutOfMemoryError, MemoryError))
    return known or (isinstance(error, RuntimeError) and any(text in str(error) for text in texts))
