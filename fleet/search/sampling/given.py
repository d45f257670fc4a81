"""Values that a person gives a trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fleet.search.sampling.space import answers_of, values_of
from fleet.spec.distributions import Distribution, applies, set_paths
from fleet.spec.problem import nearest


def check_values(over: Mapping[str, Distribution], values: Mapping[str, Any]) -> None:
    """Check that a search could have drawn these values.

    Raises:
        ValueError: it could not; with all that is wrong.
    """
    wanted = set_paths(over, values)
    wrong = [f"{path} has no value" for path in over if path in wanted and path not in values]
    wrong += [_unknown(path, over) for path in values if path not in over]
    wrong += [f"{path} has a value, and its condition does not hold" for path in values if path in over.keys() - wanted]
    wrong += [text for path in over if path in values and path in wanted and (text := _misfit(path, over, values))]
    if wrong:
        raise ValueError("; ".join(wrong))


def check_one_metric(metrics: Sequence[str]) -> None:
    """Check that people can train trials of a search themselves: they tell one value of each.

    Raises:
        ValueError: it has several metrics.
    """
    if len(metrics) > 1:
        raise ValueError(
            f"the search goes by {', '.join(metrics)}, and a trial of one's own has one value; "
            f"search by one metric, such as {metrics[0]}, in another run"
        )


def _unknown(path: str, over: Mapping[str, Distribution]) -> str:
    meant = nearest(path, list(over))
    more = f"did you mean {meant}?" if meant else f"it varies {', '.join(over)}"
    return f"the search does not vary {path}; {more}"


def _misfit(path: str, over: Mapping[str, Distribution], values: Mapping[str, Any]) -> str:
    """What is wrong with a value; "" if it fits."""
    chosen, value = applies(over[path], values), values[path]
    what = over[path] if chosen is None else chosen[0].model_copy(update={"when": None})
    drawn = what.model_dump(mode="json", exclude_none=True)
    told = f"{path} is {value!r}, which {drawn} does not give"
    try:
        answers = answers_of({path: what}, {path: value})
        inside = all(
            not isinstance(answer, bool) and parameter.low <= answer <= parameter.high
            for parameter, answer in answers.items()
        )
        same = values_of({path: what}, lambda parameter: answers[parameter])[path] == value
    except (ValueError, TypeError, KeyError, IndexError):
        return told
    return "" if inside and same else told
