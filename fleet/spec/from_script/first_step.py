"""A script's first step -> what a spec says of it: network, samples, optimizer, schedule, loss and options."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.optim import lr_scheduler
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

from fleet.spec.from_script.value_origins import Calls, MakerCall, Unwritten, Written, changed_arguments, plain
from fleet.spec.from_script.watched_script import FormChange, LossCall, Step, Watch, assigned_at
from fleet.spec.optimizer import patterns
from fleet.spec.references import ReferenceProblem, resolve

TASK = "write a task class (docs/how-to/port-a-ddp-script.md)"
"""What to do where a spec's own keys do not suffice."""


@dataclass
class Report:
    """Filled while a script's first step is read.

    Attributes:
        data: the section of its data set.
        job: the keys of its job.
        functions: what a function of the file beside the spec gives -> the text of its body.
        told: what a reader of the spec should know.
        problems: what a spec cannot say, each with its mend.
    """

    data: dict[str, Any] = field(default_factory=dict)
    job: dict[str, Any] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def tell(self, text: str) -> None:
        """Say something to whoever reads the spec."""
        self.told.append(text)

    def fail(self, problem: str, mend: str) -> None:
        """Say what is in the way, and what to do."""
        self.problems.append(f"{problem}; {mend}")


_WRAPPERS = (nn.parallel.DistributedDataParallel, nn.DataParallel)
_FORMATS = {"channels_last": 4, "channels_last_3d": 5}
"""The memory formats that `Module.to` lays weights of so many dimensions in."""


def network_of(step: Step) -> nn.Module | None:
    """The module that has all of the optimizer's parameters: of several the outermost, without what only wraps it."""
    trained = {id(each) for group in step.optimizer.param_groups for each in group["params"]}
    called = [module for module, _, _ in step.calls.values() if not isinstance(module, _WRAPPERS)]
    whole = [module for module in called if trained <= {id(each) for each in module.parameters()}]
    return max(whole, key=lambda module: sum(1 for _ in module.modules()), default=None)


def note_network(report: Report, calls: Calls, watch: Watch, step: Step, network: nn.Module) -> None:
    """Write the network down, and tell what of it a spec does not keep."""
    for each in calls.candidates(network):
        if _makes_network(each, calls, network):
            report.job["model"] = each.to_spec()
            break
    else:
        _network_text(report, calls, network)
    if any(loaded is network for loaded in watch.loaded):
        report.tell("the script reads weights into the network; the spec begins with new ones")
    if any(compiled is network for compiled in watch.compiled):
        report.job["compile"] = True
    if (memory_format := _memory_format(network)) is not None and "model" in report.job:
        report.job["memory_format"] = memory_format
    trained = {id(each) for group in step.optimizer.param_groups for each in group["params"]}
    frozen = [name for name, each in network.named_parameters() if id(each) not in trained]
    if frozen:
        report.fail(
            f"the optimizer leaves out {len(frozen)} parameters, such as {frozen[0]}",
            "let the network's own constructor freeze them with requires_grad_(False), or give the optimizer all",
        )


def _memory_format(network: nn.Module) -> str | None:
    """The memory format in which all weights of its number of dimensions lie, unless that is C order too."""
    for name, dimensions in _FORMATS.items():
        weights = [weight for weight in network.parameters() if weight.dim() == dimensions]
        are_so = all(weight.is_contiguous(memory_format=getattr(torch, name)) for weight in weights)
        if are_so and not all(weight.is_contiguous() for weight in weights):
            return name
    return None


def _makes_network(written: Written, calls: Calls, network: nn.Module) -> bool:
    """Return whether a call gives a network with this one's names and shapes."""
    module, _, name = written.name.partition(":")
    found = "__main__" if module == calls.module else module
    try:
        with torch.random.fork_rng(), torch.device("meta"):
            other = resolve(f"{found}:{name}")(**written.arguments)
    except (ReferenceProblem, Exception):  # the network's own code may fail in any way
        return False
    return isinstance(other, nn.Module) and _shape(other) == _shape(network)


def _shape(network: nn.Module) -> Any:
    kinds = [(name, type(module)) for name, module in network.named_modules()]
    tensors = [(name, tuple(each.shape), each.dtype) for name, each in network.state_dict(keep_vars=True).items()]
    return kinds, tensors, [each.requires_grad for each in network.parameters()]


def _network_text(report: Report, calls: Calls, network: nn.Module) -> None:
    wanted, why = _shape(network), "the script changes it after it was made"
    try:
        text = next((each for each in calls.texts(network) if _shape(calls.made(each)) == wanted), None)
    except Unwritten as problem:
        text, why = None, f"it has {problem}"
    if text is None:
        report.fail(
            f"the network ({type(network).__name__}) cannot be made from a spec: {why}",
            "make it in a function of its own, such as def network(): return Net(...), and call that",
        )
        return
    report.functions["model"] = f"return {text}"
    report.job["model"] = "PARTS:model"


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
    _write_part(report, calls, "train", loader.dataset)
    report.job["batch_size"] = _batch_size(report, loader, step)
    others = [each for each in watch.provenance.things(DataLoader) if each.dataset is not loader.dataset]
    if others:
        _write_held_out(report, calls, held_out_loader(report, watch, step, others))
    else:
        report.tell("no other DataLoader was made before the second step, so there are no held-out samples")
    _collating(report, calls, loader, step)
    _write_order(report, loader)


def steps_of_epoch(step: Step) -> int:
    """Return how many steps an epoch has."""
    return max(1, len(step.loader) // max(1, step.passes)) if step.loader is not None else 1


def _write_held_out(report: Report, calls: Calls, loader: Any) -> None:
    """Write down the held-out samples, and how many of them come at once where that is not as many as in a step."""
    _write_part(report, calls, "held_out", loader.dataset)
    if isinstance(loader.batch_size, int) and loader.batch_size != report.job["batch_size"]:
        report.job["evaluation_batch_size"] = loader.batch_size


def _check_kind(report: Report, dataset: Any) -> None:
    if isinstance(dataset, IterableDataset):
        report.fail(
            f"{type(dataset).__name__} gives its samples one after the other",
            "give a data set with len() and [index], or write its samples to files once (fleet convert)",
        )


def _write_part(report: Report, calls: Calls, part: str, dataset: Any) -> None:
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
        line = calls.provenance.constructor(dataset) or next(iter(calls.provenance.functions(dataset)), None)
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


def _write_order(report: Report, loader: Any) -> None:
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


_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_ENDS = r"(?:loader|dataset|set|data|dl|ds|iter)*s?"
_SAY = tuple(
    re.compile(f"(?:{words}){_ENDS}")
    for words in ("val|valid|validation|validate|dev|held|heldout|holdout|eval|evaluation|evaluate", "test|testing")
)
"""What a name says of samples that are held out: first, that they are looked at while training goes on."""
_TRAIN = re.compile(f"(?:train|training){_ENDS}")
_NOTHING, _AGAINST = len(_SAY), len(_SAY) + 1


def held_out_loader(report: Report, watch: Watch, step: Step, others: Sequence[Any]) -> Any:
    """The loader of the held-out samples among those beside the training's; tells where it is a guess."""
    names = {id(each): _loader_names(watch, step, each) for each in others}
    own = [_rank(names[id(each)]) for each in others]
    ranks = [_rank(_data_says(watch, step, each)) if rank == _NOTHING else rank for each, rank in zip(others, own)]
    best = min(ranks)
    place = max(place for place, rank in enumerate(ranks) if rank == best)
    if len(others) > 1 or best >= _NOTHING:
        report.tell(_guess_text([_loader_text(watch, each, names[id(each)]) for each in others], place, best))
    return others[place]


def _guess_text(called: list[str], place: int, rank: int) -> str:
    taken, rest = called[place], [each for each in called if each != called[place]]
    why = "whose name says so" if rank < _NOTHING else "the last that was made" if rest else "the only other one"
    beside = f"; there are also {', '.join(rest)}" if rest else ""
    mend = "if others are meant, change held_out in the spec's data"
    return f"the held-out samples are a guess, those of {taken}, {why}{beside}; {mend}"


def _loader_names(watch: Watch, step: Step, loader: Any) -> tuple[str, ...]:
    """Return what the script calls a loader, now or where it made it."""
    making = watch.provenance.constructor(loader)
    line = 0 if making is None else making.line
    return step.names.get(id(loader), ()) or (assigned_at(watch.provenance.script, line) if line else ())


def _data_says(watch: Watch, step: Step, loader: Any) -> tuple[str, ...]:
    """Return what the data set of a loader is called, and the words with which it was made, such as split="val"."""
    making = watch.provenance.constructor(loader.dataset)
    given = {} if making is None else making.arguments
    words = [value for value in given.values() if isinstance(value, str) and value.isidentifier()]
    words += ["test" if given["train"] is False else "train"] if isinstance(given.get("train"), bool) else []
    return (*step.names.get(id(loader.dataset), ()), *words)


def _rank(names: Iterable[str]) -> int:
    """Return how well names say that samples are held out, the less the better."""
    words = [word.lower() for name in names for word in _WORDS.findall(name)]
    if any(_TRAIN.fullmatch(word) for word in words):
        return _AGAINST
    return next((rank for rank, say in enumerate(_SAY) if any(map(say.fullmatch, words))), _NOTHING)


def _loader_text(watch: Watch, loader: Any, names: Sequence[str]) -> str:
    making = watch.provenance.constructor(loader)
    where = f"line {making.line}" if making is not None and making.line else "a loader without a name"
    return f"{names[0]} ({where})" if names else f"the DataLoader of {where}"


def read_optimizer(report: Report, calls: Calls, watch: Watch, step: Step, network: nn.Module) -> None:
    """Write the optimizer down."""
    optimizer = step.optimizer
    if watch.others:
        report.fail(f"several optimizers step, {_class_name(optimizer)} and {_class_name(watch.others[0])}", TASK)
    made = calls.provenance.constructor(optimizer)
    if made is None:
        report.fail(f"it is unknown how {_class_name(optimizer)} was made", "name its class where it is made")
        return
    arguments = {name: value for name, value in made.arguments.items() if name != "params"}
    try:
        written = calls.written(replace(made, arguments=arguments))
    except Unwritten as problem:
        report.fail(f"the arguments of {_class_name(optimizer)} cannot be written down: {problem}", "give it numbers")
        return
    name = (
        _class_name(optimizer)
        if type(optimizer) is getattr(torch.optim, _class_name(optimizer), None)
        else written.name
    )
    rate = optimizer.defaults.get("lr")
    always = {"lr": rate} if isinstance(rate, float) else {}  # the default's too, for whoever changes it
    report.job["optimizer"] = {"name": name, "arguments": always | dict(written.arguments)}
    if len(optimizer.param_groups) > 1:
        _read_groups(report, optimizer, network)


def _read_groups(report: Report, optimizer: torch.optim.Optimizer, network: nn.Module) -> None:
    """Write the groups of parameters down: the largest has the optimizer's own arguments, the others options."""
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    found = [
        ([names[id(each)] for each in group["params"] if id(each) in names], _options(group))
        for group in optimizer.param_groups
    ]
    (_, own), *others = sorted(found, key=lambda group: -len(group[0]))
    arguments = report.job["optimizer"]["arguments"]
    try:
        changed = {name: plain(value) for name, value in own.items() if value != optimizer.defaults.get(name)}
        groups = [
            {"match": patterns(members, list(names.values()))}
            | {name: plain(value) for name, value in options.items() if value != own.get(name)}
            for members, options in others
            if members
        ]
    except Unwritten as problem:
        report.fail(f"the groups of {_class_name(optimizer)} have {problem}, which a spec cannot hold", TASK)
        return
    report.job["optimizer"] = {**report.job["optimizer"], "arguments": arguments | changed, "groups": groups}


def _options(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a group says, before a schedule changed its rate."""
    told = {name: value for name, value in group.items() if name not in ("params", "initial_lr")}
    return told | ({"lr": group["initial_lr"]} if "initial_lr" in group else {})


def read_options(report: Report, watch: Watch, step: Step) -> None:
    """Write down what else changes a step: precision and clipping; and the seed and the epochs."""
    casts = [watch.provenance.constructor(each) for each in watch.provenance.things(torch.autocast)]
    made = next((each for each in reversed(casts) if each is not None and each.arguments.get("enabled", True)), None)
    if made is not None:
        dtype = made.arguments.get("dtype") or torch.get_autocast_dtype(made.arguments.get("device_type", "cuda"))
        if dtype == torch.bfloat16:
            report.job["autocast"] = "bfloat16"
        else:
            report.tell(f"autocast to {str(dtype).rpartition('.')[2]} is left out; fleet knows bfloat16")
    if step.clip is not None:
        report.job[{"clip_grad_norm_": "clip_norm"}.get(step.clip[0], "clip_value")] = float(step.clip[1])
    if watch.seed is not None and watch.seed >= 0:
        report.job["seed"] = watch.seed
    epochs = step.epochs
    if epochs is None:
        report.tell("it is unknown how many epochs the script trains: 10 are written")
    report.job["stop"] = {"epochs": epochs or 10}


def _class_name(thing: object) -> str:
    return type(thing).__name__


def read_schedule(report: Report, calls: Calls, watch: Watch, step: Step) -> None:
    """Write the schedule of the learning rate down, and whether it is stepped each epoch."""
    kind = (lr_scheduler.LRScheduler, lr_scheduler.ReduceLROnPlateau)
    found = [each for each in watch.provenance.things(kind) if getattr(each, "optimizer", None) is step.optimizer]
    inner = {id(each) for outer in found for each in getattr(outer, "_schedulers", ())}
    found = [each for each in found if id(each) not in inner]
    if not found:
        return
    if len(found) > 1:
        report.fail(f"{len(found)} schedules change the learning rate", "join them in one ChainedScheduler")
    schedule = found[-1]
    if isinstance(schedule, lr_scheduler.ReduceLROnPlateau):
        report.tell("ReduceLROnPlateau is left out, since fleet steps schedules without a metric")
        return
    each_step = id(schedule) in watch.stepped_schedules or steps_of_epoch(step) == 1
    try:
        report.job["schedule"] = _written_schedule(report, calls, schedule) | ({} if each_step else {"each": "epoch"})
    except Unwritten as problem:
        mend = "give it numbers, or functions that are defined by name at the level of a module"
        report.fail(f"{type(schedule).__name__} cannot be written down: it has {problem}", mend)


def _written_schedule(report: Report, calls: Calls, schedule: Any) -> dict[str, Any]:
    """The schedule by name with its arguments, or a function among the parts that makes it."""
    made = calls.provenance.constructor(schedule)
    if made is None:
        raise Unwritten("nobody saw how it was made")
    made = replace(made, arguments=_without_optimizer(made.arguments))
    name = type(schedule).__name__ if type(schedule) is getattr(lr_scheduler, type(schedule).__name__, None) else ""
    try:
        written = calls.written(made)
    except Unwritten:
        report.functions["schedule"] = f"return {_schedule_text(calls, made)}"
        return {"name": "PARTS:schedule"}
    return {"name": name or written.name, "arguments": dict(written.arguments)}


def _schedule_text(calls: Calls, made: MakerCall) -> str:
    given = _without_optimizer(changed_arguments(made))
    words = ["optimizer", *(f"{name}={calls.text(value)}" for name, value in given.items())]
    module, name = calls.address(made)
    calls.imports |= {"torch", module}
    return f"{module}.{name}({', '.join(words)})"


def _without_optimizer(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name != "optimizer"}


_ACCURATE = ("cross_entropy", "nll_loss")
_DISTANT = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")


def read_loss(report: Report, calls: Calls, step: Step, network: nn.Module) -> None:
    """Write the loss down, and what fits it as a metric."""
    _check_input(report, step, network)
    call = step.losses.of(step.loss)
    if call is None:
        _own_loss(report, calls, step, network)
        return
    outputs, of_outputs = step.losses.source(call.outputs)
    targets, of_targets = step.losses.source(call.targets)
    if not _is_output(step, network, outputs) or not _is_of_batch(step.batch, 1, targets):
        report.fail(f"{call.name} is not given the network's outputs and the batch's targets", TASK)
        return
    try:
        report.job["loss"] = _named_loss(report, calls, step, call, (of_outputs, of_targets))
    except Unwritten as problem:
        mend = "put it into a function of (outputs, targets) at the level of a module"
        report.fail(f"the loss has {problem}, which a spec cannot hold", mend)
    if call.name in _ACCURATE and not of_outputs and not call.targets.is_floating_point():
        report.job["metrics"] = ["accuracy"]
    elif call.name in _DISTANT:
        report.job["metrics"] = ["mean_absolute_error"]


def _named_loss(
    report: Report,
    calls: Calls,
    step: Step,
    call: LossCall,
    forms: tuple[tuple[FormChange, ...], tuple[FormChange, ...]],
) -> Any:
    """The loss as a spec names it; where outputs or targets change their form first, a function of the parts."""
    given = _given(call)
    if not any(forms):
        named = {name: plain(_listed(value)) for name, value in given.items()}
        return {"name": call.name, "arguments": named} if named else call.name
    words = [_form_text(name, each, step) for name, each in zip(("outputs", "targets"), forms)]
    words += [f"{name}={_argument_text(calls, value)}" for name, value in given.items()]
    calls.imports.add("torch")
    report.functions["loss"] = f"return torch.nn.functional.{call.name}({', '.join(words)})"
    return "PARTS:loss"


def _listed(value: Any) -> Any:
    """A tensor of one dimension, such as weights of classes, as a list: a loss of the spec makes it a tensor again."""
    return value.tolist() if isinstance(value, torch.Tensor) and value.dim() == 1 else value


def _argument_text(calls: Calls, value: Any) -> str:
    """Text of an argument; a tensor lies where the outputs do."""
    listed = _listed(value)
    return calls.text(value) if listed is value else f"torch.tensor({calls.text(listed)}, device=outputs.device)"


def _own_loss(report: Report, calls: Calls, step: Step, network: nn.Module) -> None:
    """A loss that is the script's own: a module, or a function of outputs and targets."""
    loss = step.losses.unscaled(step.loss)
    fits = lambda given: (
        len(given) == 2 and _is_output(step, network, given[0]) and _is_of_batch(step.batch, 1, given[1])
    )
    modules = [module for module, inputs, result in step.calls.values() if result is loss and fits(inputs)]
    written = next((each for module in modules for each in calls.candidates(module)), None)
    if written is not None:
        report.job["loss"] = written.to_spec()
        return
    made = calls.provenance.scalars.get(id(loss))
    if made is not None and fits(list(made.arguments.values())[:2]):
        with suppress(Unwritten):
            report.job["loss"] = calls.written(replace(made, arguments={})).name
            return
    report.fail("the loss is no function of the network's outputs and the batch's targets alone", TASK)


def _check_input(report: Report, step: Step, network: nn.Module) -> None:
    called = step.calls.get(id(network))
    given: tuple[Any, ...] = called[1] if called is not None else ()
    if len(given) == 1 and _is_of_batch(step.batch, 0, given[0]):
        return
    if len(given) == 1 and _is_of_batch(step.batch, 0, step.losses.source(given[0])[0]):
        forms = ", ".join(change.method for change in step.losses.source(given[0])[1])
        report.fail(f"the network is given the batch's inputs after {forms}()", "do that in the network's forward()")
    else:
        report.fail("the network is not given the batch's inputs alone", TASK)


def _is_output(step: Step, network: nn.Module, tensor: Any) -> bool:
    """Return whether a tensor is what the network gave, or a module that only wraps it."""
    whole = [called for called in step.calls.values() if called[0] is network or network in called[0].children()]
    return any(given is tensor for _, _, given in whole)


def _is_of_batch(batch: Any, place: int, tensor: Any) -> bool:
    return isinstance(batch, (tuple, list)) and len(batch) > place and batch[place] is tensor


def _given(call: LossCall) -> dict[str, Any]:
    """Return what a loss is given beside outputs and targets, as far as it is not the default."""
    signature = inspect.signature(getattr(functional, call.name))
    defaults = {name: each.default for name, each in signature.parameters.items()}
    return {name: value for name, value in call.arguments.items() if value is not None and value != defaults.get(name)}


def _form_text(name: str, changes: tuple[FormChange, ...], step: Step) -> str:
    """Text of the changes of form of outputs or targets."""
    samples = len(step.batch[0]) if isinstance(step.batch, (tuple, list)) and hasattr(step.batch[0], "__len__") else 0
    for change in changes:
        first = next(iter(change.arguments), None)
        first = first[0] if isinstance(first, (tuple, list)) and first else first
        if change.method in ("view", "reshape") and first == samples:
            raise Unwritten(f"{change.method}() is given the number of samples; give it -1")
        words = [
            *(repr(tuple(each) if isinstance(each, torch.Size) else each) for each in change.arguments),
            *(f"{key}={value!r}" for key, value in change.keywords.items()),
        ]
        name += f".{change.method}({', '.join(words)})"
    return name
