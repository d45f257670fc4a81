"""Doors for other people's code: a short name, one that an installed package gives, or `module:Name`.

What fleet has itself goes in by the same doors, which stand at the end of this file. Nothing is imported that nobody
names: a door knows where things are, and loads the one that is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from inspect import signature
from typing import Any

from fleet.spec.problem import nearest
from fleet.spec.references import Misfit, ReferenceProblem, misfits, refused, resolve


class BadPart(ValueError):
    """A part that somebody names and that cannot be made.

    Attributes:
        misfits: what is wrong with it.
    """

    def __init__(self, what: str, name: str, misfits: tuple[Misfit, ...]) -> None:
        self.misfits = misfits
        told = (
            f"{each.rule} ({'; '.join([*([f'nearest: {each.suggestion}'] if each.suggestion else []), each.mend])})"
            for each in misfits
        )
        super().__init__(f"{what} {name}: " + "; ".join(told))


@dataclass(frozen=True)
class Door:
    """One kind of part that others may write.

    Attributes:
        what: how messages call it.
        group: of entry points, in which an installed package names its own.
        base: `module:Name` of the class with the methods that a part needs.
        built_in: short name -> `module:Name` of what fleet has.
        inherits: whether a part must inherit from `base`; otherwise its methods suffice.
    """

    what: str
    group: str
    base: str
    built_in: Mapping[str, str]
    inherits: bool = False

    def refused(self, name: str) -> ReferenceProblem | None:
        """Why there is no part of that name, as far as that is known without an import; None: there may be one."""
        if name in self.built_in or ":" in name:
            return None
        installed = [point.name for point in entry_points(group=self.group)]
        if name in installed:
            return None
        known = [*self.built_in, *installed]
        return ReferenceProblem(
            f"{name!r} is not a {self.what}; there are {', '.join(known)}",
            nearest(name, known),
            "write one of these, or module:Name of your own",
        )

    def load(self, name: str) -> Any:
        """Import what a name stands for.

        Raises:
            BadPart: there is none, its module cannot be imported, or it does not inherit from the class that it must.
        """
        if self.built_in.get(name, "").startswith("fleet."):
            return _own(self.built_in[name])
        points = () if ":" in name else entry_points(group=self.group)
        installed = next((point.value for point in points if point.name == name), name)
        try:
            if (problem := self.refused(name)) is not None:
                raise problem
            found = resolve(self.built_in.get(name, installed))
        except ReferenceProblem as error:
            raise self._bad(name, Misfit(None, error.rule, error.suggestion, error.mend)) from None
        if self.inherits:
            if not (isinstance(found, type) and issubclass(found, _own(self.base))):
                mend = f"let it be a class that inherits from {self.base.replace(':', '.')}"
                raise self._bad(name, Misfit(None, f"{name} is not a {self.what}", None, mend))
            self._check_parts(name, found)
        return found

    def make(self, name: str, kind: Any, given: tuple[Any, ...], arguments: Mapping[str, Any]) -> Any:
        """Call a class that `load` gave.

        Args:
            given: by position.
            arguments: by name, as the spec has them.

        Raises:
            BadPart: it is no class, lacks a method, does not take its arguments, or raises.
        """
        if not callable(kind):
            rule = f"{name} is of type {type(kind).__name__} and cannot be called"
            raise self._bad(name, Misfit(None, rule, None, "name a class"))
        self.check_arguments(name, kind, arguments, len(given))
        self._check_parts(name, kind)
        made = self.call(name, kind, lambda: kind(*given, **arguments))
        self._check_parts(name, made)
        return made

    def check_arguments(
        self, name: str, kind: Callable[..., Any], arguments: Mapping[str, Any], positional: int = 0
    ) -> None:
        """Raise BadPart where a signature does not take these arguments, beside so many by position."""
        if wrong := tuple(misfits(kind, name, arguments, positional)):
            raise BadPart(self.what, name, wrong)

    def call(self, name: str, kind: Callable[..., Any], call: Callable[[], Any]) -> Any:
        """Return what a call gives that makes a part of this kind; BadPart: it raises."""
        try:
            return call()
        except (Exception, SystemExit) as error:  # others' code may raise anything
            raise self._bad(name, refused(kind, name, error)) from error

    def _check_parts(self, name: str, found: Any) -> None:
        """Look for what a part needs, in a class that inherits from the base, or in an object."""
        lacking, base = sorted(getattr(found, "__abstractmethods__", ())), _own(self.base)
        declared = base.__annotations__ if self.inherits else ()
        without = ", ".join(each for each in declared if not hasattr(found, each))
        if not isinstance(found, type):
            needed = sorted(getattr(base, "__abstractmethods__", ()))
            lacking = [method for method in needed if not callable(getattr(found, method, None))]
        if lacking or without:
            rules = [f"no attribute {without}"] * bool(without) + [f"no method {', '.join(lacking)}"] * bool(lacking)
            unquoted = (str(signature(getattr(base, method))).replace("'", "") for method in lacking)
            wanted = ", ".join(f"`def {method}{told}`" for method, told in zip(lacking, unquoted))
            there = [each for each in dir(found) if not each.startswith("_") and each not in lacking]
            close = nearest(lacking[0], there) if lacking else None
            mend = f"add {wanted or 'them'} to it; see help({self.base.replace(':', '.')})"
            raise self._bad(name, Misfit(None, f"{name} has {' and '.join(rules)}", close, mend))

    def _bad(self, name: str, misfit: Misfit) -> BadPart:
        return BadPart(self.what, name, (misfit,))


def _own(reference: str) -> Any:
    """Import what is fleet's own, whatever lies in the folders that are importable."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


PAPERS: Mapping[str, str] = {
    "tiresias": "benchmarks.papers.tiresias:Tiresias",
    "gandiva": "benchmarks.papers.gandiva:Gandiva",
    "gavel": "benchmarks.papers.gavel:Gavel",
    "pollux": "benchmarks.papers.pollux:Pollux",
    "sia": "benchmarks.papers.sia:Sia",
    "edf": "benchmarks.papers.edf:Edf",
    "edf-admission": "benchmarks.papers.edf:EdfAdmission",
    "optimus": "benchmarks.papers.optimus:Optimus",
    "themis": "benchmarks.papers.themis:Themis",
    "chronus": "benchmarks.papers.chronus:Chronus",
    "elasticflow-slot": "benchmarks.papers.elasticflow_slot:ElasticFlowSlot",
}
"""Other people's schedulers, which are in fleet's repository and not in its package."""
POLICIES = Door(
    "policy",
    "fleet.policies",
    "fleet.scheduling:Policy",
    {
        "flotilla": "fleet.scheduling.policies.flotilla:Flotilla",
        "local": "fleet.scheduling.policies.flotilla:Local",
        "homogeneous": "fleet.scheduling.policies.flotilla:Homogeneous",
        "baseline": "fleet.scheduling.policies.flotilla:Baseline",
        "fifo": "fleet.scheduling.policies.fifo:Fifo",
        "throughput": "fleet.scheduling.policies.throughput:Throughput",
        "goodput": "fleet.scheduling.policies.goodput:Goodput",
        "easyscale": "fleet.scheduling.policies.easyscale:EasyScale",
        "deadline": "fleet.scheduling.policies.deadline:Deadline",
        "malleable": "fleet.scheduling.policies.malleable:Malleable",
        "elasticflow": "fleet.scheduling.policies.elasticflow:ElasticFlow",
        "sharing": "fleet.scheduling.policies.sharing:Sharing",
        **PAPERS,
    },
    inherits=True,
)
STOPPING_RULES = Door(
    "stopping rule",
    "fleet.stopping_rules",
    "fleet.search:StoppingRule",
    {
        "none": "fleet.search.to_the_end:Whole",
        "halving": "fleet.search.halving:Halving",
        "hyperband": "fleet.search.halving:Hyperband",
        "median": "fleet.search.to_the_end:Median",
        "population": "fleet.search.population:Population",
    },
)
SAMPLERS = Door(
    "sampler",
    "fleet.samplers",
    "fleet.search:Sampler",
    {
        "random": "fleet.search.samplers:Random",
        "grid": "fleet.search.samplers:Grid",
        "qmc": "fleet.search.samplers:Qmc",
        "tpe": "optuna.samplers:TPESampler",
        "cmaes": "fleet.search.samplers:CmaEs",
        "gp": "optuna.samplers:GPSampler",
        "nsga2": "optuna.samplers:NSGAIISampler",
    },
)
TRACKERS = Door(
    "tracker",
    "fleet.trackers",
    "fleet.report:Tracker",
    {
        "mlflow": "fleet.report.trackers:Mlflow",
        "tensorboard": "fleet.report.trackers:TensorBoard",
        "wandb": "fleet.report.trackers:WeightsAndBiases",
    },
)
BATCH_SYSTEMS = Door(
    "batch system",
    "fleet.batch_systems",
    "fleet.cluster:BatchSystem",
    {
        "slurm": "fleet.cluster.batch_systems:Slurm",
        "lsf": "fleet.cluster.batch_systems:Lsf",
        "pbs": "fleet.cluster.batch_systems:Pbs",
        "flux": "fleet.cluster.batch_systems:Flux",
    },
    inherits=True,
)
