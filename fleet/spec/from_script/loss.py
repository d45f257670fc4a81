"""How a script's loss is a function of outputs and targets."""

from __future__ import annotations

import inspect
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from fleet.spec.from_script.calls import Calls, Unwritten, plain
from fleet.spec.from_script.losses import FormChange, LossCall
from fleet.spec.from_script.report import TASK, Report
from fleet.spec.from_script.watch import Step

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
    if not _is_output(step, network, outputs) or not _is(step.batch, 1, targets):
        report.fail(f"{call.name} is not given the network's outputs and the batch's targets", TASK)
        return
    try:
        report.job["loss"] = _named(report, calls, step, call, (of_outputs, of_targets))
    except Unwritten as problem:
        mend = "put it into a function of (outputs, targets) at the level of a module"
        report.fail(f"the loss has {problem}, which a spec cannot hold", mend)
    if call.name in _ACCURATE and not of_outputs and not call.targets.is_floating_point():
        report.job["metrics"] = ["accuracy"]
    elif call.name in _DISTANT:
        report.job["metrics"] = ["mean_absolute_error"]


def _named(
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
    words = [_changed(name, each, step) for name, each in zip(("outputs", "targets"), forms)]
    words += [f"{name}={_text(calls, value)}" for name, value in given.items()]
    calls.imports.add("torch")
    report.functions["loss"] = f"return torch.nn.functional.{call.name}({', '.join(words)})"
    return "PARTS:loss"


def _listed(value: Any) -> Any:
    """A tensor of one dimension, such as weights of classes, as a list: a loss of the spec makes it a tensor again."""
    return value.tolist() if isinstance(value, torch.Tensor) and value.dim() == 1 else value


def _text(calls: Calls, value: Any) -> str:
    """Text of an argument; a tensor lies where the outputs do."""
    listed = _listed(value)
    return calls.text(value) if listed is value else f"torch.tensor({calls.text(listed)}, device=outputs.device)"


def _own_loss(report: Report, calls: Calls, step: Step, network: nn.Module) -> None:
    """A loss that is the script's own: a module, or a function of outputs and targets."""
    loss = step.losses.unscaled(step.loss)
    fits = lambda given: len(given) == 2 and _is_output(step, network, given[0]) and _is(step.batch, 1, given[1])
    modules = [module for module, inputs, result in step.calls.values() if result is loss and fits(inputs)]
    written = next((each for module in modules for each in calls.candidates(module)), None)
    if written is not None:
        report.job["loss"] = written.to_spec()
        return
    made = calls.makings.scalars.get(id(loss))
    if made is not None and fits(list(made.arguments.values())[:2]):
        with suppress(Unwritten):
            report.job["loss"] = calls.written(replace(made, arguments={})).name
            return
    report.fail("the loss is no function of the network's outputs and the batch's targets alone", TASK)


def _check_input(report: Report, step: Step, network: nn.Module) -> None:
    called = step.calls.get(id(network))
    given: tuple[Any, ...] = called[1] if called is not None else ()
    if len(given) == 1 and _is(step.batch, 0, given[0]):
        return
    if len(given) == 1 and _is(step.batch, 0, step.losses.source(given[0])[0]):
        forms = ", ".join(change.method for change in step.losses.source(given[0])[1])
        report.fail(f"the network is given the batch's inputs after {forms}()", "do that in the network's forward()")
    else:
        report.fail("the network is not given the batch's inputs alone", TASK)


def _is_output(step: Step, network: nn.Module, tensor: Any) -> bool:
    """Whether a tensor is what the network gave, or a module that only wraps it."""
    whole = [called for called in step.calls.values() if called[0] is network or network in called[0].children()]
    return any(given is tensor for _, _, given in whole)


def _is(batch: Any, place: int, tensor: Any) -> bool:
    return isinstance(batch, (tuple, list)) and len(batch) > place and batch[place] is tensor


def _given(call: LossCall) -> dict[str, Any]:
    """What a loss is given beside outputs and targets, as far as it is not the default."""
    signature = inspect.signature(getattr(functional, call.name))
    defaults = {name: each.default for name, each in signature.parameters.items()}
    return {name: value for name, value in call.arguments.items() if value is not None and value != defaults.get(name)}


def _changed(name: str, changes: tuple[FormChange, ...], step: Step) -> str:
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
