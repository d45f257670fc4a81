"""Whether a trained network can be trained further, as if its run had been longer from the start."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fleet.journal.directory import RunDirectory
from fleet.journal.whole_files import Extension, read_extensions
from fleet.models.errors import ModelsError
from fleet.models.members import Member, read_members
from fleet.spec import Job
from fleet.spec.run_length import follows_run
from fleet.workers.runtime import stop_of
from preprocess.files.reading import read_json
from trainers import Checkpoint, converged, latest_good


def extension_of(
    directory: Path, name: str, epochs: int, only_epochs: bool, tell: Callable[[str], object] = lambda text: None
) -> Extension:
    """Return how a job is extended to so many epochs.

    Args:
        only_epochs: its target and its patience count no more.
        tell: is told what a person should know.

    Raises:
        ModelsError: it cannot be; the text says why and the mend.
        SpecError: the run's spec cannot be read.
    """
    member, known = read_members(directory).of(name), _known(directory).get(name)
    before = known.before if known is not None else member.job.stop.model_dump(mode="json")
    asked = Extension(epochs, only_epochs, before)
    if known == asked:
        return asked  # the same command again: the run goes on
    _check_rehearsal(directory)
    if member.status == "failed":
        raise ModelsError(f"job {name} has failed; mend what it fails at, and give `fleet run` its spec again")
    saved, _ = latest_good(member.folder)
    done = max(saved.epoch if saved is not None else 0, member.job.stop.epochs)
    if saved is not None and not only_epochs:
        _check_ending(member, saved, epochs)
    if epochs <= (saved.epoch if saved is not None and only_epochs else done):
        raise ModelsError(f"job {name} trains {done} epochs already; give --epochs more than that")
    if saved is not None:
        _check_schedules(member.job, saved, epochs, tell)
    return asked


def _known(directory: Path) -> dict[str, Extension]:
    try:
        return read_extensions(directory)
    except ValueError as error:
        raise ModelsError(str(error)) from error


def _check_rehearsal(directory: Path) -> None:
    try:
        told = read_json(RunDirectory(directory).spec)
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ModelsError(f"{directory}/spec.json cannot be read: {why}; give `fleet run` its spec") from error
    if isinstance(told, dict) and told.get("rehearsal"):
        raise ModelsError(f"{directory} holds a rehearsal, whose networks are not trained; extend one of a real run")


def _check_ending(member: Member, saved: Checkpoint, epochs: int) -> None:
    """Raise ModelsError if a longer run would have ended where this one did."""
    try:
        longer = replace(stop_of(member.job, member.better), epochs=max(epochs, saved.epoch + 1))
    except ValueError as error:  # an older version wrote the journal
        raise ModelsError(f"job {member.name}: {error}, in its spec; or add --only-epochs") from error
    why = converged(saved.history, longer)
    if why is not None:
        ends = {"target": "its target was reached", "patience": "its patience was over"}[why]
        raise ModelsError(
            f"job {member.name} ended after epoch {saved.epoch}, as {ends}; a longer run ends there, too. "
            "Add --only-epochs to train on whatever they say"
        )


def _check_schedules(job: Job, saved: Checkpoint, epochs: int, tell: Callable[[str], object]) -> None:
    """Raise ModelsError if a longer run would have had another learning-rate schedule."""
    if what := follows_run(job):
        raise ModelsError(
            f"job {job.name}: {what}, which had {job.stop.epochs} epochs: a longer run would have had other learning "
            f"rates from its first step on, and what is trained stays as it is. Begin a job with stop: {{epochs: "
            f"{epochs}}}, or give a job a schedule without an end, such as StepLR"
        )
    states = [update["schedule"] for update in saved.updates]
    by_epoch = job.schedule is not None and job.schedule.each == "epoch"
    trained, wanted = saved.epoch, epochs
    if not by_epoch:
        an_epoch = saved.steps // saved.epoch if saved.epoch else 0
        trained, wanted = saved.steps, saved.steps + (epochs - saved.epoch) * an_epoch
    for state in states:
        try:
            found = fixed_length(state, trained, wanted)
        except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
            text = f"job {job.name}: its newest checkpoint holds a schedule that cannot be so ({error})"
            raise ModelsError(f"{text}; extend a run whose checkpoints are sound") from error
        if found is not None:
            raise ModelsError(_refusal(job, found, epochs, f"{wanted} epochs" if by_epoch else f"{wanted} steps"))
    if any(map(knows_no_length, states)):
        tell(f"job {job.name} has a schedule of functions; if it is made for the length of the run, extend it not")


def _refusal(job: Job, found: FixedLength, epochs: int, wanted: str) -> str:
    name = job.schedule.name if job.schedule is not None and found.name == "the schedule" else found.name
    return (
        f"job {job.name}: {name} with {found.key} = {found.steps} has a fixed length, and {epochs} epochs take "
        f"{wanted}: a longer run would have had another schedule from its first step on. Begin a job with "
        f"{found.key} for {epochs} epochs and stop: {{epochs: {epochs}}}, or use a schedule without an end, such as "
        "StepLR"
    )


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
