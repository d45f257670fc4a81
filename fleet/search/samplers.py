"""The door for samplers, which suggest the values of trials, and those that fleet has.

A sampler of one's own is a class with `suggest`, named in a spec as `sampler: module:Name`, or by an installed package
in its entry points `fleet.samplers`. It is called with `over` (dotted path -> distribution), the search's seed, and the
`arguments` of the spec.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from fleet.search.decisions import Record
from fleet.search.optuna_samplers import Nsga2, OptunaModel
from fleet.search.space import answers_of, parameters, seed_at_path, values_of
from fleet.spec import SearchSpec
from fleet.spec.distributions import Distribution, Enumerated, drawn, fraction, set_paths
from fleet.spec.plugins import SAMPLERS, BadPart
from fleet.spec.references import Misfit


class Sampler(Protocol):
    """Suggests values: a pure function of its seed, the trial's number and the records."""

    @property
    def prefetch(self) -> int | None:
        """How many trials ahead it suggests: for trial i it knows what was known when trial i - prefetch began.

        None: it never looks at results, and suggests any trial at any time.
        """
        ...

    @abstractmethod
    def suggest(self, trial: int, records: Sequence[Record]) -> Mapping[str, Any]:
        """Return the values of a trial: dotted path -> plain value.

        Args:
            trial: its number.
            records: all trials with lower numbers, in their order; none where `prefetch` is None.
        """
        ...


class Random:
    """Each value is drawn by seed path (seed, trial, path of the key), as the jobs of a `sample` are.

    Args:
        over: dotted path -> its distribution.
        seed: the search's.
    """

    prefetch: int | None = None

    def __init__(self, over: Mapping[str, Distribution], seed: int) -> None:
        self._over, self._seed = dict(over), seed

    def suggest(self, trial: int, records: Sequence[Record]) -> Mapping[str, Any]:
        """The values of a trial."""
        return drawn(self._over, self._seed, trial)


class Grid:
    """Trial i has combination i; the last path varies fastest, and shorter blocks come first.

    Args:
        over: dotted path -> its distribution, of choices and whole numbers, or with steps.
    """

    prefetch: int | None = None

    def __init__(self, over: Mapping[str, Distribution]) -> None:
        self._all = Enumerated(over)

    def suggest(self, trial: int, records: Sequence[Record]) -> Mapping[str, Any]:
        """The values of a trial.

        Raises:
            IndexError: there are not so many.
        """
        return copy.deepcopy(self._all.nth(trial))


class Qmc:
    """Trial i has point i of the sequence; every parameter that there may be is one of its dimensions.

    Args:
        over: dotted path -> its distribution.
        seed: the search's, of the scrambling.

    Raises:
        ImportError: SciPy is not installed.
    """

    prefetch: int | None = None

    def __init__(self, over: Mapping[str, Distribution], seed: int) -> None:
        from scipy.stats.qmc import Sobol  # of the extra `search`

        self._over, self._seed, self._sobol = dict(over), seed_at_path(seed, 0, "qmc"), Sobol
        self._dimension = {parameter.name: number for number, (parameter, _) in enumerate(parameters(over))}

    def suggest(self, trial: int, records: Sequence[Record]) -> Mapping[str, Any]:
        """The values of a trial."""
        sequence = self._sobol(len(self._dimension), scramble=True, rng=self._seed)
        if trial:
            sequence.fast_forward(trial)
        point = sequence.random(1)[0]
        return values_of(self._over, lambda parameter: parameter.at(float(point[self._dimension[parameter.name]])))


class CmaEs:
    """Numbers that are always there come from CMA-ES; choices, and numbers of drawn blocks, are drawn at random.

    For each suggestion the strategy is built anew: it is told the last losses of all known trials by their numbers, as
    many at a time as make a generation, and then asked with a seed by seed path (seed, trial, cmaes).

    Args:
        over: dotted path -> its distribution.
        seed: the search's.
        prefetch: how many trials ahead it suggests.
        sigma0: the first step size, as a part of each range.
        popsize: trials of a generation; None: 4 + 3 ln(numbers), as the package does.

    Raises:
        ImportError: the package is not installed.
        ValueError: there are fewer than two such numbers, or an argument cannot be.
    """

    def __init__(
        self,
        over: Mapping[str, Distribution],
        seed: int,
        prefetch: int,
        sigma0: float = 0.3,
        popsize: int | None = None,
    ) -> None:
        from cmaes import CMA  # of the extra `search`

        self.prefetch: int | None = prefetch
        self._over, self._seed = dict(over), seed
        self._numbers = [each for each, always in parameters(over) if always and each.is_number]
        there = len(self._numbers)
        if there < 2:
            raise ValueError(f"cmaes needs two numbers or more that are always there, and has {there}; take tpe")
        if not 0 < sigma0 <= 1:
            raise ValueError(f"sigma0 is {sigma0}; it is a part of each range, above 0 and at most 1")
        if popsize is not None and popsize < 3:
            raise ValueError(f"popsize is {popsize}; it is 3 or more")
        self._make = lambda: CMA(
            mean=np.full(len(self._numbers), 0.5),
            sigma=sigma0,
            bounds=np.tile([0.0, 1.0], (len(self._numbers), 1)),
            population_size=popsize,
            seed=seed_at_path(seed, 0, "cmaes"),
        )
        self._make()

    def suggest(self, trial: int, records: Sequence[Record]) -> Mapping[str, Any]:
        """The values of a trial."""
        strategy = self._make()
        known = [record for record in records if record.losses]
        size = strategy.population_size
        for begin in range(0, len(known) - size + 1, size):
            strategy.tell([self._solution(record) for record in known[begin : begin + size]])
        strategy.reseed_rng(seed_at_path(self._seed, trial, "cmaes"))
        point = dict(zip(self._numbers, map(float, strategy.ask())))

        def answer(parameter: Any) -> Any:
            drawn = fraction(self._seed, trial, parameter.name)
            return parameter.at(point.get(parameter, drawn))

        return values_of(self._over, answer)

    def _solution(self, record: Record) -> tuple[Any, float]:
        """The point of a trial in the unit cube, and its last loss."""
        answers = answers_of(self._over, record.values)
        return np.array([each.part(answers[each]) for each in self._numbers]), record.losses[max(record.losses)]


class UserSampler:
    """What an object of a person's class suggests, looked at before it is used.

    Args:
        sampler: has `suggest(trial, records)`, as `fleet.search.Sampler`.
        name: how messages call it.
        over: dotted path -> its distribution, for which it gives values.
        prefetch: how many trials ahead it suggests; None: it looks at no results, and suggests any at any time.
    """

    def __init__(self, sampler: Any, name: str, over: Mapping[str, Distribution], prefetch: int | None) -> None:
        self.prefetch = prefetch
        self._sampler, self._name, self._over = sampler, name, over

    def suggest(self, trial: int, records: Sequence[Record]) -> Mapping[str, Any]:
        """The values of a trial.

        Raises:
            ValueError: it gives no values, or those of other paths.
        """
        values = self._sampler.suggest(trial, records)
        if not isinstance(values, Mapping) or values.keys() != set_paths(self._over, values):
            told = sorted(values) if isinstance(values, Mapping) else type(values).__name__
            wanted = sorted(set_paths(self._over, values) if isinstance(values, Mapping) else self._over)
            raise ValueError(f"{self._name} gives {told} for trial {trial}; it should give values of {wanted}")
        return values


_TPE = {"multivariate": False, "constant_liar": False}
"""Each value is weighed by itself, and trials under way are not taken for bad ones; `benchmarks search` says why."""
_NEEDED = {"qmc": ("scipy",), "cmaes": ("cmaes",), "tpe": ("optuna",), "gp": ("optuna", "scipy"), "nsga2": ("optuna",)}


def sampler_of(search: SearchSpec, seed: int) -> Sampler:
    """The sampler of a search; a person's class must be importable.

    Args:
        seed: the search's.

    Raises:
        BadPart: it is not there, or does not take its arguments.
    """
    name, arguments = search.sampler.name, dict[str, Any](search.sampler.arguments)
    _check_installed(name)
    kind = SAMPLERS.load(name)
    given = {Random: (seed,), Grid: (), Qmc: (seed,), CmaEs: (seed, search.prefetch)}.get(kind)
    if given is not None:
        made: Sampler = SAMPLERS.make(name, kind, (search.over, *given), arguments)
        return made
    if name in SAMPLERS.built_in:
        return _optuna(search, seed, kind, arguments)
    return _users(search, kind, seed, arguments)


def _check_installed(name: str) -> None:
    for package in _NEEDED.get(name, ()):
        try:
            import_module(package)
        except ImportError as error:
            mend = "run: pip install 'fleet-hpc[search]'; or take random, which needs nothing"
            rule = f"{name} needs the package {package}, which cannot be imported ({error})"
            raise BadPart("sampler", name, (Misfit(None, rule, "random", mend),)) from None


def _optuna(search: SearchSpec, seed: int, kind: Any, arguments: dict[str, Any]) -> Sampler:
    """Make Optuna's TPE, its Gaussian process, or its NSGA-II."""
    name = search.sampler.name
    if "seed" in arguments:
        rule = "the seed of suggestions is that of the search"
        raise BadPart("sampler", name, (Misfit("seed", rule, None, "take it away, and set search.seed"),))
    SAMPLERS.check_arguments(name, kind, arguments)
    if name == "tpe":
        arguments = {**_TPE, **arguments}

    def make(seed: int) -> Any:
        return kind(seed=seed, **arguments)

    def model() -> OptunaModel:
        if name == "nsga2":
            return Nsga2(search.over, seed, search.prefetch, make, len(search.metrics))
        return OptunaModel(search.over, seed, search.prefetch, make, only_complete=name == "gp")

    made: OptunaModel = SAMPLERS.call(name, kind, model)
    SAMPLERS.call(name, kind, lambda: made.suggest(0, ()))
    return made


def _users(search: SearchSpec, kind: Any, seed: int, arguments: dict[str, Any]) -> Sampler:
    name = search.sampler.name
    made = SAMPLERS.make(name, kind, (dict(search.over), seed), arguments)
    prefetch = getattr(made, "prefetch", search.prefetch)
    if prefetch is not None and (type(prefetch) is not int or prefetch < 0):
        rule = f"{name} has the prefetch {prefetch!r}, which is neither a whole number of 0 or more nor None"
        mend = "set it to 4, or to None if it looks at no results"
        raise BadPart("sampler", name, (Misfit(None, rule, None, mend),))
    return UserSampler(made, name, search.over, prefetch)
