"""Measurements from inside a trainer: the time of a step, and the largest batch that fits, on made-up batches."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from preprocess import SampleLayout
from trainers import Trainer
from trainers.device.device_memory import is_nearly_full
from trainers.device.device_streams import why_broken
from trainers.repeatable.process_settings import model_without_memory, no_exit
from trainers.task.parts import is_parted
from trainers.task.task import Batch, evaluation_batch_of, loss_of, move

LEAST_TIMED = 3
_BYTES = 251  # a prime, so that rows of a batch differ


@dataclass(frozen=True)
class Timing:
    """Samples/s of the group, over how many timed steps, and what the measurement took in seconds."""

    rate: float
    batches: int
    seconds: float


def measure(trainer: Trainer, layout: SampleLayout, batches: int, timed: int, budget_seconds: float) -> Timing:
    """Train `batches` steps, time the last `timed` (48 and 20 in FLEET, MLSys'20, Appendix B.3).

    A slow job that would not end within `budget_seconds` trains fewer steps, at least LEAST_TIMED of them timed; the
    members agree on that after the second step. The first says nothing: devices load their libraries in it.
    """
    _leave_schedules(trainer)
    batch = batch_of(trainer, layout)
    own = [batch] * len(trainer.workers)
    begin = time.perf_counter()
    trainer.step(own)
    warming = _seconds(trainer, begin)
    trainer.step(own)
    second = _seconds(trainer, begin) - warming
    fitting = 1 + int(max(0.0, budget_seconds - warming) / max(second, 1e-9))
    fitting = trainer.group.agree(max(LEAST_TIMED + 1, min(batches, fitting)))
    timed = max(LEAST_TIMED, min(timed, fitting - 2))
    for _ in range(max(0, fitting - 2 - timed)):
        trainer.step(own)
    start = time.perf_counter()
    for _ in range(timed):
        trainer.step(own)
    seconds = _seconds(trainer, start)
    samples = timed * trainer.virtual_workers * trainer.batch_size
    return Timing(samples / seconds, timed, time.perf_counter() - begin)


def keep_busy(trainer: Trainer, layout: SampleLayout, is_over: Callable[[], bool]) -> None:
    """Train a step on such a batch, and more until `is_over`: what is measured on the same device shares it so."""
    _leave_schedules(trainer)
    own = [batch_of(trainer, layout)] * len(trainer.workers)
    trainer.step(own)
    while not is_over():
        trainer.step(own)


def _leave_schedules(trainer: Trainer) -> None:
    """Step no schedule of a learning rate: it may end before the measurement does, and OneCycleLR raises then."""
    for update in trainer.updates:
        update.schedule = None


def batch_of(trainer: Trainer, layout: SampleLayout, count: int = 0) -> Batch:
    """What is trained on: of a task that collates samples itself, its largest ones.

    count: samples; 0: of the trainer's batch.
    """
    largest = largest_collated(trainer.task, count)
    if largest is not None:
        moved: Batch = move(largest, trainer.device)
        return moved
    return made_up_batch(layout, count or trainer.batch_size, trainer.device, _numbers(trainer, layout))


def largest_collated(task: Any, count: int = 0) -> Batch | None:
    """A batch of a task's largest sample, over and over; None where the task does not collate samples itself."""
    if not hasattr(task, "collate"):
        return None
    batch: Batch = task.collate([task.largest_sample() for _ in range(count or task.batch_size)])
    return batch


def made_up_batch(layout: SampleLayout, count: int, device: torch.device, numbers: int = _BYTES) -> Batch:
    """A batch of the right shape and dtype, always the same: ramps of numbers below `numbers`, and zero as target."""
    shape, kind = (count, *layout.input_shape), getattr(torch, layout.input_dtype)
    targets = torch.zeros((count, *layout.target_shape), dtype=getattr(torch, layout.target_dtype), device=device)
    if device.type == "meta":  # which has no numbers, and whose `arange` loads torch's compiler
        return torch.empty(shape, dtype=kind, device=device), targets
    inputs = torch.arange(math.prod(shape), dtype=torch.int64, device=device) % numbers
    return inputs.to(kind).reshape(shape), targets


def _numbers(trainer: Trainer, layout: SampleLayout) -> int:
    """How many numbers a batch may be made of: they may be ids, and each table of the model has to know them.

    Where inputs are whole numbers and no more is known of them, they are all zero, which every vocabulary has.
    """
    kind = getattr(torch, layout.input_dtype)
    if kind.is_floating_point:
        return _BYTES
    known = least_table(trainer.task, made_up_batch(layout, trainer.batch_size, torch.device("meta")))
    tables = (module for module in trainer.model.modules() if isinstance(module, nn.Embedding | nn.EmbeddingBag))
    least = known or min((module.num_embeddings for module in tables), default=None)
    return min(_BYTES, least or (_BYTES if kind == torch.uint8 else 1))  # not the largest: some models add to ids


def settle(trainer: Trainer) -> None:
    """Wait until the device has done what it was given."""
    if trainer.device.type != "cpu":
        torch.get_device_module(trainer.device).synchronize(trainer.device)


def _seconds(trainer: Trainer, since: float) -> float:
    """Seconds since then, once the device is through."""
    settle(trainer)
    return time.perf_counter() - since


def least_table(task: Any, batch: Batch) -> int | None:
    """Return how many rows the smallest table has in which a task's model looks up its input; None if none is found.

    The model runs on no data, as far as it can.

    Args:
        batch: one on torch's meta device.
    """
    seen = _LookUps(batch[0])
    try:
        with no_exit():
            model = model_without_memory(task.model)
            with torch.device("meta"), seen, torch.no_grad():
                list(task.step(model, batch)) if is_parted(task) else loss_of(task, model, batch)
    except (Exception, SystemExit):
        pass  # whatever it has looked up so far counts
    return min(seen.rows, default=None)


class _LookUps(TorchDispatchMode):
    """Notes the rows of tables that are indexed by what comes from `ids`; what is made in their shape alone is not."""

    def __init__(self, ids: Tensor) -> None:
        super().__init__()
        self._from_ids = [ids]
        self.rows: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.partition("::")[2]
        result = func(*args, **(kwargs or {}))
        if name in ("embedding", "_embedding_bag", "index_select", "index"):
            self.rows += self._rows(name, *args)
        elif not _takes_shapes(name) and any(map(self._comes_from_ids, tree_leaves((args, kwargs)))):
            self._from_ids += [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        return result

    def _rows(self, name: str, table: Tensor, *indices: Any) -> Iterator[int]:
        """The rows of a table, along each of its axes that ids index."""
        if name == "index_select":
            indexed = {indices[0]: indices[1]}
        else:
            indexed = dict(enumerate(indices[0] if name == "index" else indices[:1]))
        return (table.shape[axis] for axis, index in indexed.items() if self._comes_from_ids(index))

    def _comes_from_ids(self, value: Any) -> bool:
        return isinstance(value, Tensor) and any(value is each or _share(value, each) for each in self._from_ids)


def _takes_shapes(operator: str) -> bool:
    """Whether an operator takes its arguments' shapes alone."""
    return operator.endswith("_like") or operator.startswith("new_")


def _share(one: Tensor, other: Tensor) -> bool:
    return one.untyped_storage()._cdata == other.untyped_storage()._cdata


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
