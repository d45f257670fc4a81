"""Whether a job's metrics can be measured and its loss weighed: tried on real samples before anything is trained.

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

from fleet.spec import Job, Problem, ReferenceProblem, SpecTask
from fleet.spec.job import data_key
from fleet.spec.job_checks import kept_random_state
from fleet.spec.named_parts import JobLoss
from fleet.spec.problem import KeyPath
from fleet.workers.feed import collated
from fleet.workers.runtime import Runtime
from preprocess import Dataset
from preprocess.samples.layout import places_in
from preprocess.samples.order import HELD_OUT, TRAIN
from trainers.repeatable.process_settings import model_without_memory, no_exit, settings_kept
from trainers.task.loss import UnfitTask
from trainers.task.metrics import Metric, Misfit
from trainers.task.task import evaluation_batch_of, move

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


class BatchTrials:
    """Tries metrics and losses on some samples of each data set, once for each kind of job.

    Args:
        datasets: by data key, as they are open here.
    """

    def __init__(self, datasets: Mapping[str, Dataset]) -> None:
        self._datasets = datasets
        self._samples: dict[str, _Samples | None] = {}  # by data key, made once
        self._faults: dict[str, list[_Fault]] = {}  # by kind of job

    def problems(self, runtime: Runtime) -> Iterator[Problem]:
        """What is wrong with the jobs of the spec, of a search with its first trial; of each kind of job once."""
        for position, job in enumerate(runtime.spec.jobs):
            if (kind := _kind(job)) not in self._faults:
                yield from self._told(runtime, job, position, kind)

    def newcomer_problems(self, runtime: Runtime, job: Job) -> Iterator[Problem]:
        """What is wrong with a job that comes while others train, such as a later trial: it alone is refused then.

        It is tried with the samples that were made at the start, as preprocessors read the data meanwhile. Of jobs that
        differ in their networks' arguments alone, as the trials of a search do, one is tried.
        """
        if data_key(job) in self._samples:
            yield from self._told(runtime, job, len(runtime.spec.jobs) - 1, _kind_by_names(job))

    def _told(self, runtime: Runtime, job: Job, position: int, kind: str) -> Iterator[Problem]:
        if runtime.rehearsal is not None or data_key(job) not in self._datasets:
            return
        if kind not in self._faults:
            with kept_random_state(), settings_kept(), no_exit(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._faults[kind] = self._faults[_kind_by_names(job)] = list(self._tried(runtime, job))
        for at, value, rule, mend in self._faults[kind]:
            yield runtime.spec.origins.problem(("jobs", position, *at), value, rule, mend=mend)

    def _tried(self, runtime: Runtime, job: Job) -> Iterator[_Fault]:
        data = self._datasets[data_key(job)]
        try:
            task = runtime.task(job.name)
            asked = dict(task.metric_objects) if job.task is None or isinstance(task.own_metrics, Mapping) else {}
            loss = task.loss_to_try
            if (asked or loss) and data_key(job) not in self._samples:
                self._samples[data_key(job)] = _samples(data, job)
            made = self._samples[data_key(job)] if asked and data.held_out or loss else None
            tried = None if made is None else _tried(task, data, made)
        except ReferenceProblem:
            raise
        except (Exception, SystemExit):  # the user's code: the run tells of it where it trains
            return
        if tried is None:
            return
        if loss is not None:
            yield from _of_loss(loss, task.comes_in_parts, tried, job)
        one_batch = data.held_out <= evaluation_batch_of(task, job.global_batch)
        for number, (name, metric) in enumerate(asked.items() if data.held_out else ()):
            found = _problem_of(metric, tried, one_batch)
            if found is not None:
                at = ("metrics", number) if job.task is None else ("task", "name")
                value = name if job.task is not None else _written(job, number)
                yield at, value, f"metric {name}: {found[0]}", found[1]


_Fault = tuple[KeyPath, Any, str, str]
"""Where in a job, the value, the rule, the mend."""
_TOLD = {"model", "task", "loss", "metrics", "evaluation_batch_size", "accumulate", "batch"}
"""Keys of a job by which it is another kind."""


def _kind(job: Job) -> str:
    return json.dumps([job.model_dump(mode="json", include=_TOLD), data_key(job)], sort_keys=True)


def _kind_by_names(job: Job) -> str:
    """The kind of a job without the arguments of its network."""
    told = job.model_dump(mode="json", include=_TOLD - {"model"})
    return json.dumps([job.model and job.model.name, told, data_key(job)], sort_keys=True)


def _of_loss(loss: JobLoss, why: str, tried: _Tried, job: Job) -> Iterator[_Fault]:
    try:
        loss.try_parts(*tried.whole, why)
    except UnfitTask as error:
        rule, _, mend = str(error).partition(". So ")
        shapes = " and ".join(f"{what} are {_shape(each)}" for what, each in zip(("outputs", "targets"), tried.whole))
        yield ("loss",), job.loss.name if job.loss else None, f"{rule}; {shapes}", mend


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
