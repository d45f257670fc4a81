"""From what is asked of a run's networks to their figures."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from fleet.harvest.errors import HarvestError
from fleet.harvest.load import load_members
from fleet.harvest.members import Members, read_members
from fleet.harvest.predictions import Predictions, check_classes
from fleet.harvest.vote import Verdict, greedy_picks
from fleet.run.predict.asked import Asked
from fleet.run.predict.crew import Alone, Crew
from fleet.run.predict.own_file import samples_of
from fleet.spec import importable


def told_of(directory: Path, asked: Asked, crew: Crew | None = None) -> dict[str, Any]:
    """Let networks of a run directory predict, write what is to be written, and return the figures as plain values.

    Args:
        crew: the ranks that take part; None: this process alone. Only rank 0 is given figures, and writes.

    Raises:
        HarvestError, SpecError, ReferenceProblem, CheckpointError: the run cannot give what is asked.
        SourceError, TransformError, SampleError, CorruptLimitError: the samples cannot be made.
        BadInput: another rank has met such an error.
    """
    begin = time.perf_counter()
    predictions, names = _predictions(directory, asked, crew or Alone())
    if predictions is None:
        return {}
    picks = greedy_picks(asked.members)
    verdict = Verdict.of_all(predictions) if picks is None else Verdict.greedy(predictions, picks)
    if asked.out is not None:
        verdict.predictions.write(asked.out, verdict.together(asked.vote), verdict.weights, names)
    return {
        "members": {name: figures.to_json() for name, figures in verdict.members().items()},
        "ensemble": verdict.ensemble(asked.vote),
        "weights": dict(zip(verdict.predictions.names, verdict.weights.tolist())),
        "vote": asked.vote,
        "labelled": predictions.labelled,
        **verdict.samples_told(),
        "seconds": time.perf_counter() - begin,
    }


def _predictions(directory: Path, asked: Asked, crew: Crew) -> tuple[Predictions | None, list[str]]:
    """Read the networks that rank 0 chooses, and let them predict; None on other ranks. And the samples' names."""
    with crew.mending():
        found = read_members(directory)
    paths = crew.agreed(lambda: _checkpoints(found, asked))
    with crew.mending():
        chosen = [found.of(name).at(Path(path)) for name, path in paths.items()]
        samples = samples_of(found.spec, [member.job for member in chosen], asked.data)
        if not samples.labelled:
            _check_unlabelled(asked)
        device = crew.device(asked.device)
        ensemble = load_members(found, chosen, device=device)
    with importable([found.spec.folder, Path.cwd()]), threads(found.spec.resources.threads):
        return crew.predictions(ensemble, samples, device), samples.names if asked.out is not None else []


def _check_unlabelled(asked: Asked) -> None:
    """Raise HarvestError where something is asked that needs targets."""
    if asked.out is None:
        raise HarvestError(
            f"{asked.data} has no labels, so how good networks are cannot be told; "
            "write what they predict: --out predictions.h5"
        )
    if greedy_picks(asked.members) is not None:
        text = f"--members {asked.members} chooses by labels, and {asked.data} has none"
        raise HarvestError(f"{text}; choose on the run's own samples, then name the networks here")


def _checkpoints(found: Members, asked: Asked) -> dict[str, str]:
    """The networks that predict, of greedily chosen ones all, and where their weights are."""
    picks = greedy_picks(asked.members)
    chosen = found.chosen("all" if picks is not None else asked.members)
    check_classes(member.job for member in chosen)
    return {member.name: str(member.checkpoint(asked.checkpoint)) for member in chosen}


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Let torch compute with so many threads, as ranks of a run do: by their number sums of floats may be rounded."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
