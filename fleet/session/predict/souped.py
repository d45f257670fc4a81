"""The answers of networks, and of the soup of their weights where one is asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from fleet.models.figures import Figures
from fleet.models.predictions import Predictions
from fleet.models.soup import Soup, soup_of
from fleet.models.vote import halves
from fleet.session.held_out import HeldOut
from fleet.session.predict.panel import Panel
from fleet.session.predict.team import Team


@dataclass(frozen=True)
class Answers:
    """What networks said.

    Attributes:
        members: answers of each network.
        soup: the network of mean weights; None: nobody asked for one.
        souped: its answers.
    """

    members: Predictions
    soup: Soup | None = None
    souped: Predictions | None = None


def answers_with_soup(panel: Panel, kind: str | None, team: Team) -> Answers | None:
    """Let the networks predict, and their soup of a kind; None on other ranks than 0.

    A uniform soup predicts beside the networks, in one pass. A greedy one needs a pass over half of the samples for
    each network, and one more over all of them.
    """
    if kind == "uniform":
        with team.mending():
            soup = soup_of(panel.networks)
            ensemble = panel.ensemble(soup.network)
        found = team.predictions(ensemble, panel.samples, panel.device)
        if found is None:
            return None
        own = range(len(panel.networks))
        return Answers(found.of_members(own), soup, found.of_members([len(own)]))
    with team.mending():
        ensemble = panel.ensemble()
    members = team.predictions(ensemble, panel.samples, panel.device)
    if kind is None:
        return None if members is None else Answers(members)
    soup = _greedy(panel, members, team)
    souped = _predicted(panel, soup, panel.samples, team)
    return None if members is None else Answers(members, soup, souped)


def _greedy(panel: Panel, members: Predictions | None, team: Team) -> Soup:
    """Add one network after the other, the most accurate first, if the soup becomes no less accurate by it.

    Wortsman et al., ICML'22, recipe 1; on the first half of the samples.
    """
    first, _ = halves(len(panel.samples.samples))
    half = replace(panel.samples, samples=[panel.samples.samples[row] for row in first.tolist()])
    order = team.agreed(lambda: _by_accuracy(members and members.of_samples(first)))
    chosen: list[int] = []
    best = -1.0
    for index in order:
        tried = soup_of([panel.networks[each] for each in [*chosen, index]])
        found = _predicted(panel, tried, half, team)
        (accuracy,) = team.agreed(partial(_accuracies, found))
        if accuracy >= best:
            chosen, best = [*chosen, index], accuracy
    return soup_of([panel.networks[each] for each in chosen])


def _predicted(panel: Panel, soup: Soup, samples: HeldOut, team: Team) -> Predictions | None:
    """A soup's answers; None on other ranks than 0."""
    with team.mending():
        ensemble = panel.alone(soup.network)
    return team.predictions(ensemble, samples, panel.device)


def _by_accuracy(members: Predictions | None) -> list[int]:
    """The networks, the most accurate first; of equal ones the first counts."""
    accuracies = _accuracies(members)
    return sorted(range(len(accuracies)), key=lambda index: -accuracies[index])


def _accuracies(predictions: Predictions | None) -> list[float]:
    """The accuracy of each network, on rank 0, which has the answers."""
    assert predictions is not None
    return [Figures.of(own, predictions.targets).accuracy for own in predictions.probabilities]
