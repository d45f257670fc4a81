"""What of a task can be refused before its model is built."""

from __future__ import annotations

from trainers.task.own_state import OwnState
from trainers.task.parts import check_parted
from trainers.task.step_options import StepOptions
from trainers.task.task import Task


def needed_by(task: object) -> tuple[str, ...]:
    """Return the names of the methods that a task must have beside `model` and `dataset`."""
    return ("optimizers", "step") if hasattr(task, "step") or hasattr(task, "optimizers") else ("optimizer",)


def check_task(task: Task) -> None:
    """Raise ValueError, which names what is wrong and the mend, if a task cannot be trained as it is written."""
    StepOptions.of(task)
    OwnState(task)
    check_parted(task)
