"""Whether a job's metrics can be measured: tried on real held-out samples before anything is trained.

Shapes that do not go together are told then, and not after an epoch. A metric is also measured of the same samples in
one batch and in two: one that comes out otherwise is no mean over samples, or keeps what it has seen, and its value
would depend on how the samples are cut into batches.
"""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fleet.run.ranks.packed_samples import collated
from fleet.run.ranks.runtime import Runtime
from fleet.spec import Job, Problem, ReferenceProblem, SpecTask
from fleet.spec.data_keys import data_key
from fleet.spec.job_checks import kept_random_state
from preprocess import HELD_OUT, TRAIN, Dataset
from preprocess.samples.ragged import places_in
from trainers.repeatable.no_exit import no_exit
from trainers.repeatable.process_settings import settings_kept
from trainers.task.metrics import Metric
from trainers.task.readings import Misfit
from trainers.task.task import evaluation_batch_of, move
from trainers.task.unfit_task import UnfitTask
from trainers.task.without_memory import model_without_memory

_SAMPLES = 64
_SECONDS = 2.0  # a slow source gives fewer
_SMALL_NETWORK, _SMALL_INPUT = 5_000_000, 2_000_000
"""Parameters of a network, and elements of a batch, that are really run; of larger ones the outputs are made up."""
_ALIKE = 1e-4


_Samples = tuple[Any, Any]
"""Inputs and targets, as preprocessors make them."""


@dataclass(frozen=True)
class _Tried:
    """Batches of the same samples.

    Attributes:
        whole: outputs and targets of all together.
        parts: of some, and of the others.
        real: whether the outputs are the network's own.
    """

    whole: tuple[Any, Any]
    parts: Sequence[tuple[Any, Any]]
    real: bool


def metric_problems(runtime: Runtime, datasets: Mapping[str, Dataset]) -> Iterator[Problem]:
    """What is wrong with the metrics of the jobs, each kind of job tried once."""
    seen: set[str] = set()
    samples: dict[str, _Samples | None] = {}  # by data key, made once
    for position, job in enumerate(runtime.spec.jobs):
        told = job.model_dump(mode="json", include=_TOLD)
        key = json.dumps([told, data_key(job)], sort_keys=True)
        if runtime.rehearsal is None and key not in seen and data_key(job) in datasets:
            seen.add(key)
            with kept_random_state(), settings_kept(), no_exit(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = list(_of_job(runtime, datasets[data_key(job)], samples, position, job))
            yield from found


_TOLD = {"model", "task", "loss", "metrics", "evaluation_batch_size", "accumulate", "batch"}
"""Keys of a job by which it is another kind."""


def _of_job(
    runtime: Runtime, data: Dataset, known: dict[str, _Samples | None], position: int, job: Job
) -> Iterator[Problem]:
    try:
        task = runtime.task(job.name)
        asked = dict(task.metric_objects) if job.task is None or isinstance(task.own_metrics, Mapping) else {}
        loss = task.loss_to_try
        if (asked or loss) and data_key(job) not in known:
            known[data_key(job)] = _samples(data, job)
        made = known[data_key(job)] if asked and data.held_out or loss else None
        tried = None if made is None else _tried(task, data, made)
    except ReferenceProblem:
        raise
    except (Exception, SystemExit):  # the user's code: the run tells of it where it trains
        return
    if loss is not None and tried is not None:
        try:
            loss.try_parts(*tried.whole, task.comes_in_parts)
        except UnfitTask as error:
            rule, _, mend = str(error).partition(". So ")
            rule += "; " + " and ".join(
                f"{what} are {_shape(each)}" for what, each in zip(("outputs", "targets"), tried.whole)
            )
            value = job.loss.name if job.loss else None
            yield runtime.spec.origins.problem(("jobs", position, "loss"), value, rule, mend=mend)
    one_batch = data.held_out <= evaluation_batch_of(task, job.global_batch)
    for number, (name, metric) in enumerate(asked.items() if tried is not None and data.held_out else ()):
        assert tried is not None
        found = _problem_of(metric, tried, one_batch)
        if found is not None:
            at = ("metrics", number) if job.task is None else ("task", "name")
            value = name if job.task is not None else _written(job, number)
            yield runtime.spec.origins.problem(
                ("jobs", position, *at), value, f"metric {name}: {found[0]}", mend=found[1]
            )


def _written(job: Job, number: int) -> Any:
    entry = job.metrics[number]
    return entry if isinstance(entry, str) else entry.model_dump(exclude_defaults=True)


def _problem_of(metric: Metric, tried: _Tried, one_batch: bool) -> tuple[str, str] | None:
    """Why a metric cannot be measured, and the mend; None: it can."""
    before = _part_of(metric, tried.parts[0])
    try:
        _value(metric, [tried.whole])
    except Misfit as error:
        rule, _, mend = str(error).rpartition("; ")
        return rule or str(error), mend
    except Exception as error:  # the user's code may raise anything
        if not tried.real:
            return None
        shapes = " and ".join(f"{what} {_shape(each)}" for what, each in zip(("outputs", "targets"), tried.whole))
        text = str(error).splitlines()[0] if str(error) else "no message"
        rule = f"it raises {type(error).__name__}: {text}, of {shapes}"
        return rule, "let it take these, or name another metric"
    after = _part_of(metric, tried.parts[0])
    if not _alike(before, after):
        return f"of the same samples it gives {before:.6g}, then {after:.6g}: it keeps what it has seen", _ANEW
    for whole, parts in () if one_batch else ((tried.whole, tried.parts), *_shaken(tried)):
        with suppress(Exception):
            together, apart = _value(metric, [whole]), _value(metric, parts)
            if not _alike(together, apart):
                rule = f"of the same samples in one batch it gives {together:.6g}, in two {apart:.6g}"
                return f"{rule}: its sums and counts are not those of samples, so batches change it", _WHOLE_SET
    return None


def _part_of(metric: Metric, part: tuple[Any, Any]) -> float:
    """The value of some samples, for which it may be worth nothing."""
    try:
        return _value(metric, [part])
    except Exception:  # the user's code may raise anything; of all samples it is told
        return math.nan


_ANEW = "make it a function of (outputs, targets), or a class of torchmetrics, whose states begin anew with each batch"
_WHOLE_SET = (
    "name a metric of the whole set, such as the built-in auroc or f1, or a class of torchmetrics; or let "
    "evaluation_batch_size take all held-out samples at once"
)


def _value(metric: Metric, batches: Sequence[tuple[Any, Any]]) -> float:
    return metric.value([metric.state(*batch) for batch in batches])


def _alike(one: float, other: float) -> bool:
    """Whether two values are the same but for rounding; one that is no number tells nothing."""
    return not (math.isfinite(one) and math.isfinite(other)) or math.isclose(one, other, rel_tol=_ALIKE, abs_tol=_ALIKE)


def _shaken(tried: _Tried) -> Iterator[tuple[tuple[Any, Any], Sequence[tuple[Any, Any]]]]:
    """The same with noise on the outputs, as an untrained network may give one class to all samples."""
    outputs, targets = tried.whole
    if isinstance(outputs, Tensor) and isinstance(targets, Tensor) and outputs.is_floating_point() and len(outputs) > 1:
        noise = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(0)).to(outputs.dtype)
        shaken = outputs + noise * (outputs.std() + 1)
        if bool(((outputs >= 0) & (outputs <= 1)).all()):  # they may be probabilities
            shaken = shaken.sigmoid()
        yield (shaken, targets), _cut(shaken, targets, max(1, len(outputs) // 3))


def _tried(task: SpecTask, data: Dataset, made: _Samples) -> _Tried:
    """Some held-out samples with the network's outputs; whatever the network raises."""
    inputs, targets = made
    order = sorted(range(len(inputs)), key=lambda row: inputs[row].nbytes)  # the short ones, then the long ones
    cut = max(1, len(order) // 3)
    rows = [order, order[:cut], order[cut:]] if len(order) > 1 else [order]
    batches = [task.prepared(_batch(task, data, inputs[some], targets[some])) for some in rows]
    network, real = _network(task, batches[0][0])
    with torch.no_grad():
        if real:
            whole, *parts = [(network(given), wanted) for given, wanted in batches]
        else:
            whole = (network(batches[0][0]), batches[0][1])
            parts = _cut(*whole, cut) if len(order) > 1 and isinstance(whole[1], Tensor) else []
    return _Tried(whole, parts or [whole], real)


def _cut(outputs: Tensor, targets: Tensor, cut: int) -> list[tuple[Tensor, Tensor]]:
    return [(outputs[:cut], targets[:cut]), (outputs[cut:], targets[cut:])]


def _samples(data: Dataset, job: Job) -> _Samples | None:
    """Held-out samples, or training samples where there are none, spread over all, as far as they can be made."""
    kind, length = (HELD_OUT, data.held_out) if data.held_out else (TRAIN, data.length)
    begin, count, good = time.monotonic(), min(_SAMPLES, length), []
    inputs, targets = data.layout.empty(count)
    place = places_in(inputs)
    for row in range(count):
        sample = row * length // count
        if data.attempt(kind, job.order_seed, sample, place(row), targets[row : row + 1]):
            good.append(row)
        if len(good) > 1 and time.monotonic() - begin > _SECONDS:
            break
    return (inputs[good], targets[good]) if good else None


def _batch(task: SpecTask, data: Dataset, inputs: Any, targets: Any) -> tuple[Any, Any]:
    if data.layout.is_ragged:
        batch: tuple[Any, Any] = collated(inputs, task.collate)
        return batch
    return torch.from_numpy(inputs), torch.from_numpy(targets)


def _network(task: SpecTask, inputs: Any) -> tuple[Callable[[Any], Any], bool]:
    """What gives outputs for inputs, and whether that is the network itself.

    A large one is asked on torch's meta device for the shapes alone.
    """
    shape = model_without_memory(task.model)
    sizes = [each.numel() for each in _tensors(inputs)]
    if sum(map(_elements, shape.parameters())) <= _SMALL_NETWORK and sum(sizes) <= _SMALL_INPUT:
        return task.model().eval(), True
    return _made_up(shape.eval()), False


def _elements(weight: nn.Parameter) -> int:
    return 0 if isinstance(weight, torch.nn.parameter.UninitializedParameter) else weight.numel()


def _made_up(network: nn.Module) -> Callable[[Any], Any]:
    def outputs(inputs: Any) -> Any:
        found = network(move(inputs, torch.device("meta")))
        if not isinstance(found, Tensor):
            raise TypeError("only tensors are made up")
        return torch.randn(found.shape, generator=torch.Generator().manual_seed(0)).to(found.dtype)

    return outputs


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (Mapping, list, tuple)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors(item)


def _shape(value: Any) -> str:
    return f"of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"of type {type(value).__name__}"
