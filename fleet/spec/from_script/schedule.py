"""How a script's learning rate changes, each step or each epoch."""

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
    """Write the schedule of the learning rate down, and whether it is stepped each epoch."""
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
    each_step = id(schedule) in watch.stepped_schedules or steps_of_epoch(step) == 1
    try:
        report.job["schedule"] = _written(report, calls, schedule) | ({} if each_step else {"each": "epoch"})
    except Unwritten as problem:
        mend = "give it numbers, or functions that are defined by name at the level of a module"
        report.fail(f"{type(schedule).__name__} cannot be written down: it has {problem}", mend)


def _written(report: Report, calls: Calls, schedule: Any) -> dict[str, Any]:
    """The schedule by name with its arguments, or a function among the parts that makes it."""
    made = calls.makings.constructor(schedule)
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


def _schedule_text(calls: Calls, made: Making) -> str:
    given = _without_optimizer(changed_arguments(made))
    words = ["optimizer", *(f"{name}={calls.text(value)}" for name, value in given.items())]
    module, name = calls.address(made)
    calls.imports |= {"torch", module}
    return f"{module}.{name}({', '.join(words)})"


def _without_optimizer(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name != "optimizer"}
