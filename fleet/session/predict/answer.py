"""From what is asked of a run's networks to their figures."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from torch import Tensor

from fleet.models.figures import Figures
from fleet.models.predictions import Predictions
from fleet.models.temperature import fitted_temperature, scaled
from fleet.models.vote import Vote
from fleet.session.predict.asked import AskedPrediction
from fleet.session.predict.panel import Panel, open_panel
from fleet.session.predict.souped import Answers, answers_with_soup
from fleet.session.predict.team import SoloTeam, Team


def told_of(directory: Path, asked: AskedPrediction, team: Team | None = None) -> dict[str, Any]:
    """Let networks of a run directory predict, write what is to be written, and return the figures as plain values.

    Args:
        team: the ranks that take part; None: this process alone. Only rank 0 is given figures, and writes.

    Raises:
        HarvestError, SpecError, ReferenceProblem, CheckpointError: the run cannot give what is asked.
        SourceError, TransformError, SampleError, CorruptLimitError: the samples cannot be made.
        BadInput: another rank has met such an error.
    """
    begin = time.perf_counter()
    team = team or SoloTeam()
    panel = open_panel(directory, asked, team)
    with panel.predicting():
        answers = answers_with_soup(panel, asked.combined.soup, team)
    if answers is None:
        return {}
    verdict = _verdict(answers.members, asked)
    if asked.out is not None:
        _write(asked.out, panel, answers, verdict, asked)
    return {
        "members": {name: figures.to_json() for name, figures in verdict.members().items()},
        "ensemble": verdict.ensemble(asked.combined.vote),
        "weights": dict(zip(verdict.predictions.names, verdict.weights.tolist())),
        "vote": asked.combined.vote,
        "labelled": verdict.predictions.labelled,
        **_soup(answers, verdict, asked),
        **(_scaled(answers, verdict) if asked.combined.temperature else {}),
        **verdict.samples_told(),
        "seconds": time.perf_counter() - begin,
    }


def _verdict(predictions: Predictions, asked: AskedPrediction) -> Vote:
    picks = asked.picks
    return Vote.of_all(predictions, asked.divides) if picks is None else Vote.greedy(predictions, picks)


def _write(path: Path, panel: Panel, answers: Answers, verdict: Vote, asked: AskedPrediction) -> None:
    together = verdict.together(asked.combined.vote).float()
    arrays = {"weights": verdict.weights, "ensemble": together}
    if answers.souped is not None:
        arrays["soup"] = answers.souped.probabilities[0]
    verdict.predictions.write(path, arrays, panel.samples.names)


def _soup(answers: Answers, verdict: Vote, asked: AskedPrediction) -> dict[str, Any]:
    """The soup's figures, and what it is made of."""
    if answers.soup is None or answers.souped is None:
        return {}
    seen = answers.souped if verdict.told is None else answers.souped.of_samples(verdict.told)
    figures = Figures.of(seen.probabilities[0], seen.targets).to_json() if seen.labelled else {}
    soup = answers.soup
    made = {"members": list(soup.members), "averaged_buffers": list(soup.averaged_buffers)}
    return {"soup": {"kind": asked.combined.soup, **made, **figures}}


def _scaled(answers: Answers, verdict: Vote) -> dict[str, Any]:
    """Temperatures that are fitted on one half of the samples, and the figures that they give on the other."""
    assert verdict.told is not None and verdict.chosen_on is not None
    fitted_on, told = (verdict.predictions.of_samples(half) for half in (verdict.chosen_on, verdict.told))

    def figures(own: Tensor, seen: Tensor) -> dict[str, float]:
        temperature = fitted_temperature(own, fitted_on.targets)
        return {"temperature": temperature, **Figures.of(scaled(seen, temperature), told.targets).to_json()}

    pairs = zip(verdict.predictions.names, fitted_on.probabilities, told.probabilities)
    both = (Vote(half, verdict.weights).together() for half in (fitted_on, told))
    found: dict[str, Any] = {"members": {name: figures(*own) for name, *own in pairs}, "ensemble": figures(*both)}
    if answers.souped is not None:
        halves = (answers.souped.of_samples(half).probabilities[0] for half in (verdict.chosen_on, verdict.told))
        found["soup"] = figures(*halves)
    return {"scaled": found}
