"""From what is asked of a run's networks to their figures."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

import torch
from torch import Tensor

from fleet.models.errors import ModelsError
from fleet.models.load import Ensemble, on_device
from fleet.models.members import Members, read_members
from fleet.models.network import Soup, TrainedNetwork, check_one_architecture, read_network, soup_of
from fleet.models.predictions import BATCH, Predictions, check_classes, predict
from fleet.models.recorded_spec import check_trusted
from fleet.models.validation_data import HeldOut, samples_of
from fleet.models.vote import Figures, Vote, fitted_temperature, greedy_picks, halves, scaled
from fleet.spec import EnsembleSpec, Job, ReferenceProblem, SpecError
from preprocess import SourceError
from preprocess.files.modules import at_home
from preprocess.samples.errors import CorruptLimitError, SampleError, TransformError
from trainers import CheckpointError


def told_of(directory: Path, asked: AskedPrediction, team: Team | None = None) -> dict[str, Any]:
    """Let networks of a run directory predict, write what is to be written, and return the figures as plain values.

    Args:
        team: the ranks that take part; None: this process alone. Only rank 0 is given figures, and writes.

    Raises:
        ModelsError, SpecError, ReferenceProblem, CheckpointError: the run cannot give what is asked.
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


@dataclass(frozen=True)
class Combination:
    """How several networks' answers become one.

    Attributes:
        vote: `soft` or `hard`.
        soup: the mean of weights, of all networks (`uniform`) or of those that make it no worse (`greedy`), is told
            beside them; None: it is not.
        temperature: figures of scaled probabilities are told beside the others.
    """

    vote: Literal["soft", "hard"] = "soft"
    soup: Literal["uniform", "greedy"] | None = None
    temperature: bool = False


@dataclass(frozen=True)
class AskedPrediction:
    """Which networks of a run predict which samples, and what is told.

    Attributes:
        members: `all`, `best:K`, `greedy:K`, or names with commas between them.
        data: a data set of the run's spec, or the path of other samples; None: the data set that the networks share.
        out: where all probabilities are written; None: nowhere.
        checkpoint: `best` or `last`.
        device: where the networks are, as torch names it.
        combined: how their answers become one.
        trust: whether code that another user chose may run.
    """

    members: str = "all"
    data: str | None = None
    out: Path | None = None
    checkpoint: Literal["best", "last"] = "best"
    device: str = "cpu"
    combined: Combination = field(default_factory=Combination)
    trust: bool = False

    @property
    def picks(self) -> int | None:
        """K of `greedy:K`; None: networks are not chosen by what they predict. ModelsError: K is no number."""
        return greedy_picks(self.members)

    @property
    def divides(self) -> bool:
        """Whether one half of the samples is for choosing or fitting, and the other for figures."""
        return self.picks is not None or self.combined.temperature or self.combined.soup == "greedy"

    def check(self) -> None:
        """Raise ModelsError where two things that are asked do not go together."""
        if self.combined.soup is not None and self.picks is not None:
            text = f"--soup averages the networks that are named, and --members {self.members} chooses by predictions"
            raise ModelsError(f"{text}; take --soup greedy, which chooses for itself, with --members all")
        if self.combined.temperature and self.combined.vote == "hard":
            text = "--temperature scales probabilities, and --vote hard gives shares of answers"
            raise ModelsError(f"{text}; leave one of them out")

    def check_unlabelled(self) -> None:
        """Raise ModelsError where something is asked that needs targets."""
        if self.divides:
            needing = ("--members greedy", self.picks is not None), ("--temperature", self.combined.temperature)
            option = next((option for option, is_asked in needing if is_asked), "--soup greedy")
            text = f"{option} needs labels, and {self.data} has none"
            raise ModelsError(f"{text}; leave it out here, and take it on the run's own samples")
        if self.out is None:
            text = f"{self.data} has no labels, so how good networks are cannot be told"
            raise ModelsError(f"{text}; write what they predict: --out predictions.h5")

    def arguments(self, directory: Path) -> list[str]:
        """The command line that asks each rank for the same."""
        words = ["predict", str(directory), "--members", self.members, "--vote", self.combined.vote]
        words += ["--checkpoint", self.checkpoint, "--device", self.device]
        for option, value in (("--data", self.data), ("--out", self.out), ("--soup", self.combined.soup)):
            words += [option, str(value)] if value is not None else []
        words += ["--temperature"] if self.combined.temperature else []
        return words + (["--trust"] if self.trust else [])


@dataclass(frozen=True)
class Panel:
    """Networks of a run and the samples.

    Attributes:
        jobs: the networks' own, in their order.
        device: where they predict.
    """

    spec: EnsembleSpec
    networks: Sequence[TrainedNetwork]
    jobs: Sequence[Job]
    samples: HeldOut
    device: str

    def ensemble(self, *more: TrainedNetwork) -> Ensemble:
        """The networks, and some more that are like the first, as one module on the device."""
        jobs = [*self.jobs, *(self.jobs[0] for _ in more)]
        return on_device(Ensemble([*self.networks, *more], jobs), self.device)

    def alone(self, network: TrainedNetwork) -> Ensemble:
        """A network that is like the first, on the device."""
        return on_device(Ensemble([network], self.jobs[:1]), self.device)

    @contextmanager
    def predicting(self) -> Iterator[None]:
        """Let the spec's modules be imported, and torch compute with so many threads as the run's trainers did.

        By the number of threads sums of floats may be rounded.
        """
        before = torch.get_num_threads()
        torch.set_num_threads(self.spec.resources.threads)
        try:
            with at_home(self.spec.folder):
                yield
        finally:
            torch.set_num_threads(before)


def open_panel(directory: Path, asked: AskedPrediction, team: Team) -> Panel:
    """Read the networks that rank 0 chooses, and open the samples; on every rank.

    Raises:
        ModelsError and what else a person can mend, see `fleet.models.predict`.
    """
    with team.mending():
        asked.check()
        check_trusted(directory, asked.trust)
        found = read_members(directory)
    paths = team.agreed(lambda: _checkpoints(found, asked))
    with team.mending():
        chosen = [found.of(name).at(Path(path)) for name, path in paths.items()]
        jobs = [member.job for member in chosen]
        samples = samples_of(found.spec, jobs, asked.data)
        if not samples.labelled:
            asked.check_unlabelled()
        networks = [read_network(member, found.spec) for member in chosen]
        if asked.combined.soup is not None:
            check_one_architecture(networks, jobs)
        panel = Panel(found.spec, networks, jobs, samples, team.device(asked.device))
        panel.alone(networks[0])  # finds out whether the device is there
    return panel


def _checkpoints(found: Members, asked: AskedPrediction) -> dict[str, str]:
    """The networks that predict, of greedily chosen ones all, and where their weights are."""
    chosen = found.chosen("all" if asked.picks is not None else asked.members)
    check_classes(member.job for member in chosen)
    return {member.name: str(member.checkpoint(asked.checkpoint)) for member in chosen}


T = TypeVar("T")
MENDABLE: tuple[type[Exception], ...] = (
    ModelsError,
    SpecError,
    ReferenceProblem,
    CheckpointError,
    SourceError,
    TransformError,
    SampleError,
    CorruptLimitError,
)
"""What a person can mend where networks predict."""


class Team(Protocol):
    """Processes that predict together. All of them make the same calls in the same order."""

    def agreed(self, find: Callable[[], T]) -> T:
        """Return what rank 0 finds, of JSON's types; what a person can mend there is raised on every rank."""
        ...

    def mending(self) -> AbstractContextManager[object]:
        """What a person can mend inside, on any rank, is raised on every rank at the end."""
        ...

    def device(self, asked: str) -> str:
        """Return where this rank's networks are."""
        ...

    def predictions(self, ensemble: Ensemble, samples: HeldOut, device: str) -> Predictions | None:
        """Let all networks predict all samples, each of which one rank makes; None on other ranks than 0."""
        ...


class SoloTeam:
    """This process, without MPI."""

    def agreed(self, find: Callable[[], T]) -> T:
        return find()

    def mending(self) -> AbstractContextManager[object]:
        return nullcontext()

    def device(self, asked: str) -> str:
        return asked

    def predictions(self, ensemble: Ensemble, samples: HeldOut, device: str) -> Predictions:
        return predict(ensemble, samples.batches(BATCH), device)


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
