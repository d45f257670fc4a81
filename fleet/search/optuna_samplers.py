"""Optuna's samplers (Akiba et al., Optuna, KDD'19), each suggestion a pure function of what is known."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from fleet.search.decisions import Record
from fleet.search.space import Parameter, answers_of, seed_at_path, values_of
from fleet.spec.distributions import Distribution


class OptunaModel:
    """A study that is built anew for each suggestion, with all trials in the order of their numbers.

    Those that are done are COMPLETE, those that were stopped or pause are PRUNED, with all losses as intermediate
    values; those under way are RUNNING; those that failed are FAIL. The sampler's seed is by seed path (seed, trial,
    optuna).

    Args:
        over: dotted path -> its distribution.
        seed: the search's.
        prefetch: how many trials ahead it suggests.
        make: seed -> one of Optuna's samplers.
        only_complete: whether the sampler learns from trials that are COMPLETE alone; so all known ones are that.
        metrics: how many losses each value has.
    """

    def __init__(
        self,
        over: Mapping[str, Distribution],
        seed: int,
        prefetch: int,
        make: Callable[[int], Any],
        only_complete: bool = False,
        metrics: int = 1,
    ) -> None:
        self.prefetch: int | None = prefetch
        self._over, self._seed, self._make, self._only_complete = dict(over), seed, make, only_complete
        self._directions: list[Literal["minimize", "maximize"]] = ["minimize"] * metrics
        self._made: dict[int, tuple[Record, Mapping[str, Any], Any]] = {}

    def suggest(self, trial: int, records: Sequence[Record]) -> Mapping[str, Any]:
        """The values of a trial."""
        import optuna

        with quiet():
            sampler = self._make(seed_at_path(self._seed, trial, "optuna"))
            study = optuna.create_study(sampler=sampler, directions=self._directions)
            marks = self._marks(records)
            study.add_trials([self._kept(record, marks.get(record.trial, {})) for record in records])
            asked = study.ask()
            return values_of(self._over, lambda parameter: _suggested(asked, parameter))

    def _marks(self, records: Sequence[Record]) -> Mapping[int, Mapping[str, Any]]:
        """Trial -> what the sampler would itself have noted of it."""
        return {}

    def _kept(self, record: Record, marks: Mapping[str, Any]) -> Any:
        """Optuna's trial of a record; made once, as most records stay what they are."""
        before, marked, frozen = self._made.get(record.trial, (None, None, None))
        if before != record or marked != marks:
            frozen = _shared(self._frozen(record, marks))
            self._made[record.trial] = (record, marks, frozen)
        return frozen

    def _frozen(self, record: Record, marks: Mapping[str, Any]) -> Any:
        from optuna.trial import TrialState, create_trial

        states = {"done": TrialState.COMPLETE, "failed": TrialState.FAIL, "suggested": TrialState.RUNNING}
        state = states.get(record.status, TrialState.PRUNED)
        end = max(record.losses, default=0)
        last = [record.losses[end], *record.further.get(end, ())] if record.losses else None
        if self._only_complete and last is not None and state != TrialState.FAIL:
            state = TrialState.COMPLETE
        answers = answers_of(self._over, record.values)
        return create_trial(
            state=state,
            values=last if state in (TrialState.COMPLETE, TrialState.PRUNED) else None,
            params={parameter.name: chosen for parameter, chosen in answers.items()},
            distributions={parameter.name: distribution_of(parameter) for parameter in answers},
            intermediate_values=dict(sorted(record.losses.items())),
            system_attrs=dict(marks),
        )


def _shared(frozen: Any) -> Any:
    """Optuna's trial, of which its storage makes a shallow copy: nothing inside a trial that is told ever changes."""

    def shallow(memo: object) -> Any:
        twin = copy.copy(frozen)
        del twin.__deepcopy__
        return twin

    frozen.__deepcopy__ = shallow
    return frozen


def distribution_of(parameter: Parameter) -> Any:
    """Optuna's distribution of a parameter."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if parameter.kind == "index":
        return CategoricalDistribution(tuple(range(int(parameter.high) + 1)))
    if parameter.is_whole:
        low, high, step = int(parameter.low), int(parameter.high), int(parameter.step or 1)
        return IntDistribution(low, high, log=parameter.kind == "log_whole", step=step)
    return FloatDistribution(parameter.low, parameter.high, log=parameter.kind == "log", step=parameter.step)


def _suggested(asked: Any, parameter: Parameter) -> Any:
    if parameter.kind == "index":
        return asked.suggest_categorical(parameter.name, tuple(range(int(parameter.high) + 1)))
    if parameter.is_whole:
        low, high, step = int(parameter.low), int(parameter.high), int(parameter.step or 1)
        return asked.suggest_int(parameter.name, low, high, log=parameter.kind == "log_whole", step=step)
    ends, log = (parameter.low, parameter.high), parameter.kind == "log"
    return asked.suggest_float(parameter.name, *ends, log=log, step=parameter.step)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without Optuna's lines about each study, and its warnings about what is experimental."""
    from optuna import logging

    before = logging.get_verbosity()
    logging.set_verbosity(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(before)


class Nsga2(OptunaModel):
    """Trials with a value, by their numbers, are a generation as many at a time as its population has.

    Args:
        over: dotted path -> its distribution.
        seed: the search's.
        prefetch: how many trials ahead it suggests.
        make: seed -> Optuna's sampler.
        metrics: how many losses each value has.
    """

    def __init__(
        self, over: Mapping[str, Distribution], seed: int, prefetch: int, make: Callable[[int], Any], metrics: int
    ) -> None:
        super().__init__(over, seed, prefetch, make, True, metrics)
        sampler = make(0)
        self._size, self._key = sampler.population_size, sampler._get_generation_key()

    def _marks(self, records: Sequence[Record]) -> Mapping[int, Mapping[str, Any]]:
        """Trial -> its generation, as a study that was never built anew has it."""
        known = [record.trial for record in records if record.losses and record.status != "failed"]
        return {trial: {self._key: place // self._size} for place, trial in enumerate(known)}
