"""What of a task can be refused before its model is built."""

from __future__ import annotations

from inspect import signature

from trainers.task.own_state import OwnState
from trainers.task.parts import check_parted
from trainers.task.step_options import StepOptions
from trainers.task.task import Task


def needed_by(task: object) -> tuple[str, ...]:
    """Return the names of the methods that a task must have beside `model` and `dataset`."""
    return ("optimizers", "step") if hasattr(task, "step") or hasattr(task, "optimizers") else ("optimizer",)


_CALLED_WITH = {
    "model": (),
    "dataset": ("train",),
    "optimizer": ("model",),
    "scheduler": ("optimizer",),
    "loss": ("model", "batch"),
    "metrics": ("model", "batch"),
    "optimizers": ("model",),
    "schedulers": ("optimizers",),
    "step": ("model", "batch"),
    "before_step": ("model",),
    "after_step": ("model",),
    "collate": ("samples",),
    "state": (),
    "load_state": ("state",),
}
"""What each method of a task is given."""


def check_task(task: Task) -> None:
    """Raise ValueError, which names what is wrong and the mend, if a task cannot be trained as it is written."""
    wrong = [told for name, given in _CALLED_WITH.items() if (told := _miscalled(task, name, given))]
    if wrong:
        raise ValueError("; ".join(wrong))
    StepOptions.of(task)
    OwnState(task)
    check_parted(task)


def _miscalled(task: object, name: str, given: tuple[str, ...]) -> str:
    """Say that a method cannot take what it is given; "" if it can, or if there is none."""
    method = getattr(task, name, None)
    if not callable(method):
        return ""
    try:
        taken = signature(method)
    except (TypeError, ValueError):  # some builtins tell none
        return ""
    try:
        taken.bind(*given)
    except TypeError:
        wanted = ", ".join(("self", *given))
        return f"{name} is called as {name}({', '.join(given)}), and takes {taken}; write `def {name}({wanted})`"
    return ""
