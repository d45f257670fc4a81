"""Checks of a job that take imports and a model: its optimizer, schedule, loss, metrics and task."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import nn, optim

from fleet.spec.job import Job
from fleet.spec.metrics import NamedMetric, named_metric
from fleet.spec.named_parts import (
    OTHERS,
    Makers,
    built_optimizer,
    loss_arguments,
    named_loss,
    named_optimizer,
    schedule_of,
    shown_names,
)
from fleet.spec.optimizer import Optimizer, patterns, unmatched
from fleet.spec.problem import KeyPath, nearest
from fleet.spec.references import Misfit, ReferenceProblem, misfits, refused, resolve
from fleet.spec.run_length import Length, with_run
from fleet.spec.values import Named
from trainers.repeatable.process_settings import settings_kept, spare_compiler, without_memory
from trainers.repeatable.shared_state import unfit_modules
from trainers.task.parts import rules_of
from trainers.task.task_options import check_task, needed_by


@dataclass(frozen=True)
class Fault:
    """A misfit, where in the job it is, and what stands there."""

    path: KeyPath
    value: Any
    misfit: Misfit


def argument_faults(asked: Optimizer, makers: Makers) -> Iterator[Fault]:
    """The arguments that do not suit the optimizers' signatures."""
    places: list[tuple[KeyPath, str | None, Mapping[str, Any]]] = [(("optimizer",), asked.name, asked.arguments)]
    places += [(("optimizer", "groups", n), each.name, each.arguments) for n, each in enumerate(asked.groups)]
    for path, name, arguments in places:
        if name is None:
            continue
        by_weights = {key: value for key, value in arguments.items() if isinstance(value, Mapping)}
        for key, value in by_weights.items():
            yield Fault(path + ("arguments", key), value, _of_all(name, key, value))
        plain = {key: value for key, value in arguments.items() if key not in by_weights}
        for misfit in misfits(makers[name], name, plain, 1):
            at, value = misfit.place(plain)
            yield Fault(path + at, value, misfit)


def _of_all(name: str, key: str, value: Mapping[str, Any]) -> Misfit:
    groups = ", ".join(f'{{match: ["*{part}"], {key}: {one}}}' for part, one in value.items())
    rule = f"an argument of {name} holds for all parameters, and here stands one for each of {', '.join(value)}"
    return Misfit(key, rule, mend=f"take it away, and add groups: [{groups}] beside the arguments")


def group_faults(asked: Optimizer, names: Sequence[str]) -> Iterator[Fault]:
    """The patterns that are no parameter's, and the parameters that no optimizer has."""
    for number, pattern in unmatched(asked, names):
        ends = {name.rpartition(".")[2]: f"*.{name.rpartition('.')[2]}" for name in names}
        close = nearest(pattern, names) or ends.get(nearest(pattern.strip("*."), ends) or "")
        mend = f"the network has {shown_names(names)}"
        path: KeyPath = ("optimizer", "groups", number, "match")
        rule = f"no parameter of the network has a name like {pattern!r}"
        yield Fault(path, pattern, Misfit(None, rule, close, mend))
    rest = asked.members(names)[-1]
    if rest and asked.name is None:
        rule = f"no group has {shown_names(rest)}, which nothing would train"
        matched = [list(group.match) for group in asked.groups]
        yield Fault(("optimizer", "groups"), matched, Misfit(None, rule, mend=OTHERS))


def building_faults(asked: Optimizer, makers: Makers, named: Sequence[tuple[str, nn.Parameter]]) -> Iterator[Fault]:
    """Yield what building it raises, and options that no optimizer has."""
    try:
        made = built_optimizer(asked, makers, named)
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        yield Fault(("optimizer", "arguments"), dict(asked.arguments), _refused(asked, makers, named, error))
        return
    if not isinstance(made, optim.Optimizer):
        rule = f"{asked.name} gives a {type(made).__name__}, not a torch.optim.Optimizer"
        yield Fault(("optimizer", "name"), asked.name, Misfit(None, rule, mend="name a class of Optimizer"))
        return
    for number, group in enumerate(asked.groups):
        name = group.name or asked.name
        assert name is not None
        known = sorted(_defaults(makers[name], named))
        for key, value in group.options.items():
            if known and key not in known:
                rule = f"{name} has no option {key!r}; it has {', '.join(known)}"
                close = nearest(key, known)
                path: KeyPath = ("optimizer", "groups", number, key)
                mend = f"rename it to {close}" if close else "take it away"
                yield Fault(path, value, Misfit(None, rule, close, mend))


def _defaults(maker: Any, named: Sequence[tuple[str, nn.Parameter]]) -> Mapping[str, Any]:
    """Return what an optimizer's groups may say, as far as it can be made without arguments."""
    for parameter in ([one] for _, one in named):
        try:
            return dict(maker(parameter).defaults)
        except Exception:  # it needs arguments, or other parameters
            continue
    return {}


def _refused(
    asked: Optimizer, makers: Makers, named: Sequence[tuple[str, nn.Parameter]], error: BaseException
) -> Misfit:
    name = asked.name or ", ".join(asked.names)
    flat = [key for key, parameter in named if parameter.dim() != 2]
    if "only supports 2D" in str(error) and flat:
        matched = ", ".join(f'"{pattern}"' for pattern in patterns(flat, [key for key, _ in named]))
        rule = f"Muon takes weights of two dimensions alone, and not {shown_names(flat)}"
        mend = f'write optimizer: {{groups: [{{match: [{matched}], name: AdamW}}, {{match: ["*"], name: Muon}}]}}'
        return Misfit(None, rule, mend=mend)
    return refused(makers[asked.name or asked.names[0]], name, error)


@dataclass
class Inspection:
    """Imports and builds what a job names, and keeps what went wrong. Weights take no memory while it does."""

    faults: list[Fault] = field(default_factory=list)

    def note(self, path: KeyPath, value: Any, rule: str, suggestion: str | None = None, mend: str = "") -> None:
        """Keep a fault that is not one of arguments."""
        self.faults.append(Fault(path, value, Misfit(None, rule, suggestion, mend)))

    def job(self, job: Job) -> None:
        """Look at everything that the job names."""
        spare_compiler()
        with settings_kept() as before:
            if job.task is not None:
                self.task(job.task, needs_data=job.data is None)
            else:
                self.components(job)
            changed = before.relied_on()
        key, named = ("task", job.task) if job.task is not None else ("model", job.model)
        for setting in changed:
            rule = f"its code sets {setting}, for all networks of a process"
            mend = "take that away, and say it where tensors are made: dtype=, device=, model.double()"
            self.note((key, "name"), str(named), rule, mend=mend)

    def components(self, job: Job) -> None:
        """Look at a job of a model, an optimizer, a schedule, a loss and metrics."""
        model = self.built("model", job.model, resolve, nn.Module)
        shadows = _shadows(model) if model is not None else []
        parameters = [shadow for _, shadow in shadows]
        if model is not None and not parameters:
            rule, mend = "the model has no parameters to train", "give it a layer that learns"
            self.note(("model",), str(job.model), rule, mend=mend)
        if model is not None and job.model is not None:
            self.modules(("model", "name"), job.model.name, model)
        parameters = parameters or [nn.Parameter(torch.zeros(1, 1))]
        optimizer = self.optimizer(job.optimizer, shadows or [("weight", parameters[0])], model is not None)
        schedule = job.schedule
        if schedule is not None:
            length = Length.of(job, None).left
            schedule = schedule.model_copy(update={"arguments": with_run(schedule.arguments, length)})
        self.built("schedule", schedule, schedule_of, object, optimizer or torch.optim.SGD(parameters, lr=0.1))
        if job.loss is not None:
            self.loss(job.loss)
        for number, entry in enumerate(job.metrics):
            self.metric(number, entry)

    def metric(self, number: int, entry: str | NamedMetric) -> None:
        """Look at a metric."""
        try:
            named_metric(entry)
        except ReferenceProblem as error:
            value = entry if isinstance(entry, str) else entry.model_dump(exclude_defaults=True)
            self.note(("metrics", number), value, error.rule, error.suggestion, error.mend)

    def optimizer(
        self, asked: Optimizer | None, named: Sequence[tuple[str, nn.Parameter]], has_model: bool
    ) -> torch.optim.Optimizer | None:
        """Look at an optimizer over these parameters; return it, or None. has_model: they are the network's own."""
        if asked is None:
            return None
        places = [("name",), *(("groups", number, "name") for number in range(len(asked.groups)))]
        names = [asked.name, *(group.name for group in asked.groups)]
        makers = {
            name: self.found(("optimizer", *place), name, named_optimizer)
            for place, name in zip(places, names)
            if name is not None
        }
        if None in makers.values():
            return None
        faults = list(argument_faults(asked, makers))
        if has_model:
            faults += group_faults(asked, [name for name, _ in named])
            faults += [] if faults else building_faults(asked, makers, named)
        self.faults += faults
        return None if faults or not has_model else built_optimizer(asked, makers, named)

    def task(self, named: Named, needs_data: bool) -> None:
        """Look at a task class: its methods, its model and its optimizer."""
        task = self.built("task", named, resolve, object)
        if task is None:
            return
        needed = ("model", *needed_by(task), *(["dataset"] if needs_data else []))
        missing = [name for name in needed if not callable(getattr(task, name, None))]
        for name in missing:
            close = nearest(name, [other for other in dir(task) if not other.startswith("_")])
            mend = f"add `def {name}(self, ...)` to it" if close is None else f"rename {close} to {name}"
            self.note(("task", "name"), named.name, f"the task has no method {name}", close, mend)
        if missing:
            return
        if hasattr(task, "collate") and not needs_data:
            rule = "the task has collate(samples), and a section of data says itself how its samples become a batch"
            mend = "leave data out, and let the task's dataset(train) give them; or write collate: in the section"
            self.note(("data",), named.name, rule, mend=mend)
        if hasattr(task, "sample_weights") and not needs_data:
            rule = "the task has sample_weights(dataset), and a section of data says itself how its samples are drawn"
            mend = "leave data out, and let the task's dataset(train) give them; or write order: {weights: ...} there"
            self.note(("data",), named.name, rule, mend=mend)
        try:
            check_task(task)
        except ValueError as error:
            self.note(("task", "name"), named.name, f"the task's {error}")
        try:
            model = without_memory(lambda: self._trained(task))
            self.modules(("task", "name"), named.name, model)
        except (Exception, SystemExit) as error:  # the user's code may raise anything
            misfit = refused(task.model, f"{named.name}, building its model and optimizer,", error)
            self.faults.append(Fault(("task", "name"), named.name, replace(misfit, mend="mend the task")))

    @staticmethod
    def _trained(task: Any) -> nn.Module:
        """The task's model, of which its optimizers can be made."""
        model: nn.Module = task.model()
        rules_of(task, model)
        return model

    def modules(self, path: KeyPath, value: str, model: nn.Module) -> None:
        """Look for modules that cannot be trained."""
        for unfit in unfit_modules(model):
            self.note(path, value, unfit.rule, mend=unfit.mend[0].lower() + unfit.mend[1:])

    def loss(self, named: Named) -> None:
        """Look at a loss: a function that gets (outputs, targets), or a class built with the arguments alone."""
        found = self.found(("loss", "name"), named.name, named_loss)
        made = isinstance(found, type)
        if found is not None and self.fits("loss", named, found, positional=0 if made else 2) and made:
            self.called("loss", named, lambda: found(**loss_arguments(found, named.arguments)), found, object)

    def built(self, key: str, named: Named | None, look_up: Callable[[str], Any], kind: type, *first: Any) -> Any:
        """Return what a name of the job builds with ``first`` and its arguments; None if nothing, or another kind."""
        found = self.found((key, "name"), named.name, look_up) if named is not None else None
        if named is None or found is None or not self.fits(key, named, found, positional=len(first)):
            return None
        return self.called(key, named, lambda: found(*first, **named.arguments), found, kind)

    def found(self, path: KeyPath, name: str, look_up: Callable[[str], Any]) -> Any:
        """Return what the name stands for, or None."""
        try:
            return look_up(name)
        except ReferenceProblem as error:
            self.note(path, name, error.rule, error.suggestion, error.mend)
            return None

    def fits(self, key: str, named: Named, found: Any, positional: int) -> bool:
        """Return whether the arguments suit the signature."""
        if not callable(found):
            rule = f"{named.name} is of type {type(found).__name__} and cannot be called"
            self.note((key, "name"), named.name, rule, mend="name a class or function")
            return False
        wrong = list(misfits(found, named.name, named.arguments, positional))
        for misfit in wrong:
            at, value = misfit.place(named.arguments)
            self.faults.append(Fault((key, *at), value, misfit))
        return not wrong

    def called(self, key: str, named: Named, call: Callable[[], Any], found: Any, kind: type) -> Any:
        """Return what the call gives, or None."""
        try:
            result = without_memory(call) if kind is nn.Module or key == "task" else call()
        except (Exception, SystemExit) as error:  # the user's code may raise anything
            self.faults.append(Fault((key, "arguments"), dict(named.arguments), refused(found, named.name, error)))
            return None
        if not isinstance(result, kind):
            rule = f"{named.name} gives a {type(result).__name__}, not a {kind.__module__}.{kind.__name__}"
            self.note((key, "name"), named.name, rule, mend=f"name a class of {kind.__name__}")
            return None
        return result


def _shadows(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Parameters of the model's names, shapes and dtypes, each with the memory of a single element."""
    lazy = torch.nn.parameter.UninitializedParameter
    shadows = []
    for name, weight in model.named_parameters():
        shape = (1, 1) if isinstance(weight, lazy) else tuple(weight.shape)
        one = torch.zeros((), dtype=weight.dtype)
        trains = one.is_floating_point() or one.is_complex()
        shadows.append((name, nn.Parameter(one.expand(shape), requires_grad=trains)))
    return shadows


@contextlib.contextmanager
def kept_random_state() -> Iterator[None]:
    """Leave the generators of Python, NumPy and torch as they were."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
