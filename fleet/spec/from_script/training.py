"""How a script trains: its optimizer, its precision, what it does to gradients, its seed and its epochs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from fleet.spec.from_script.calls import Calls, Unwritten, plain
from fleet.spec.from_script.report import TASK, Report
from fleet.spec.from_script.watch import Step, Watch
from fleet.spec.optimizer import patterns


def read_optimizer(report: Report, calls: Calls, watch: Watch, step: Step, network: nn.Module) -> None:
    """Write the optimizer down."""
    optimizer = step.optimizer
    if watch.others:
        report.fail(f"several optimizers step, {_name(optimizer)} and {_name(watch.others[0])}", TASK)
    made = calls.makings.constructor(optimizer)
    if made is None:
        report.fail(f"it is unknown how {_name(optimizer)} was made", "name its class where it is made")
        return
    arguments = {name: value for name, value in made.arguments.items() if name != "params"}
    try:
        written = calls.written(replace(made, arguments=arguments))
    except Unwritten as problem:
        report.fail(f"the arguments of {_name(optimizer)} cannot be written down: {problem}", "give it numbers")
        return
    name = _name(optimizer) if type(optimizer) is getattr(torch.optim, _name(optimizer), None) else written.name
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
        report.fail(f"the groups of {_name(optimizer)} have {problem}, which a spec cannot hold", TASK)
        return
    report.job["optimizer"] = {**report.job["optimizer"], "arguments": arguments | changed, "groups": groups}


def _options(group: Mapping[str, Any]) -> dict[str, Any]:
    """What a group says, before a schedule changed its rate."""
    told = {name: value for name, value in group.items() if name not in ("params", "initial_lr")}
    return told | ({"lr": group["initial_lr"]} if "initial_lr" in group else {})


def read_options(report: Report, watch: Watch, step: Step) -> None:
    """Write down what else changes a step: precision and clipping; and the seed and the epochs."""
    casts = [watch.makings.constructor(each) for each in watch.makings.things(torch.autocast)]
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


def _name(thing: object) -> str:
    return type(thing).__name__
