"""Which network a script trains, and the call that makes it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from fleet.spec.from_script.calls import Calls, Unwritten, Written
from fleet.spec.from_script.report import Report
from fleet.spec.from_script.watch import Step, Watch
from fleet.spec.references import ReferenceProblem, resolve

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
        if _makes(each, calls, network):
            report.job["model"] = each.to_spec()
            break
    else:
        _as_text(report, calls, network)
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


def _makes(written: Written, calls: Calls, network: nn.Module) -> bool:
    """Whether a call gives a network with this one's names and shapes."""
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


def _as_text(report: Report, calls: Calls, network: nn.Module) -> None:
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
