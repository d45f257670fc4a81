"""The search that a spec asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fleet.search.halving import SynchronousHalving
from fleet.search.population import Explorer
from fleet.search.samplers import sampler_of
from fleet.search.stopping_rule import StoppingRule
from fleet.search.virtual_time import Costs, Search
from fleet.spec import EnsembleSpec, Problem, SearchSpec, importable
from fleet.spec.plugins import STOPPING_RULES, BadPart
from fleet.spec.references import Misfit, parameters_of
from fleet.spec.search import Stopping
from fleet.spec.values import MOST_JOBS, Named


def search_of(spec: EnsembleSpec, costs: Costs) -> Search:
    """The search of a spec that has one, as it begins; what it names must be importable.

    Raises:
        BadPart: the sampler or the stopping rule cannot be made.
    """
    asked = spec.search
    assert asked is not None
    seed = seed_of(spec)
    return Search(
        rule_of(asked, seed),
        sampler_of(asked, seed),
        costs,
        asked.width,
        trials_of(asked),
        asked.most_epochs,
        asked.maximises,
    )


def seed_of(spec: EnsembleSpec) -> int:
    """The seed of the search of a spec that has one: the ensemble's, if it says no other."""
    assert spec.search is not None
    return spec.seed if spec.search.seed is None else spec.search.seed


def trials_of(asked: SearchSpec) -> int | None:
    """How many trials there may be; as many as a run can have where only the clock bounds them."""
    return MOST_JOBS if asked.most_trials is None and asked.most_epochs is None else asked.most_trials


def rule_of(asked: SearchSpec, seed: int) -> StoppingRule:
    """The stopping rule of a search, as it begins; its class gets what it names of what a search offers.

    Args:
        seed: the search's.

    Raises:
        BadPart: the rule is not there, or does not take its arguments.
    """
    told, name = asked.stopping, asked.stopping.name
    kind = STOPPING_RULES.load(name)
    offered: dict[str, Any] = {
        "epochs": asked.epochs,
        "trials": trials_of(asked),
        "seed": seed,
        "over": dict(asked.over),
    }
    if name in STOPPING_RULES.built_in:
        kind = SynchronousHalving if name == "halving" and told.synchronous else kind
        offered |= vars(told) | {"rungs": asked.rungs}
    if name == "population":
        offered["explorer"] = Explorer(asked.over, seed, told.resample, told.perturb)
    taken = {key: value for key, value in offered.items() if key in parameters_of(kind)}
    made: StoppingRule = STOPPING_RULES.make(name, kind, (), {**taken, **told.arguments})
    return made


def search_problems(spec: EnsembleSpec) -> tuple[Problem, ...]:
    """What is wrong with the stopping rule and the sampler of a spec's search, if it has one; theirs are imported."""
    search, found = spec.search, list[Problem]()
    if search is None:
        return ()
    with importable([spec.folder, Path.cwd()]):
        for key, make in (("stopping", rule_of), ("sampler", sampler_of)):
            try:
                make(search, 0)
            except BadPart as error:
                found += [_problem(spec, key, getattr(search, key), each) for each in error.misfits]
    return tuple(found)


def _problem(spec: EnsembleSpec, key: str, named: Named | Stopping, misfit: Misfit) -> Problem:
    path: tuple[str, ...] = ("search", key)
    if misfit.argument is None or misfit.argument not in named.arguments:
        return spec.origins.problem(path, named.name, misfit.rule, misfit.suggestion, misfit.mend)
    value = named.arguments[misfit.argument]
    inside = (*path, "arguments", misfit.argument)
    return spec.origins.problem(inside, value, misfit.rule, misfit.suggestion, misfit.mend)
