"""Values near those of a better trial (Jaderberg et al., 2017, 4.1.1: perturb and resample)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleet.search.sampling.space import Parameter, answers_of, values_of
from fleet.spec.distributions import Distribution, draw, fraction


class Explorer:
    """Changes values, each by itself: with some probability it is drawn anew, else it is perturbed.

    A number is multiplied by one of the factors, within its range; of choices the one before or after is taken. Draws
    are by seed path (seed, trial, epoch, path, purpose).

    Args:
        over: dotted path -> its distribution.
        seed: the search's.
        resample: probability with which a value is drawn anew.
        factors: of numbers.
    """

    def __init__(
        self, over: Mapping[str, Distribution], seed: int, resample: float, factors: tuple[float, float]
    ) -> None:
        self._over, self._seed, self._resample, self._factors = dict(over), seed, resample, factors

    def choice(self, count: int, trial: int, epoch: int) -> int:
        """A number below `count`."""
        return int(fraction(self._seed, trial, f"{epoch} donor") * count)

    def explored(self, values: Mapping[str, Any], trial: int, epoch: int) -> dict[str, Any]:
        """Values near these, for a trial after so many epochs."""
        return {path: self._one(path, what, values[path], trial, epoch) for path, what in self._over.items()}

    def _one(self, path: str, what: Distribution, value: Any, trial: int, epoch: int) -> Any:
        purpose = f"{epoch} {path}"
        if fraction(self._seed, trial, f"{purpose} resample") < self._resample:
            return draw(what, self._seed, trial, f"{purpose} draw")
        answers = {each.name: answer for each, answer in answers_of({path: what}, {path: value}).items()}

        def perturbed(parameter: Parameter) -> Any:
            answer = answers.get(parameter.name)
            if answer is None:  # of a longer list
                return parameter.at(fraction(self._seed, trial, f"{purpose} {parameter.name} new"))
            up = fraction(self._seed, trial, f"{purpose} {parameter.name}") < 0.5
            return _near(parameter, answer, up, self._factors)

        return values_of({path: what}, perturbed)[path]


def _near(parameter: Parameter, answer: float, up: bool, factors: tuple[float, float]) -> float | int:
    if parameter.step is not None:
        near = parameter.rounded(answer * factors[up])
        return parameter.rounded(answer + (parameter.step if up else -parameter.step)) if near == answer else near
    if parameter.kind == "index":
        moved = int(answer) + (1 if up else -1)
    elif parameter.is_whole:
        moved = round(answer * factors[up])
        moved = int(answer) + (1 if up else -1) if moved == answer else moved
    else:
        return parameter.rounded(answer * factors[up])
    return min(max(moved, int(parameter.low)), int(parameter.high))
