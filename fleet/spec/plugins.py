"""Doors for other people's code: a short name, one that an installed package gives, or `module:Name`.

What fleet has itself goes in by the same doors. Nothing is imported that nobody names: a door knows where things are,
and loads the one that is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
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
        built_in: short name -> `module:Name` of what fleet has.
    """

    what: str
    group: str
    built_in: Mapping[str, str]

    def refused(self, name: str) -> ReferenceProblem | None:
        """Why there is no part of that name, as far as that is known without an import; None: there may be one."""
        if name in self.built_in or ":" in name:
            return None
        installed = [point.name for point in entry_points(group=self.group)]
        if name in installed:
            return None
        known = [*self.built_in, *installed]
        return ReferenceProblem(
            f"{name!r} is not a {self.what}; there are {', '.join(known)}", nearest(name, known), "write one of these"
        )

    def load(self, name: str) -> Any:
        """Import what a name stands for.

        Raises:
            BadPart: there is none, or its module cannot be imported.
        """
        reference = self.built_in.get(name, name)
        if ":" not in reference:
            found = (point.value for point in entry_points(group=self.group) if point.name == name)
            reference = next(found, name)
        try:
            if (problem := self.refused(name)) is not None:
                raise problem
            return resolve(reference)
        except ReferenceProblem as error:
            raise self._bad(name, Misfit(None, error.rule, error.suggestion, error.mend)) from None

    def make(
        self, name: str, kind: Any, given: tuple[Any, ...], arguments: Mapping[str, Any], base: type | None = None
    ) -> Any:
        """Call a class that `load` gave.

        Args:
            given: by position.
            arguments: by name, as the spec has them.
            base: the class with the methods that it needs.

        Raises:
            BadPart: it is no class, lacks a method, does not take its arguments, or raises.
        """
        if not callable(kind):
            rule = f"{name} is of type {type(kind).__name__} and cannot be called"
            raise self._bad(name, Misfit(None, rule, None, "name a class"))
        self.check_arguments(name, kind, arguments, len(given))
        self._check_methods(name, kind, base)
        made = self.call(name, kind, lambda: kind(*given, **arguments))
        self._check_methods(name, made, base)
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

    def _check_methods(self, name: str, found: Any, base: type | None) -> None:
        """Look for the methods of a base class, in a class that inherits from it, or in an object."""
        needed = sorted(getattr(base, "__abstractmethods__", ()))
        lacking = sorted(getattr(found, "__abstractmethods__", ()))
        if not isinstance(found, type):
            lacking = [method for method in needed if not callable(getattr(found, method, None))]
        if lacking:
            wanted = ", ".join(f"`def {method}{_parameters(base, method)}`" for method in lacking)
            rule = f"{name} has no method {', '.join(lacking)}"
            close = nearest(lacking[0], [each for each in dir(found) if not each.startswith("_")])
            raise self._bad(name, Misfit(None, rule, close, f"add {wanted} to it"))

    def _bad(self, name: str, misfit: Misfit) -> BadPart:
        return BadPart(self.what, name, (misfit,))


def _parameters(base: type | None, method: str) -> str:
    """The parameters of a method, without annotations."""
    code = getattr(base, method).__code__
    return f"({', '.join(code.co_varnames[: code.co_argcount])})"


STOPPING_RULES = Door(
    "stopping rule",
    "fleet.stopping_rules",
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
    {
        "mlflow": "fleet.report.trackers:Mlflow",
        "tensorboard": "fleet.report.trackers:TensorBoard",
        "wandb": "fleet.report.trackers:WeightsAndBiases",
    },
)
