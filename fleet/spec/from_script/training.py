"""How a script trains: its optimizer, its precision, what it does to gradients, its seed and its epochs."""

from __future__ import annotations

from dataclasses import replace

import torch

from fleet.spec.from_script.calls import Calls, Unwritten
from fleet.spec.from_script.report import TASK, Report
from fleet.spec.from_script.watch import Step, Watch


def read_optimizer(report: Report, calls: Calls, watch: Watch, step: Step) -> None:
    """Write the optimizer down."""
    optimizer = step.optimizer
    if watch.others:
        report.fail(f"several optimizers step, {_name(optimizer)} and {_name(watch.others[0])}", TASK)
    made = calls.makings.constructor(optimizer)
    if made is None:
        report.fail(f"it is unknown how {_name(optimizer)} was made", "name its class where it is made")
        return
    if len(optimizer.param_groups) > 1:
        report.fail(f"{_name(optimizer)} has {len(optimizer.param_groups)} groups of parameters", TASK)
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
