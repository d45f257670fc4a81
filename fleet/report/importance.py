"""How much each parameter of a search matters, by Optuna's evaluator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from fleet.report.wording import metric_title, plural
from fleet.search.journalled import Searched
from fleet.search.optuna_samplers import distribution_of, quiet
from fleet.search.space import Parameter, answers_of

LEAST = 5
"""Trials with a value, without which nothing can be said."""


@dataclass(frozen=True)
class Importance:
    """What is known of it.

    Attributes:
        shares: parameter -> its share, all together 1, the largest first; empty: nothing can be said.
        told: on what they rest, or why there are none, in a sentence.
    """

    shares: Mapping[str, float] = field(default_factory=dict)
    told: str = ""


def importance_of(searched: Searched) -> Importance:
    """Shares by PED-ANOVA (Watanabe et al., IJCAI'23): how much a parameter has to do with being among the best tenth.

    Trials are compared after the same number of epochs. It draws nothing, so it has no seed.
    """
    epoch, values = comparable(searched)
    if len(values) < LEAST:
        return Importance(told=f"{plural(len(values), 'trial')} with a value are too few to say what matters.")
    if len(set(values.values())) == 1:
        return Importance(told="All trials have the same value, so that nothing matters more than anything else.")
    try:
        import optuna  # noqa: F401 - whether it is there
    except ImportError:
        return Importance(told="What matters most is told where Optuna is: pip install 'fleet-hpc[search]'.")
    after, metric = plural(epoch, "epoch"), metric_title(searched.told.metric).lower()
    left = len(searched.rows) - len(values)
    out = f"; {left} without one are left out" if left else ""
    try:
        shares = _shares(searched, values)
    except ValueError:  # an own sampler suggests what its distribution does not have
        return Importance(told="Some values are none of those in `over`, so that nothing can be said of what matters.")
    return Importance(
        shares,
        f"How much a parameter has to do with being among the best, by the {metric} after {after} of the {len(values)} "
        f"trials that have one{out} (PED-ANOVA, of Optuna).",
    )


def comparable(searched: Searched) -> tuple[int, dict[int, float]]:
    """The most epochs after which nine in ten of the trials that have values have one, and those values by trial.

    Only those that did well train on: to compare these alone would tell little of what makes a trial do well.
    """
    curves = {row.told.trial: row.told.curve(searched.told.metric) for row in searched.rows}
    having = Counter(epoch for curve in curves.values() for epoch in curve)
    if not having:
        return 0, {}
    enough = 0.9 * sum(bool(curve) for curve in curves.values())
    most = max(having, key=lambda epoch: (having[epoch], -epoch))
    epoch = max((epoch for epoch, trials in having.items() if trials >= enough), default=most)
    return epoch, {trial: curve[epoch] for trial, curve in curves.items() if epoch in curve}


def _shares(searched: Searched, values: Mapping[int, float]) -> dict[str, float]:
    import optuna

    with quiet():
        study = optuna.create_study(direction="maximize" if searched.told.maximise else "minimize")
        for trial, value in values.items():
            answers = answers_of(searched.section.over, searched.told.trials[trial].values)
            study.add_trial(_frozen(answers, value))
        found = optuna.importance.get_param_importances(study, evaluator=_evaluator(len(values)))
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _evaluator(trials: int) -> Any:
    """The best tenth, or more where a tenth would be fewer than five trials."""
    from optuna.importance import PedAnovaImportanceEvaluator

    share, made = min(0.5, max(0.1, LEAST / trials)), cast(Any, PedAnovaImportanceEvaluator)
    try:
        return made(target_quantile=share)
    except TypeError:  # older versions of Optuna call it otherwise
        return made(baseline_quantile=share)


def _frozen(answers: Mapping[Parameter, Any], value: float) -> Any:
    from optuna.trial import create_trial

    return create_trial(
        value=value,
        params={parameter.name: chosen for parameter, chosen in answers.items()},
        distributions={parameter.name: distribution_of(parameter) for parameter in answers},
    )
