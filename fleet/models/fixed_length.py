"""Learning-rate schedules that are made for a number of steps: a longer run would have had others from its start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_OWN_KEYS = ("num_training_steps", "training_steps", "total_steps", "max_steps", "max_epochs", "total_epochs")
"""What schedules that are not torch's call the length of a run."""


@dataclass(frozen=True)
class FixedLength:
    """A schedule that is over after so many steps.

    Attributes:
        name: the schedule's.
        key: what says how long it is.
        steps: the step after which it is over.
    """

    name: str
    key: str
    steps: int


def fixed_length(state: Mapping[str, Any] | None, trained: int, wanted: int) -> FixedLength | None:
    """Return the first schedule that is over before training is; None: all go on.

    A cosine that has come back to where it began within the steps so far counts as one without an end.

    Args:
        state: what a schedule's `state_dict()` gave; None: there is no schedule.
        trained: steps done so far.
        wanted: steps of the longer training.
    """
    found = (each for each in _lengths(state or {}, 0) if _ends(each, trained, wanted))
    return next(found, None)


def _lengths(state: Mapping[str, Any], begin: int) -> Iterator[FixedLength]:
    """The schedules of a fixed length in a state, those inside of others too; `begin`: the step at which it begins."""
    if "T_max" in state:
        yield FixedLength("CosineAnnealingLR", "T_max", begin + int(state["T_max"]))
    elif "_schedule_phases" in state:
        yield FixedLength("OneCycleLR", "total_steps", begin + int(state["total_steps"]))
    elif "power" in state and "total_iters" in state:
        yield FixedLength("PolynomialLR", "total_iters", begin + int(state["total_iters"]))
    else:
        own = [key for key in _OWN_KEYS if isinstance(state.get(key), int)]
        yield from (FixedLength("the schedule", key, begin + state[key]) for key in own[:1])
    milestones = [0, *state.get("_milestones", [])]
    for place, inner in enumerate(state.get("_schedulers", [])):
        yield from _lengths(inner, begin + (milestones[place] if place < len(milestones) else 0))


def _ends(schedule: FixedLength, trained: int, wanted: int) -> bool:
    if schedule.key == "T_max":
        return trained < 2 * schedule.steps and schedule.steps < wanted
    if schedule.key in ("max_epochs", "total_epochs"):
        return True
    return schedule.steps < wanted


def knows_no_length(state: Mapping[str, Any] | None) -> bool:
    """Whether a schedule is a function, of which nobody can see whether it knows how long the run is."""
    return state is not None and ("lr_lambdas" in state or any(map(knows_no_length, state.get("_schedulers", []))))
