"""Which samples a script trains and tests on, and the calls that give them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    WeightedRandomSampler,
    default_collate,
)

from fleet.spec.from_script.calls import Calls, Unwritten
from fleet.spec.from_script.held_out import held_out_loader
from fleet.spec.from_script.report import Report
from fleet.spec.from_script.watch import Step, Watch

_ROUNDING = 1e-5
_DEFAULTS = ("default_collate", "default_convert")


def read_samples(report: Report, calls: Calls, watch: Watch, step: Step) -> None:
    """Write down the data set of the batches and the one beside it, and what makes batches of them."""
    loader = step.loader
    if loader is None:
        report.fail(
            "no DataLoader gives the batches of the first step",
            "put the samples into a map-style data set and take them from a torch.utils.data.DataLoader",
        )
        return
    _check_kind(report, loader.dataset)
    _part(report, calls, "train", loader.dataset)
    report.job["batch_size"] = _batch_size(report, loader, step)
    others = [each for each in watch.makings.things(DataLoader) if each.dataset is not loader.dataset]
    if others:
        _held_out(report, calls, held_out_loader(report, watch, step, others))
    else:
        report.tell("no other DataLoader was made before the second step, so there are no held-out samples")
    _collating(report, calls, loader, step)
    _order(report, loader)


def steps_of_epoch(step: Step) -> int:
    """How many steps an epoch has."""
    return max(1, len(step.loader) // max(1, step.passes)) if step.loader is not None else 1


def _held_out(report: Report, calls: Calls, loader: Any) -> None:
    """Write down the held-out samples, and how many of them come at once where that is not as many as in a step."""
    _part(report, calls, "held_out", loader.dataset)
    if isinstance(loader.batch_size, int) and loader.batch_size != report.job["batch_size"]:
        report.job["evaluation_batch_size"] = loader.batch_size


def _check_kind(report: Report, dataset: Any) -> None:
    if isinstance(dataset, IterableDataset):
        report.fail(
            f"{type(dataset).__name__} gives its samples one after the other",
            "give a data set with len() and [index], or write its samples to files once (fleet convert)",
        )


def _part(report: Report, calls: Calls, part: str, dataset: Any) -> None:
    subset = _slice(dataset)
    whole = dataset.dataset if subset is not None else dataset
    written = next(calls.candidates(whole), None)
    if written is not None:
        named = {"source": written.name, "arguments": dict(written.arguments)}
        report.data[part] = named | ({"subset": subset} if subset is not None else {})
        return
    try:
        text = calls.text(dataset)
    except Unwritten as problem:
        line = calls.makings.constructor(dataset) or next(iter(calls.makings.functions(dataset)), None)
        where = f" of line {line.line}" if line is not None and line.line else ""
        report.fail(
            f"the {part} samples ({type(dataset).__name__}{where}) cannot be made from a spec: {problem}",
            f"make them in a function of its own, such as def {part}_data(): return ..., and call that",
        )
        return
    report.functions[f"{part}_data"] = f"return {text}"
    report.data[part] = {"source": f"PARTS:{part}_data"}


def _slice(dataset: Any) -> list[int] | None:
    """The slice that a Subset is, as a spec says it; None: it is none."""
    if not isinstance(dataset, Subset) or not len(dataset.indices):
        return None
    indices = list(dataset.indices)
    step = indices[1] - indices[0] if len(indices) > 1 else 1
    if step < 1 or indices != list(range(indices[0], indices[-1] + 1, step)):
        return None
    found = [indices[0], indices[-1] + 1, step]
    return [found[1]] if found[0] == 0 and step == 1 else found[:2] if step == 1 else found


def _batch_size(report: Report, loader: Any, step: Step) -> int:
    size = loader.batch_size
    if size is None:
        sampler = loader.batch_sampler or loader.sampler
        size = getattr(sampler, "batch_size", None)
    if not isinstance(size, int):
        report.fail("the batches have no fixed size", "give the DataLoader a batch_size")
        return 1
    if loader.drop_last or getattr(loader.batch_sampler, "drop_last", False):
        report.job["drop_last"] = True
    if step.passes > 1:
        report.job["accumulate"] = step.passes
    return size * max(1, step.passes)


def _collating(report: Report, calls: Calls, loader: Any, step: Step) -> None:
    if loader.collate_fn is not default_collate and getattr(loader.collate_fn, "__name__", "") not in _DEFAULTS:
        try:
            text = calls.text(loader.collate_fn)
            report.functions["joined"] = f"return {text}(samples)"
            report.data["collate"] = "PARTS:joined"
        except Unwritten as problem:
            report.fail(f"the collate_fn cannot be named: {problem}", "define it at the level of a module")
    batch = step.batch
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        shown = (
            sorted(batch) if isinstance(batch, dict) else f"{len(batch)} things" if hasattr(batch, "__len__") else "1"
        )
        report.fail(
            f"a batch is {type(batch).__name__} of {shown}, not (input, target)",
            "let the data set give pairs, or write a task class (docs/how-to/port-a-ddp-script.md)",
        )
    elif isinstance(batch[0], torch.Tensor) and batch[0].dtype == torch.uint8 and batch[0].ndim in (3, 4):
        report.tell("samples are bytes: fleet takes them for images (height, width, channels) and scales them to 0..1")


def _order(report: Report, loader: Any) -> None:
    sampler = loader.sampler
    if isinstance(loader.batch_sampler, BatchSampler):
        sampler = loader.batch_sampler.sampler
    if isinstance(sampler, SequentialSampler):
        report.tell("the script takes samples in their order; fleet shuffles them in each epoch")
    elif isinstance(sampler, WeightedRandomSampler):
        _weighed(report, loader.dataset, sampler)
    elif not isinstance(sampler, (RandomSampler, DistributedSampler)):
        report.tell(f"{type(sampler).__name__} is left out: fleet takes each sample once an epoch, in shuffled order")


def _weighed(report: Report, dataset: Any, sampler: WeightedRandomSampler) -> None:
    """Write down by which weights samples are drawn, where these are of their classes."""
    if sampler.num_samples != len(dataset) or not sampler.replacement:
        report.tell(
            f"WeightedRandomSampler draws {sampler.num_samples} of {len(dataset)} samples an epoch"
            f"{'' if sampler.replacement else ' without replacement'}; fleet draws as many as there are, with it"
        )
    weights = sampler.weights.tolist()
    try:
        classes = [int(dataset[index][1]) for index in range(len(dataset))]
    except (TypeError, ValueError, IndexError, KeyError):
        classes = []
    by_class = dict(zip(classes, weights))
    if not classes or [by_class[each] for each in classes] != weights:
        report.fail(
            "WeightedRandomSampler is given weights that are not those of classes",
            "put them into a function of the samples, and write order: {weights: module:Name} into the data section",
        )
        return
    counts = Counter(classes)
    shares = [by_class[each] * count for each, count in counts.items()]
    if max(shares) - min(shares) <= _ROUNDING * max(shares):
        report.data["order"] = {"weights": "balanced"}
        return
    named = {each: by_class[each] for each in sorted(by_class)}
    report.functions["weights"] = f"by_class = {named!r}\nreturn [by_class[int(target)] for _, target in samples]"
    report.data["order"] = {"weights": "PARTS:weights"}
