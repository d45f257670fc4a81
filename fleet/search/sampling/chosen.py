"""The sampler that a spec names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from fleet.search.sampler import Sampler
from fleet.search.sampling.cmaes import CmaEs
from fleet.search.sampling.grid import Grid
from fleet.search.sampling.nsga2 import Nsga2
from fleet.search.sampling.optuna_model import OptunaModel
from fleet.search.sampling.own import Own
from fleet.search.sampling.qmc import Qmc
from fleet.search.sampling.random import Random
from fleet.spec import EnsembleSpec, Problem, ReferenceProblem, SearchSpec, importable, resolve
from fleet.spec.references import Misfit, misfits, refused

_OPTUNA = {"tpe": "TPESampler", "gp": "GPSampler", "nsga2": "NSGAIISampler"}
_TPE = {"multivariate": False, "constant_liar": False}
"""Each value is weighed by itself, and trials under way are not taken for bad ones; `benchmarks search` says why."""
_NEEDED = {"qmc": ("scipy",), "cmaes": ("cmaes",), "tpe": ("optuna",), "gp": ("optuna", "scipy"), "nsga2": ("optuna",)}


class BadSampler(ValueError):
    """A sampler that cannot be made.

    Attributes:
        misfits: what is wrong with it.
    """

    def __init__(self, name: str, misfits: tuple[Misfit, ...]) -> None:
        self.misfits = misfits
        super().__init__(f"sampler {name}: " + "; ".join(f"{each.rule} ({each.mend})" for each in misfits))


def sampler_of(search: SearchSpec, seed: int) -> Sampler:
    """The sampler of a search; a person's class must be importable.

    Args:
        seed: the search's.

    Raises:
        BadSampler: it is not there, or does not take its arguments.
    """
    name, arguments = search.sampler.name, dict[str, Any](search.sampler.arguments)
    _check_installed(name)
    if name in ("random", "grid", "qmc"):
        _check(name, lambda: None, arguments)
    if name == "random":
        return Random(search.over, seed)
    if name == "grid":
        return Grid(search.over)
    if name == "qmc":
        return Qmc(search.over, seed)
    if name == "cmaes":
        _check(name, lambda sigma0=0.3, popsize=None: None, arguments)
        made: Sampler = _called(name, CmaEs, lambda: CmaEs(search.over, seed, search.prefetch, **arguments))
        return made
    if name in _OPTUNA:
        return _optuna(search, seed, arguments)
    return _own(search, seed, arguments)


def sampler_problems(spec: EnsembleSpec) -> tuple[Problem, ...]:
    """What is wrong with the sampler of a spec's search, if it has one; a person's class is imported."""
    search = spec.search
    if search is None:
        return ()
    try:
        with importable([spec.folder, Path.cwd()]):
            sampler_of(search, 0)
    except BadSampler as error:
        return tuple(_problem(spec, search, each) for each in error.misfits)
    return ()


def _problem(spec: EnsembleSpec, search: SearchSpec, misfit: Misfit) -> Problem:
    named, path = search.sampler, ("search", "sampler")
    if misfit.argument is None:
        return spec.origins.problem(path, named.name, misfit.rule, misfit.suggestion, misfit.mend)
    value = named.arguments[misfit.argument]
    inside = (*path, "arguments", misfit.argument)
    return spec.origins.problem(inside, value, misfit.rule, misfit.suggestion, misfit.mend)


def _check_installed(name: str) -> None:
    for package in _NEEDED.get(name, ()):
        try:
            import_module(package)
        except ImportError as error:
            mend = "run: pip install 'fleet-hpc[search]'; or take random, which needs nothing"
            rule = f"{name} needs the package {package}, which cannot be imported ({error})"
            raise BadSampler(name, (Misfit(None, rule, "random", mend),)) from None


def _check(name: str, function: Callable[..., Any], arguments: Mapping[str, Any], positional: int = 0) -> None:
    wrong = tuple(misfits(function, name, arguments, positional))
    if wrong:
        raise BadSampler(name, wrong)


def _called(name: str, function: Callable[..., Any], call: Callable[[], Any]) -> Any:
    """What the call gives.

    Raises:
        BadSampler: it raises.
    """
    try:
        return call()
    except (Exception, SystemExit) as error:  # others' code may raise anything
        raise BadSampler(name, (refused(function, name, error),)) from error


def _optuna(search: SearchSpec, seed: int, arguments: dict[str, Any]) -> Sampler:
    """Optuna's TPE, its Gaussian process, and its NSGA-II."""
    import optuna

    name = search.sampler.name
    kind = getattr(optuna.samplers, _OPTUNA[name])
    if "seed" in arguments:
        rule = "the seed of suggestions is that of the search"
        raise BadSampler(name, (Misfit("seed", rule, None, "take it away, and set search.seed"),))
    _check(name, kind, arguments)
    if name == "tpe":
        arguments = {**_TPE, **arguments}

    def make(seed: int) -> Any:
        return kind(seed=seed, **arguments)

    def model() -> OptunaModel:
        if name == "nsga2":
            return Nsga2(search.over, seed, search.prefetch, make, len(search.metrics))
        return OptunaModel(search.over, seed, search.prefetch, make, only_complete=name == "gp")

    made: OptunaModel = _called(name, kind, model)
    _called(name, kind, lambda: made.suggest(0, ()))
    return made


def _own(search: SearchSpec, seed: int, arguments: dict[str, Any]) -> Sampler:
    name = search.sampler.name
    try:
        kind = resolve(name)
    except ReferenceProblem as error:
        raise BadSampler(name, (Misfit(None, error.rule, error.suggestion, error.mend),)) from None
    if not callable(kind):
        rule = f"{name} is of type {type(kind).__name__} and cannot be called"
        raise BadSampler(name, (Misfit(None, rule, None, "name a class"),))
    _check(name, kind, arguments, positional=2)
    made = _called(name, kind, lambda: kind(dict(search.over), seed, **arguments))
    if not callable(getattr(made, "suggest", None)):
        mend = "add `def suggest(self, trial, records)` to it"
        raise BadSampler(name, (Misfit(None, f"{name} has no method suggest", None, mend),))
    prefetch = getattr(made, "prefetch", search.prefetch)
    if prefetch is not None and (type(prefetch) is not int or prefetch < 0):
        rule = f"{name} has the prefetch {prefetch!r}, which is neither a whole number of 0 or more nor None"
        raise BadSampler(name, (Misfit(None, rule, None, "set it to 4, or to None if it looks at no results"),))
    return Own(made, name, search.over, prefetch)
