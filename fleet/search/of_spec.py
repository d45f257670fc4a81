"""The search that a spec asks for."""

from __future__ import annotations

from fleet.search.halving import Halving, Hyperband, SynchronousHalving
from fleet.search.population import Explorer, Population
from fleet.search.samplers import sampler_of
from fleet.search.search import Costs, Search
from fleet.search.stopping_rule import StoppingRule
from fleet.search.to_the_end import Median, Whole
from fleet.spec import EnsembleSpec, SearchSpec
from fleet.spec.values import MOST_JOBS


def search_of(spec: EnsembleSpec, costs: Costs) -> Search:
    """The search of a spec that has one, as it begins; its sampler must be importable.

    Raises:
        fleet.search.samplers.BadSampler: the sampler cannot be made.
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
    """The stopping rule of a search, as it begins.

    Args:
        seed: the search's.
    """
    stopping = asked.stopping
    if stopping.name == "population":
        explorer = Explorer(asked.over, seed, stopping.resample, stopping.perturb)
        return Population(asked.epochs, stopping.interval, stopping.quantile, explorer, stopping.synchronous)
    if stopping.name == "none":
        return Whole(asked.epochs)
    if stopping.name == "median":
        return Median(asked.epochs, stopping.grace, stopping.least)
    if stopping.synchronous:
        return SynchronousHalving(asked.rungs, stopping.eta)
    if stopping.name == "hyperband":
        return Hyperband(asked.rungs, stopping.eta)
    return Halving(asked.rungs, stopping.eta, stopping.confidence)
