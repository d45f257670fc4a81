"""How long a job trains in the unit that its learning-rate schedule counts, and whether the schedule is as long."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fleet.spec.job import Job
from fleet.spec.optimizer import Schedule, WarmUp
from fleet.spec.references import ReferenceProblem, resolve

RUN = "run"
"""What stands in a schedule's arguments for the length of the run."""
_CYCLE, _COSINE, _FALLING = "OneCycleLR", "CosineAnnealingLR", "PolynomialLR"
_GONE = 1e-4
"""A rate that has fallen to so small a part of its beginning trains hardly anything any more."""
_UNKNOWN_STEPS = 1000
"""Steps of an epoch that stand in for those of data that nobody has opened, where a schedule is built to be checked."""


@dataclass(frozen=True)
class Length:
    """How long a job trains, in the unit that its schedule counts.

    Attributes:
        unit: "step" or "epoch".
        epochs: of the run.
        steps: of an epoch; None: nobody knows yet.
        warm_up: how many units the warm-up takes.
    """

    unit: str
    epochs: int
    steps: int | None
    warm_up: int

    @classmethod
    def of(cls, job: Job, samples: int | None, batch_size: int | None = None) -> Length:
        """The length of a job that trains on so many samples an epoch; None: nobody knows how many.

        Args:
            batch_size: of a virtual worker, where the job's own is another than it has now.
        """
        unit, size = "step" if job.schedule is None else job.schedule.each, batch_size or job.batch_size
        steps = _steps_of_epoch(job, samples, size) if samples else None
        whole = cls(unit, job.stop.epochs, steps, 0)
        return whole if job.warm_up is None else cls(unit, job.stop.epochs, steps, whole.warmed_up(job.warm_up))

    def warmed_up(self, asked: WarmUp) -> int:
        """Return how many units a warm-up takes, one at least."""
        if asked.steps is not None:
            return asked.steps
        if asked.fraction is not None:
            return max(1, round(asked.fraction * self.units))
        return max(1, round((asked.epochs or 0.0) * (self.units / self.epochs)))

    @property
    def units(self) -> int:
        """Steps or epochs of the whole run."""
        return self.epochs if self.unit == "epoch" else self.epochs * (self.steps or _UNKNOWN_STEPS)

    @property
    def left(self) -> int:
        """Those that are left for the schedule after the warm-up."""
        return max(1, self.units - self.warm_up)

    @property
    def is_known(self) -> bool:
        """Whether it is the run's, and not a stand-in."""
        return self.unit == "epoch" or self.steps is not None

    def __str__(self) -> str:
        told = f"{self.left} {self.unit}s"
        if self.unit == "step":
            told += f" ({self.epochs} epochs of {self.steps} steps"
            return f"{told}, {self.warm_up} of them the warm-up's)" if self.warm_up else f"{told})"
        return f"{told} (after {self.warm_up} of warm-up)" if self.warm_up else told


def _steps_of_epoch(job: Job, samples: int, batch_size: int) -> int:
    from trainers.task.batch_plan import BatchPlan  # here, so that reading a spec loads no NumPy

    return BatchPlan(samples, job.virtual_workers, batch_size, drops_last(job)).steps_per_epoch


def with_run(arguments: Any, length: int) -> Any:
    """The arguments with the length of the run in place of the word for it, in lists and mappings too."""
    if isinstance(arguments, Mapping):
        return {key: with_run(value, length) for key, value in arguments.items()}
    if isinstance(arguments, (list, tuple)):
        return [with_run(value, length) for value in arguments]
    return length if arguments == RUN else arguments


def follows_run(job: Job) -> str:
    """Return what of a job's learning rate is as long as the run makes it, in words; "" if nothing is."""
    asked = {} if job.schedule is None else dict(job.schedule.arguments)
    if with_run(asked, 0) != with_run(asked, 1):
        return f"its schedule is as long as the run (`{RUN}`)"
    return "its warm_up is a fraction of the run" if job.warm_up is not None and job.warm_up.fraction else ""


def too_short(job: Job, length: Length) -> Iterator[tuple[tuple[str, ...], Any, str, str]]:
    """(path in the job, value, rule, mend) of what raises before the job has trained to its end."""
    total = _total(job.schedule, length) if length.is_known else None
    if total is None or job.schedule is None:
        return
    key, steps = total
    if job.schedule.name == _CYCLE and steps < length.left:
        rule = f"{_CYCLE} raises an error after its {steps} {length.unit}s, and the run has {length}"
        mend = "write total_steps: run, and leave epochs and steps_per_epoch out"
        yield ("schedule", "arguments", key), job.schedule.arguments[key], rule, mend


def length_misfits(job: Job, length: Length) -> Iterator[str]:
    """Sentences on a schedule, or a warm-up, whose length is not the run's."""
    if not length.is_known:
        return
    if length.warm_up >= length.units:
        yield (
            f"the warm-up takes {length.warm_up} {length.unit}s, and the whole run {length.units}: the learning rate "
            "never comes to its own value; write a shorter one, such as warm_up: {fraction: 0.05}"
        )
        return
    if job.schedule is None:
        return
    total = _total(job.schedule, length)
    name = job.schedule.name
    if total is not None:
        key, steps = total
        mend = _mend(job.schedule, length, steps)
        own, run = f"{name} with {key}: {steps} counts {length.unit}s", f"the run has {length}"
        if steps + 1 < length.left:
            yield f"{own}, and {run}: {_AFTER[name].format(steps=steps, unit=length.unit)}; {mend}"
        elif steps > length.left + 1:
            yield f"{own}, and {run}: the learning rate never comes to its end; {mend}"
        return
    gone = _gone_after(job.schedule)
    if gone is not None and gone < length.left / 2:
        yield (
            f"{name} counts {length.unit}s, and the run has {length}: from {length.unit} {gone} on the learning rate "
            f"is less than {_GONE:g} of what it was; {_mend(job.schedule, length, gone)}"
        )


_AFTER = {
    _COSINE: "the learning rate comes back up after {steps} {unit}s, and down again",
    _FALLING: "the learning rate is 0 from {unit} {steps} on",
    _CYCLE: "it raises an error after {steps} {unit}s",
}
_TOTALS = {_COSINE: "T_max", _FALLING: "total_iters", _CYCLE: "total_steps"}


def _mend(schedule: Schedule, length: Length, said: int) -> str:
    """Return what to write where a schedule says so many units."""
    may_mean_epochs = length.unit == "step" and (length.steps or 0) > 1 and said <= 2 * length.epochs
    by_epoch = "each: epoch, if it is meant to count epochs" if may_mean_epochs else ""
    run = f"{_TOTALS[schedule.name]}: run" if schedule.name in _TOTALS else ""
    return "write " + (" or ".join(filter(None, (run, by_epoch))) or "numbers for so long a run")


def _total(schedule: Schedule | None, length: Length) -> tuple[str, int] | None:
    """The argument that says how long a schedule is, and how many units it says; None: none does."""
    if schedule is None or schedule.name not in _TOTALS:
        return None
    arguments = with_run(schedule.arguments, length.left)
    key = _TOTALS[schedule.name]
    if schedule.name == _CYCLE and arguments.get(key) is None:
        parts = [arguments.get(part) for part in ("epochs", "steps_per_epoch")]
        return ("epochs", parts[0] * parts[1]) if all(type(part) is int for part in parts) else None
    steps = arguments.get(key, 5 if schedule.name == _FALLING else None)
    return (key, steps) if type(steps) is int else None


def _gone_after(schedule: Schedule) -> int | None:
    """After how many units a schedule that multiplies the rate again and again has left hardly anything of it."""
    every = {"ExponentialLR": 1, "StepLR": schedule.arguments.get("step_size")}.get(schedule.name)
    gamma = schedule.arguments.get("gamma", 0.1)
    if type(every) is not int or not isinstance(gamma, (int, float)) or not 0 < gamma < 1:
        return None
    return every * math.ceil(math.log(_GONE) / math.log(gamma))


def drops_last(job: Job) -> bool:
    """Whether each virtual worker does, where that batch has fewer samples: as the job says, else its task class."""
    if job.drop_last is not None or job.task is None or job.batch is not None:
        return bool(job.drop_last)
    try:
        return getattr(resolve(job.task.name), "drop_last", False) is True
    except ReferenceProblem:  # told where the spec is checked
        return False
