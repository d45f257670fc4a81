"""How a script's learning rate changes, said in steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch.optim import lr_scheduler

from fleet.spec.from_script.calls import Calls, Unwritten, changed_arguments
from fleet.spec.from_script.makings import Making
from fleet.spec.from_script.report import Report
from fleet.spec.from_script.samples import steps_of_epoch
from fleet.spec.from_script.watch import Step, Watch


def read_schedule(report: Report, calls: Calls, watch: Watch, step: Step) -> None:
    """Write the schedule of the learning rate down, in steps."""
    kind = (lr_scheduler.LRScheduler, lr_scheduler.ReduceLROnPlateau)
    found = [each for each in watch.makings.things(kind) if getattr(each, "optimizer", None) is step.optimizer]
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
    each_step = id(schedule) in watch.stepped_schedules and steps_of_epoch(step) > 1
    steps = 1 if each_step else steps_of_epoch(step)
    try:
        _schedule(report, calls, schedule, step, steps)
    except Unwritten as problem:
        mend = "give it numbers, or functions that are defined by name at the level of a module"
        report.fail(f"{type(schedule).__name__} cannot be written down: it has {problem}", mend)


def _schedule(report: Report, calls: Calls, schedule: Any, step: Step, steps: int) -> None:
    made = calls.makings.constructor(schedule)
    if made is None:
        raise Unwritten("nobody saw how it was made")
    plainly = replace(made, arguments=_without_optimizer(made.arguments))
    name = type(schedule).__name__ if type(schedule) is getattr(lr_scheduler, type(schedule).__name__, None) else ""
    if steps == 1:
        _by_step(report, calls, plainly, name)
    elif name in ("StepLR", "MultiStepLR", "ExponentialLR"):
        arguments = calls.written(plainly).arguments
        report.job["schedule"] = _in_steps(name, dict(arguments), steps)
    else:
        report.functions["schedule"] = _by_epoch(calls, schedule, step, steps)
        report.job["schedule"] = "PARTS:schedule"


def _by_step(report: Report, calls: Calls, made: Making, name: str) -> None:
    try:
        written = calls.written(made)
        report.job["schedule"] = {"name": name or written.name, "arguments": dict(written.arguments)}
    except Unwritten:
        report.functions["schedule"] = f"return {_schedule_text(calls, made, 'optimizer')}"
        report.job["schedule"] = "PARTS:schedule"


def _schedule_text(calls: Calls, made: Making, optimizer: str) -> str:
    given = _without_optimizer(changed_arguments(made))
    words = [optimizer, *(f"{name}={calls.text(value)}" for name, value in given.items())]
    module, name = calls.address(made)
    calls.imports |= {"torch", module}
    return f"{module}.{name}({', '.join(words)})"


def _in_steps(name: str, arguments: dict[str, Any], steps: int) -> dict[str, Any]:
    """A schedule by epochs as one by steps, with the same rates to the last bit."""
    if name == "ExponentialLR":
        return {"name": "StepLR", "arguments": {"step_size": steps, "gamma": arguments["gamma"]}}
    if name == "StepLR":
        return {"name": name, "arguments": arguments | {"step_size": arguments["step_size"] * steps}}
    milestones = [each * steps for each in arguments["milestones"]]
    return {"name": name, "arguments": arguments | {"milestones": milestones}}


def _by_epoch(calls: Calls, schedule: Any, step: Step, steps: int) -> str:
    """A function's body that gives a schedule its value of each epoch for all of the epoch's steps."""
    made = calls.makings.constructor(schedule)
    assert made is not None
    rate = step.optimizer.defaults["lr"]
    return "\n".join((
        f"trial = torch.optim.SGD([torch.nn.Parameter(torch.zeros(()))], lr={float(rate)!r})",
        f"by_epoch = {_schedule_text(calls, made, 'trial')}",
        "factors = []",
        f"for _ in range({step.epochs or 10}):",
        f'    factors.append(trial.param_groups[0]["lr"] / {float(rate)!r})',
        "    trial.step()",
        "    by_epoch.step()",
        f"last, steps = len(factors) - 1, {steps}  # of an epoch",
        "return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: factors[min(step // steps, last)])",
    ))  # fmt: skip


def _without_optimizer(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name != "optimizer"}
